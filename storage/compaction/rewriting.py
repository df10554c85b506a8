"""How a batch is written anew. What to keep is decided in `batch_filter`.

Base offset, last offset delta, leader epoch, producer id, producer epoch and base sequence always stay. Size, CRC and
record count are those of what is written.

A batch without records is written without compression, whatever its codec was. That is how Kafka writes it, and
librdkafka stops for ever at a compressed one (tests/storage/compaction/test_clients.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.records.batch import (
    ATTR_COMPRESSION,
    ATTR_CONTROL,
    ATTR_DELETE_HORIZON,
    ATTR_LOG_APPEND_TIME,
    ATTR_TRANSACTIONAL,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    Compression,
    pack_header,
    renew_crc,
)  # fmt: skip
from protocol.records.compression import compress, max_payload_bytes
from protocol.records.record import decode_varint, encode_varint
from protocol.schema import Buffer
from storage.compaction.scan import ScannedRecord

ATTR_WAS_ABORT = 0x100
ATTR_WAS_COMMIT = 0x200
"""Of a remnant: what its marker said. Kafka has not assigned these bits, and its clients ignore this byte."""

_INT64_MAX: Final = 2**63 - 1


def has_horizon(header: BatchHeader) -> bool:
    return header.attributes & ATTR_DELETE_HORIZON != 0


def horizon_after(now_ms: int, retention_ms: int) -> int:
    """The delete horizon of what is kept from now on. A retention may be "for ever"."""
    return min(now_ms + retention_ms, _INT64_MAX)


def timestamp_of(header: BatchHeader, timestamp_delta: int) -> int:
    """The time of a record that was created at a producer's time. It wraps at 64 bits, as in Java."""
    return _wrapped(header.base_timestamp + timestamp_delta)


def remnant_is_commit(header: BatchHeader) -> bool | None:
    """What the marker of a remnant said: whether it was a COMMIT. None: this is no remnant, or one that Kafka made."""
    if not header.is_control or header.count:
        return None
    if header.attributes & ATTR_WAS_COMMIT:
        return True
    return False if header.attributes & ATTR_WAS_ABORT else None


def without_transactional_bit(batch: memoryview, header: BatchHeader) -> bytearray:
    """The batch of a transaction that was committed. Its records are not looked at."""
    cleared = header._replace(attributes=header.attributes & ~ATTR_TRANSACTIONAL)
    return _written(cleared, batch[HEADER_BYTES : header.size_bytes])


def emptied(header: BatchHeader) -> bytearray:
    """A data batch without its records: of a producer it says which sequence was the last one.

    It has one time, the largest that its records had. The base timestamp could be a delete horizon, which means
    nothing any more.
    """
    return _written(
        header._replace(
            attributes=header.attributes & ATTR_LOG_APPEND_TIME,
            base_timestamp=header.max_timestamp,
            count=0,
        ),
        b"",
    )


def remnant(header: BatchHeader, is_commit: bool | None, horizon_ms: int) -> bytearray:
    """A control batch without its marker. The horizon says when it may go itself."""
    kind = 0 if is_commit is None else ATTR_WAS_COMMIT if is_commit else ATTR_WAS_ABORT
    kept = header.attributes & (ATTR_CONTROL | ATTR_TRANSACTIONAL | ATTR_LOG_APPEND_TIME)
    return _written(
        header._replace(attributes=kept | ATTR_DELETE_HORIZON | kind, base_timestamp=horizon_ms, count=0), b""
    )


def rewritten(
    header: BatchHeader, payload: bytes, records: Sequence[ScannedRecord], horizon_ms: int | None
) -> bytearray:
    """A batch of at least one of its records, in order, without the transactional bit unless it is a control batch.
    Each record keeps its offset and its time. `horizon_ms`: the delete horizon that the batch gets; None: it has one,
    or needs none."""
    attributes = header.attributes if header.is_control else header.attributes & ~ATTR_TRANSACTIONAL
    max_timestamp, base_timestamp = header.max_timestamp, header.base_timestamp
    if not attributes & ATTR_LOG_APPEND_TIME:
        max_timestamp = max(timestamp_of(header, record[3]) for record in records)
    if horizon_ms is None:
        kept = _copied(payload, records)
    else:
        kept = _rebased(payload, records, base_timestamp - horizon_ms)
        attributes |= ATTR_DELETE_HORIZON
        base_timestamp = horizon_ms
    compressed = compress(Compression(header.compression_id), kept)
    if len(kept) > max_payload_bytes(len(compressed)):
        # The records that made the batch large are gone, and nobody here would decompress so small a batch to so much.
        compressed = kept
        attributes &= ~ATTR_COMPRESSION
    changed = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, count=len(records)
    )
    return _written(changed, compressed)


def _written(header: BatchHeader, payload: Buffer) -> bytearray:
    batch = bytearray(pack_header(header._replace(length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload))))
    batch += payload
    renew_crc(batch)
    return batch


def _copied(payload: bytes, records: Sequence[ScannedRecord]) -> bytes:
    """The records as they are. Neighbours are copied together."""
    parts = []
    run_start = run_end = records[0][0]
    for record in records:
        if record[0] != run_end:
            parts.append(payload[run_start:run_end])
            run_start = record[0]
        run_end = record[1]
    parts.append(payload[run_start:run_end])
    return b"".join(parts)


def _rebased(payload: bytes, records: Sequence[ScannedRecord], shift_ms: int) -> bytes:
    """The records with timestamp deltas from another base, which lies `shift_ms` before the old one."""
    view = memoryview(payload)
    parts = []
    for start, end, _, timestamp_delta, behind_timestamp, _, _ in records:
        _, attributes_at = decode_varint(view, start)
        body = payload[attributes_at : attributes_at + 1]
        body += encode_varint(_wrapped(timestamp_delta + shift_ms)) + payload[behind_timestamp:end]
        parts.append(encode_varint(len(body)))
        parts.append(body)
    return b"".join(parts)


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
