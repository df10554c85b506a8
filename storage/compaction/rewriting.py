"""How a batch is written anew. What to keep is decided in `batch_filter`.

Base offset, last offset delta, leader epoch, producer id, producer epoch and base sequence always stay. Size, CRC and
record count are those of what is written.

A batch without records is written without compression, whatever its codec was. That is how Kafka writes it, and
librdkafka stops for ever at a compressed one (tests/storage/compaction/test_clients.py).
"""

from __future__ import annotations

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
from protocol.records.control import ATTR_WAS_ABORT, ATTR_WAS_COMMIT
from protocol.schema import Buffer
from storage.compaction.key_table import rebased
from storage.compaction.table_twin import wrapped

_INT64_MAX: Final = 2**63 - 1


def has_horizon(header: BatchHeader) -> bool:
    return header.attributes & ATTR_DELETE_HORIZON != 0


def horizon_after(now_ms: int, retention_ms: int) -> int:
    """The delete horizon of what is kept from now on. A retention may be "for ever"."""
    return min(now_ms + retention_ms, _INT64_MAX)


def timestamp_of(header: BatchHeader, timestamp_delta: int) -> int:
    """The time of a record that was created at a producer's time. It wraps at 64 bits, as in Java."""
    return wrapped(header.base_timestamp + timestamp_delta)


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
    header: BatchHeader, payload: Buffer, count: int, max_timestamp_ms: int, horizon_ms: int | None
) -> bytearray:
    """A batch of some of its records, at least one, without the transactional bit unless it is a control batch. Each
    keeps its offset and its time.

    The payload holds these records, as they were, and the latest of their times is given. `horizon_ms`: the delete
    horizon that the batch gets; None: it has one, or needs none.
    """
    attributes = header.attributes if header.is_control else header.attributes & ~ATTR_TRANSACTIONAL
    base_timestamp = header.base_timestamp
    if attributes & ATTR_LOG_APPEND_TIME:
        max_timestamp_ms = header.max_timestamp
    if horizon_ms is not None:
        payload = rebased(payload, wrapped(base_timestamp - horizon_ms))
        attributes |= ATTR_DELETE_HORIZON
        base_timestamp = horizon_ms
    compressed = compress(Compression(header.compression_id), payload)
    if len(payload) > max_payload_bytes(len(compressed)):
        # The records that made the batch large are gone, and nobody here would decompress so small a batch to so much.
        compressed = payload
        attributes &= ~ATTR_COMPRESSION
    changed = header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp_ms, count=count
    )
    return _written(changed, compressed)


def _written(header: BatchHeader, payload: Buffer) -> bytearray:
    batch = bytearray(pack_header(header._replace(length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(payload))))
    batch += payload
    renew_crc(batch)
    return batch
