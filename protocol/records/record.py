"""The records within a batch.

    length varint | attributes int8 | timestampDelta varlong | offsetDelta varint | keyLength varint | key |
    valueLength varint | value | headerCount varint | headers: (keyLength varint | key | valueLength varint | value)*

Decoding a record in Python costs about 1 us. Whoever does not need keys and values walks through the records instead
(`protocol.records.walk`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import ATTR_LOG_APPEND_TIME, HEADER_BYTES, BatchHeader, parse_header
from protocol.records.compression import decompress

MIN_RECORD_BYTES = 7
"""The smallest record: length, attributes, two deltas, null key, null value, no headers."""

_MAX_VARINT_SHIFT = 63


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: memoryview | None
    value: memoryview | None
    headers: list[tuple[str, memoryview | None]]


def encode_varint(value: int) -> bytes:
    """The zigzag varint of a signed 64-bit number."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode_varint(buf: memoryview, pos: int) -> tuple[int, int]:
    """Returns (value, next position). Raises IndexError beyond the end, KafkaError beyond 64 bits."""
    byte = buf[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    rest = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift > _MAX_VARINT_SHIFT:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "varint is longer than ten bytes")
        byte = buf[pos]
        pos += 1
        rest |= (byte & 0x7F) << shift
        shift += 7
    return (rest >> 1) ^ -(rest & 1), pos


def iter_records(batch: memoryview) -> Iterator[Record]:
    """Yields the records of one complete batch, decompressed if necessary.

    Keys and values are slices of the batch or of its decompressed payload. That is made at once, and 64 MB of it take
    200 ms: so this is for batches of our own. Raises KafkaError CORRUPT_MESSAGE if the records do not agree with the
    header, and what `decompress` raises.
    """
    header = parse_header(batch)
    if len(batch) < header.size_bytes:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "record batch is cut short")
    payload = decompress(header.compression_id, batch[HEADER_BYTES : header.size_bytes])
    return iter_payload(payload, header)


def iter_payload(payload: memoryview, header: BatchHeader) -> Iterator[Record]:
    """Yields the records of an uncompressed payload. It must hold `header.count` records and nothing else."""
    base_offset = header.base_offset
    fixed_timestamp = header.max_timestamp if header.attributes & ATTR_LOG_APPEND_TIME else None
    pos = 0
    size_bytes = len(payload)
    for index in range(header.count):
        try:
            length, pos = decode_varint(payload, pos)
            end = pos + length
            if length < 0 or end > size_bytes:
                raise _corrupt(index, f"length {length}")
            timestamp_delta, pos = decode_varint(payload, pos + 1)  # The attributes of a record are unused.
            offset_delta, pos = decode_varint(payload, pos)
            key, pos = _nullable_slice(payload, pos, end, index)
            value, pos = _nullable_slice(payload, pos, end, index)
            headers, pos = _headers(payload, pos, end, index)
        except IndexError as error:
            raise _corrupt(index, error) from None
        if pos != end:
            raise _corrupt(index, "its parts do not add up to its length")
        timestamp_ms = header.base_timestamp + timestamp_delta if fixed_timestamp is None else fixed_timestamp
        yield Record(base_offset + offset_delta, timestamp_ms, key, value, headers)
    if pos != size_bytes:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{size_bytes - pos} bytes behind the last record")


def _nullable_slice(payload: memoryview, pos: int, end: int, index: int) -> tuple[memoryview | None, int]:
    length, pos = decode_varint(payload, pos)
    if length == -1:
        return None, pos
    following = pos + length
    if length < 0 or following > end:
        raise _corrupt(index, f"a field of length {length}")
    return payload[pos:following], following


def _headers(
    payload: memoryview, pos: int, end: int, index: int
) -> tuple[list[tuple[str, memoryview | None]], int]:
    count, pos = decode_varint(payload, pos)
    if not 0 <= count <= (end - pos) // 2:  # A header takes at least two bytes.
        raise _corrupt(index, f"{count} headers")
    headers = []
    for _ in range(count):
        key, pos = _nullable_slice(payload, pos, end, index)
        if key is None:
            raise _corrupt(index, "a header without a key")
        value, pos = _nullable_slice(payload, pos, end, index)
        # Not strict, as Java's reader: the key was not checked when the record was written.
        headers.append((str(key, "utf-8", "replace"), value))
    return headers, pos


def _corrupt(index: int, reason: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record {index} of the batch: {reason}")
