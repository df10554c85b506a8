"""The functions that generated codecs call: unsigned varints, tagged fields, ids, and errors of decoding.

Lengths and counts are checked against the buffer before they are used.
"""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from protocol.errors import ProtocolError

_INT32_MAX = 2**31 - 1

MAX_ELEMENTS = 1_000_000
"""How many structs, strings and tagged fields one message may hold, in all of its arrays together, unless the caller of
the decoder says less. Each becomes an object of some hundred bytes. A frame of 100 MiB has room for 33 million, which
would be gigabytes and minutes. A node bounds the requests of clients more tightly (`broker.serving.dispatcher`)."""

MAX_HEADER_TAGS = 1_000
"""How many tagged fields a header may have. Kafka has defined none yet."""

ELEMENTS_PER_STEP = 256
"""How many elements a codec that works in steps reads or writes in one step. One takes 0.3 to 2.5 us."""

NUMBERS_PER_ELEMENT = 4
"""How many numbers of an array count as one element. They are smaller, but each may be a partition to look up."""


def _encode_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SHORT_UVARINTS = tuple(bytes((value,)) for value in range(128))
"""The encodings of 0 to 127, which are nearly all lengths and counts."""


def uvarint(value: int) -> bytes:
    """Unsigned LEB128, as Kafka's compact lengths and tags use it (KIP-482)."""
    return SHORT_UVARINTS[value] if 0 <= value < 128 else _encode_uvarint(value)


def long_uvarint(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """Continues a varint whose first byte (> 127) is before `pos`. Returns (value, next position).

    Raises ProtocolError for a value above int32, because no length, count or tag may be larger.
    """
    value = first & 0x7F
    shift = 7
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("varint is longer than five bytes")
    if value > _INT32_MAX:
        raise ProtocolError(f"varint {value} is above int32")
    return value, pos


def read_uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    first = buf[pos]
    if first < 0x80:
        return first, pos + 1
    return long_uvarint(buf, pos + 1, first)


def read_tag(buf: memoryview, pos: int) -> tuple[int, int, int]:
    """Reads the head of a tagged field. Returns (tag, position of its value, end of its value)."""
    tag, pos = read_uvarint(buf, pos)
    size_bytes, pos = read_uvarint(buf, pos)
    end = pos + size_bytes
    if end > len(buf):
        raise ProtocolError(f"tagged field {tag} of {size_bytes} bytes runs past the end")
    return tag, pos, end


def skip_tags(buf: memoryview, pos: int, count: int, room: int) -> tuple[int, int]:
    """Skips `count` unknown tagged fields. `count` may be the first byte of a longer varint. `room` is how many
    elements the message may still hold. Returns the position behind the fields and the room that is left."""
    if count > 127:
        count, pos = long_uvarint(buf, pos, count)
    check_tag_count(buf, pos, count)
    if count > room:
        raise ProtocolError(f"{count:,} unknown tagged fields are too many")
    for _ in range(count):
        _, _, pos = read_tag(buf, pos)
    return pos, room - count


def check_tag_count(buf: memoryview, pos: int, count: int) -> None:
    """Raises ProtocolError if so many tagged fields, of at least two bytes each, do not fit into the rest."""
    if count > (len(buf) - pos) // 2:
        raise ProtocolError(f"{count} tagged fields do not fit into the rest")


@lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """A UUID from a cache. Ids of topics and directories repeat, and a new UUID costs ten times a look-up."""
    return UUID(bytes=raw)


def bad_length(what: str, length: int) -> ProtocolError:
    return ProtocolError(f"{what} has length {length}, which is not allowed or does not fit into the rest")


def too_many(what: str, limit: int) -> ProtocolError:
    return ProtocolError(f"{what}: the message holds more than {limit:,} elements")


def undecodable(what: str, error: Exception) -> ProtocolError:
    return ProtocolError(f"{what} is cut short or malformed: {error}")
