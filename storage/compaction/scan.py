"""The records of a stored batch as compaction sees them: where each one lies, its key, and whether it has a value.

Headers are not looked at, and values are not copied: a record that stays is copied as a whole. So this takes about a
microsecond per record, a quarter of what `protocol.records.record.iter_records` takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import HEADER_BYTES, MAGIC, BatchHeader, check_crc
from protocol.records.compression import decompress
from protocol.records.record import decode_varint
from protocol.schema import Buffer

#: start, end, offset delta, timestamp delta, position behind the timestamp delta, key, whether the value is null.
#: Positions are those of the payload. A plain tuple, because a named one takes twice the time.
ScannedRecord: TypeAlias = tuple[int, int, int, int, int, bytes | None, bool]


def check_batch(batch: memoryview, header: BatchHeader) -> None:
    """Raises KafkaError CORRUPT_MESSAGE unless the batch is complete and its CRC is right.

    Whoever acts on stored bytes verifies them, and a batch that is written anew gets a new CRC, which would make
    corruption look right.
    """
    if header.magic != MAGIC or len(batch) != header.size_bytes or not check_crc(batch, 0, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is corrupt")


def payload_of(batch: memoryview, header: BatchHeader) -> Buffer:
    """The decompressed payload of a batch. Raises what `decompress` raises."""
    return decompress(header.compression_id, batch[HEADER_BYTES:])


def scan_records(payload: bytes, header: BatchHeader) -> Iterator[ScannedRecord]:
    """Yields the records of a batch. Raises KafkaError CORRUPT_MESSAGE if the payload does not hold exactly
    `header.count` records, whose offsets rise within the batch. native/records.c refuses the same payloads.

    Numbers of one byte, and most of two, are decoded in place: a call for each would double the time.
    """
    view = memoryview(payload)
    size_bytes = len(payload)
    last_offset_delta = header.last_offset_delta
    previous_delta = -1
    pos = 0
    for index in range(header.count):
        start = pos
        try:
            byte, second = payload[pos], payload[pos + 1]
            if byte < 0x80:
                length, pos = byte >> 1 ^ -(byte & 1), pos + 1
            elif second < 0x80:
                length, pos = (byte & 0x7F | second << 7) >> 1 ^ -(byte & 1), pos + 2
            else:
                length, pos = decode_varint(view, pos)
            end = pos + length
            if length < 0 or end > size_bytes:
                raise _corrupt(header, index, f"a length of {length}")
            pos += 1  # The attributes of a record are unused.
            byte = payload[pos]
            if byte < 0x80:
                timestamp_delta, pos = byte >> 1 ^ -(byte & 1), pos + 1
            else:
                timestamp_delta, pos = decode_varint(view, pos)
            behind_timestamp = pos
            byte, second = payload[pos], payload[pos + 1]
            if byte < 0x80:
                offset_delta, pos = byte >> 1 ^ -(byte & 1), pos + 1
            elif second < 0x80:
                offset_delta, pos = (byte & 0x7F | second << 7) >> 1 ^ -(byte & 1), pos + 2
            else:
                offset_delta, pos = decode_varint(view, pos)
            byte = payload[pos]
            if byte < 0x80:
                key_bytes, pos = byte >> 1 ^ -(byte & 1), pos + 1
            else:
                key_bytes, pos = decode_varint(view, pos)
            key = None
            if key_bytes >= 0:
                key = payload[pos : pos + key_bytes]
                pos += key_bytes
            byte, second = payload[pos], payload[pos + 1]
            if byte < 0x80:
                value_bytes, pos = byte >> 1 ^ -(byte & 1), pos + 1
            elif second < 0x80:
                value_bytes, pos = (byte & 0x7F | second << 7) >> 1 ^ -(byte & 1), pos + 2
            else:
                value_bytes, pos = decode_varint(view, pos)
        except IndexError:
            raise _corrupt(header, index, "it is cut short") from None
        if not previous_delta < offset_delta <= last_offset_delta:
            raise _corrupt(header, index, f"an offset delta of {offset_delta} after {previous_delta}")
        # At least the count of the headers is behind the value.
        if key_bytes < -1 or value_bytes < -1 or pos + max(value_bytes, 0) >= end:
            raise _corrupt(header, index, f"a key of {key_bytes} bytes, a value of {value_bytes}")
        yield start, end, offset_delta, timestamp_delta, behind_timestamp, key, value_bytes < 0
        previous_delta = offset_delta
        pos = end
    if pos != size_bytes:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"batch at offset {header.base_offset}: {size_bytes - pos} bytes behind the last record",
        )


def _corrupt(header: BatchHeader, index: int, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}, record {index}: {reason}"
    )
