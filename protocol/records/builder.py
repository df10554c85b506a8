"""Builds record batches, for internal topics, transaction markers and tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocol.records.batch import (
    ATTR_CONTROL,
    ATTR_TRANSACTIONAL,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
    pack_header,
    renew_crc,
)  # fmt: skip
from protocol.records.compression import compress
from protocol.records.record import encode_varint
from protocol.schema import Buffer


class NewRecord(NamedTuple):
    """A record to be written. `headers` are (key, value) in order. Keys may repeat."""

    key: Buffer | None
    value: Buffer | None
    timestamp_ms: int = NO_TIMESTAMP
    headers: Sequence[tuple[str, Buffer | None]] = ()


def build_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_control: bool = False,
    is_transactional: bool = False,
) -> bytearray:
    """One batch of at least one record, at consecutive offsets, with a valid CRC."""
    builder = BatchBuilder()
    for record in records:
        builder.add(record)
    return builder.finish(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_control=is_control,
        is_transactional=is_transactional,
    )


def build_filler(base_offset: int, next_offset: int, leader_epoch: int) -> bytearray:
    """An empty batch of no producer, for the offsets up to `next_offset`: compaction removed what was there."""
    assert base_offset < next_offset
    header = BatchHeader(
        base_offset=base_offset,
        length=HEADER_BYTES - LENGTH_PREFIX_BYTES,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=0,
        last_offset_delta=next_offset - base_offset - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        count=0,
    )
    batch = bytearray(pack_header(header))
    renew_crc(batch)
    return batch


class BatchBuilder:
    """As `build_batch`, record by record."""

    def __init__(self) -> None:
        self._payload = bytearray()
        self._count = 0
        self._base_timestamp = self._max_timestamp = NO_TIMESTAMP

    def add(self, record: NewRecord) -> None:
        timestamp = record.timestamp_ms
        if not self._count:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        _append_record(self._payload, record, timestamp - self._base_timestamp, self._count)
        self._count += 1

    def finish(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        compression: Compression = Compression.NONE,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        is_control: bool = False,
        is_transactional: bool = False,
    ) -> bytearray:
        assert self._count, "a batch has at least one record"
        compressed = compress(compression, self._payload)
        flags = (ATTR_CONTROL if is_control else 0) | (ATTR_TRANSACTIONAL if is_transactional else 0)
        header = BatchHeader(
            base_offset=base_offset,
            length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(compressed),
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=compression | flags,
            last_offset_delta=self._count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            count=self._count,
        )
        batch = bytearray(pack_header(header))
        batch += compressed
        renew_crc(batch)
        return batch


#: Of the numbers from 0 on: most lengths and offsets are small.
_VARINTS = [encode_varint(number) for number in range(1024)]


def _varint(number: int) -> bytes:
    return _VARINTS[number] if 0 <= number < 1024 else encode_varint(number)


def _append_record(payload: bytearray, record: NewRecord, timestamp_delta: int, offset_delta: int) -> None:
    body: list[Buffer] = [b"\0", _varint(timestamp_delta), _varint(offset_delta)]
    _append_nullable(body, record.key)
    _append_nullable(body, record.value)
    body.append(_varint(len(record.headers)))
    for key, value in record.headers:
        _append_nullable(body, key.encode())
        _append_nullable(body, value)
    joined = b"".join(body)
    payload += _varint(len(joined))
    payload += joined


def _append_nullable(body: list[Buffer], value: Buffer | None) -> None:
    if value is None:
        body.append(b"\x01")  # zigzag of -1
    else:
        body.append(_varint(len(value)))
        body.append(value)
