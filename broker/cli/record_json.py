"""A record as a line of JSON: what `varve consume --format json` writes, `varve produce --input-format json` reads.

Text is a string, null is null, and bytes that are not UTF-8 are an object: {"base64": "..."}. So nothing is lost.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from confluent_kafka import Message

_KEYS = frozenset(("topic", "partition", "offset", "timestamp", "headers", "key", "value"))


Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    """What is written of a line. The topic, the partition and the offset are those of the copy, not of the line."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    #: Milliseconds since 1970. None: the present.
    timestamp_ms: int | None


def headers_of(message: Message) -> Headers:
    """Of a message that was read. The library's type is that of messages that are written, too."""
    return cast(Headers, message.headers() or [])


def to_json(message: Message) -> str:
    kind, timestamp_ms = message.timestamp()
    return json.dumps(
        {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": timestamp_ms if kind else None,
            "headers": [[name, _shown(value)] for name, value in headers_of(message)],
            "key": _shown(message.key()),
            "value": _shown(message.value()),
        },
        ensure_ascii=False,
    )


def from_json(line: bytes) -> Record:
    """Raises ValueError, with a sentence for the person who wrote the line."""
    try:
        document = json.loads(line)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    if unknown := sorted(document.keys() - _KEYS):
        raise ValueError(
            f"{unknown[0]!r} is not a field of a record; the fields are {', '.join(sorted(_KEYS))}"
        )
    timestamp_ms = document.get("timestamp")
    if timestamp_ms is not None and (type(timestamp_ms) is not int or timestamp_ms < 0):
        raise ValueError("timestamp is not a number of milliseconds")
    return Record(
        _bytes("key", document.get("key")),
        _bytes("value", document.get("value")),
        _headers(document.get("headers")),
        timestamp_ms,
    )


def _shown(data: Any) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(field: str, shown: object) -> bytes | None:
    if shown is None:
        return None
    if isinstance(shown, str):
        return shown.encode()
    if isinstance(shown, dict) and shown.keys() == {"base64"} and isinstance(shown["base64"], str):
        try:
            return base64.b64decode(shown["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"{field} is not base64: {error}") from None
    raise ValueError(f'{field} is neither text, null nor {{"base64": "..."}}')


def _headers(shown: object) -> Headers:
    if shown is None:
        return []
    headers: Headers = []
    for pair in shown if isinstance(shown, list) else [None]:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError('headers are not a list of pairs, as in [["name", "value"]]')
        headers.append((pair[0], _bytes("the value of a header", pair[1])))
    return headers
