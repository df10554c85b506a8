"""Encoding and decoding of declared messages (`protocol.schema`).

A codec is generated and compiled when a message is first encoded or decoded in a version, and kept. Its source can be
printed:

    python -m protocol.codec Produce 9            # decoder of the request
    python -m protocol.codec ProduceResponse 9    # any message by its class name
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from protocol.decoder_source import decoder_source
from protocol.encoder_source import encoder_source
from protocol.errors import ProtocolError
from protocol.schema import Buffer, Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")

M_co = TypeVar("M_co", bound=Message, covariant=True)


class Decoder(Protocol[M_co]):
    def __call__(self, buf: memoryview, pos: int, room: int = ...) -> tuple[M_co, int]:
        """Returns the message at `pos` and the position behind it. `room`: how many elements it may hold
        (`wire.MAX_ELEMENTS`)."""


class StepDecoder(Protocol[M_co]):
    def __call__(self, buf: memoryview, pos: int, room: int = ...) -> Generator[None, None, tuple[M_co, int]]:
        """As `Decoder`, in steps: each `yield` is a pause, and the return value is the result."""


_decoders: dict[tuple[type[Message], int], Decoder[Any]] = {}
_step_decoders: dict[tuple[type[Message], int], StepDecoder[Any]] = {}
_encoders: dict[tuple[type[Message], int], Callable[[Any], bytes]] = {}
_parts_encoders: dict[tuple[type[Message], int], Callable[[Any], list[Buffer]]] = {}
_step_encoders: dict[tuple[type[Message], int], Callable[[Any], Generator[None, None, list[Buffer]]]] = {}


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """The decoder of a message in one version, for repeated use. Raises ProtocolError for an undeclared version.

    The decoder raises ProtocolError for malformed input. Record fields of a decoded message are slices of the buffer.
    Everything else is copied.
    """
    found = _decoders.get((cls, version))
    if found is None:
        found = _decoders[cls, version] = _make_decoder(cls, version, in_steps=False)
    return found


def step_decoder(cls: type[M], version: int) -> StepDecoder[M]:
    """As `decoder`, for a message that may be large: each step takes less than a millisecond. The buffer must not
    change between the steps."""
    found = _step_decoders.get((cls, version))
    if found is None:
        found = _step_decoders[cls, version] = _make_decoder(cls, version, in_steps=True)
    return found


def encoder(cls: type[M], version: int) -> Callable[[M], bytes]:
    """The encoder of a message in one version, for repeated use. Raises ValueError for an undeclared version.

    Fields that the version lacks are left out silently, as if Kafka's schema called all of them ignorable."""
    found = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = _make_encoder(cls, version, "encoder", joined=True)
    return found


def parts_encoder(cls: type[M], version: int) -> Callable[[M], list[Buffer]]:
    """As `encoder`, but the result is a list of buffers. Record buffers are in it as they were given, without a
    copy."""
    found = _parts_encoders.get((cls, version))
    if found is None:
        found = _parts_encoders[cls, version] = _make_encoder(cls, version, "parts encoder")
    return found


def decode(cls: type[M], version: int, buf: memoryview, pos: int = 0) -> tuple[M, int]:
    return decoder(cls, version)(buf, pos)


def encode(message: Message, version: int) -> bytes:
    return encoder(type(message), version)(message)


def encode_parts(message: Message, version: int) -> list[Buffer]:
    return parts_encoder(type(message), version)(message)


def encode_in_steps(message: Message, version: int) -> Generator[None, None, list[Buffer]]:
    """As `encode_parts`, for a message that may be large: each step takes less than a millisecond. The message must not
    change between the steps."""
    cls = type(message)
    encode = _step_encoders.get((cls, version))
    if encode is None:
        encode = _step_encoders[cls, version] = _make_encoder(cls, version, "step encoder", in_steps=True)
    return encode(message)


def at_once(steps: Generator[Any, None, T]) -> T:
    """Run all steps without a pause, where they are few, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def _make_decoder(cls: type[Message], version: int, *, in_steps: bool) -> Callable[..., Any]:
    if not cls.__schema__.versions.includes(version):
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    source, names = decoder_source(cls, version, in_steps=in_steps)
    shape = "step decoder" if in_steps else "decoder"
    return _compile(f"<{shape} of {cls.__name__} v{version}>", source, names, "decode")


def _make_encoder(
    cls: type[Message], version: int, shape: str, *, joined: bool = False, in_steps: bool = False
) -> Callable[[Any], Any]:
    if not cls.__schema__.versions.includes(version):
        raise ValueError(f"{cls.__name__} has no version {version}")
    source, names = encoder_source(cls, version, joined=joined, in_steps=in_steps)
    return _compile(f"<{shape} of {cls.__name__} v{version}>", source, names, "encode")


def _compile(title: str, source: str, names: dict[str, Any], function: str) -> Callable[..., Any]:
    """Compile generated source, and give it to linecache, so that tracebacks and debuggers show it."""
    exec(compile(source, title, "exec"), names)
    linecache.cache[title] = (len(source), None, source.splitlines(keepends=True), title)
    return names[function]  # type: ignore[no-any-return]


def _print_source(name: str, version: int) -> None:
    from protocol.messages import (
        ALL_MESSAGES,
    )  # Imported here because codecs are independent of the messages.

    by_name = {cls.__name__: cls for cls in ALL_MESSAGES}
    cls = by_name.get(name) or by_name[f"{name}Request"]
    print(decoder_source(cls, version)[0])
    print(encoder_source(cls, version, joined=False)[0])


if __name__ == "__main__":
    import sys

    _print_source(sys.argv[1], int(sys.argv[2]))
