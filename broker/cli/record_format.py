"""How `varve consume` prints a record: its value, JSON, or what a format string says (`-f '%k %v\\n'`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from broker.cli.record_json import headers_of, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message

#: The bytes that are printed of some records. One call for many: a call for each would cost a third of the rate.
Render = Callable[["Sequence[Message]"], bytes]
#: A part of what a format prints of a record.
_Piece = Callable[["Message"], bytes]

_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def unescape(text: str) -> bytes:
    r"""\t, \n, \r, \0, \\ and \xNN stand for bytes that are hard to type. Raises ValueError for others."""
    # Arguments are text, and a byte that is not ASCII is part of a character of it.
    parts: list[bytes] = []
    position = 0
    for found in _ESCAPE.finditer(text):
        parts.append(text[position : found.start()].encode())
        code = found.group(1)
        if len(code) == 3:
            parts.append(bytes.fromhex(code[1:]))
        elif code in _ESCAPES:
            parts.append(_ESCAPES[code].encode())
        else:
            raise ValueError(f"\\{code} stands for nothing; a backslash is \\\\")
        position = found.end()
    parts.append(text[position:].encode())
    return b"".join(parts)


class Escaped(click.ParamType[bytes]):
    """An argument in which \\t is a tab."""

    name = "text"

    def convert(self, value: str | bytes, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        try:
            return value if isinstance(value, bytes) else unescape(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _bytes(data: Any) -> bytes:
    return b"" if data is None else bytes(data)


def _length(data: Any) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _headers(message: Message) -> bytes:
    pairs = headers_of(message)
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in pairs)


def _timestamp(message: Message) -> bytes:
    kind, timestamp_ms = message.timestamp()
    return b"%d" % (timestamp_ms if kind else -1)


#: Letter -> what it prints: those of kcat, and %v, %V and %d of rpk.
FIELDS: dict[str, tuple[str, _Piece]] = {
    "t": ("topic", lambda message: str(message.topic()).encode()),
    "p": ("partition", lambda message: str(message.partition()).encode()),
    "o": ("offset", lambda message: str(message.offset()).encode()),
    "k": ("key", lambda message: _bytes(message.key())),
    "K": ("length of the key, -1 for null", lambda message: _length(message.key())),
    "v": ("value", lambda message: _bytes(message.value())),
    "s": ("value", lambda message: _bytes(message.value())),
    "V": ("length of the value, -1 for null", lambda message: _length(message.value())),
    "S": ("length of the value, -1 for null", lambda message: _length(message.value())),
    "h": ("headers, as in a=1,b=2", _headers),
    "T": ("timestamp, in milliseconds", _timestamp),
    "d": ("timestamp, in milliseconds", _timestamp),
}


class Format(click.ParamType[str]):
    """text, json, or a format string."""

    name = "format"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in ("text", "json"):
            try:
                _by_format(value)
            except ValueError as error:
                self.fail(str(error), param, ctx)
        return value


def renderer(shape: str, key_separator: bytes | None) -> Render:
    """`shape`: text, json, or a format string. With `text`, the key and the separator come before the value."""
    if shape == "json":
        return lambda messages: "".join([to_json(message) + "\n" for message in messages]).encode()
    if shape != "text":
        return _by_format(shape)
    if key_separator is None:
        return lambda messages: _lines([message.value() for message in messages])
    separator = key_separator
    return lambda messages: _lines(
        [_or_null(message.key()) + separator + _or_null(message.value()) for message in messages]
    )


def _or_null(data: Any) -> Any:
    """As Kafka's console consumer prints it."""
    return b"null" if data is None else data


def _lines(values: list[Any]) -> bytes:
    if None in values:
        values = [_or_null(value) for value in values]
    return b"\n".join([*values, b""])


def _by_format(text: str) -> Render:
    """Raises ValueError."""
    if "%" not in text:
        raise ValueError(f"{text!r} is neither text, json nor a format with %, as in '%t %p %o %k %v\\n'")
    pieces: list[_Piece] = []
    literal, *fields = re.split(r"%(.|$)", text, flags=re.DOTALL)
    _add_literal(pieces, literal)
    for letter, after in zip(fields[::2], fields[1::2], strict=True):
        if letter == "%":
            _add_literal(pieces, "%")
        elif letter in FIELDS:
            pieces.append(FIELDS[letter][1])
        else:
            known = ", ".join(f"%{known}" for known in FIELDS)
            raise ValueError(f"%{letter} stands for nothing; there are {known} and %%")
        _add_literal(pieces, after)
    return lambda messages: b"".join([piece(message) for message in messages for piece in pieces])


def _add_literal(pieces: list[_Piece], text: str) -> None:
    if text:
        literal = unescape(text)
        pieces.append(lambda _: literal)
