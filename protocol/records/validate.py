"""What a broker checks before it appends what a producer sent (client-behaviour.md, B.3).

The header and the CRC are always checked. Records are walked, and compressed ones decompressed, only where
the answer needs it: the topic is compacted (every record must have a key), or timestamps leave the allowed
window (the answer names the records). See "Non-obvious" in the README for what this leaves unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from protocol.errors import ErrorCode, InvalidRecordError
from protocol.records.batch import (
    ATTR_COMPRESSION,
    ATTR_LOG_APPEND_TIME,
    ATTR_TRANSACTIONAL,
    HEADER_BYTES,
    MAGIC,
    MIN_LENGTH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
    TimestampType,
    check_crc,
    pack_header,
    parse_header,
    renew_crc,
)  # fmt: skip
from protocol.records.record import MIN_RECORD_BYTES, RECORDS_PER_STEP, iter_records

NO_LIMIT_MS = 2**63 - 1
"""`message.timestamp.before.max.ms` where nothing is too old."""

_FIRST_VERSION_WITH_ZSTD = 7
_MAX_RECORD_ERRORS = 10_000
"""How many records an answer names at most: a compressed batch can hold millions of empty ones."""
_PRODUCER_ATTRIBUTES = ATTR_COMPRESSION | ATTR_LOG_APPEND_TIME | ATTR_TRANSACTIONAL


class RecordRules(NamedTuple):
    """What a topic's settings ask of each record."""

    is_compacted: bool
    timestamp_type: TimestampType
    before_max_ms: int
    after_max_ms: int

    def ask_for_each(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the header leaves it open that the records keep them: `check_records`."""
        return self.is_compacted or self.ask_for_timestamps(header, now_ms)

    def ask_for_timestamps(self, header: BatchHeader, now_ms: int) -> bool:
        """Not where the header excludes one outside [now - before, now + after]. It tells the greatest timestamp and
        the first, but not the least: a limit on age makes us look."""
        if self.timestamp_type is not TimestampType.CREATE_TIME:
            return False
        if max(header.max_timestamp, header.base_timestamp) > now_ms + self.after_max_ms:
            return True
        return self.before_max_ms != NO_LIMIT_MS and (
            header.count > 1 or header.base_timestamp < now_ms - self.before_max_ms
        )


def validate_produce(records: memoryview | None, *, api_version: int, max_message_bytes: int) -> BatchHeader:
    """Checks the one batch of a partition of a Produce request, but for its records. Returns its header.

    Raises InvalidRecordError. The checks come in the broker's order: shape, version, size, CRC, meaning.
    """
    header = _the_one_batch(records)
    assert records is not None
    if api_version < _FIRST_VERSION_WITH_ZSTD and header.compression_id == Compression.ZSTD:
        raise InvalidRecordError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 of Produce requests"
        )
    if header.base_offset != 0:
        raise _invalid(f"the base offset of a produced batch must be 0, not {header.base_offset}")
    if len(records) > max_message_bytes:
        raise InvalidRecordError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {len(records)} bytes; max.message.bytes is {max_message_bytes}",
        )
    if not check_crc(records, 0, header):
        raise InvalidRecordError(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not match")
    _check_header(header, len(records))
    return header


def check_records(records: memoryview, header: BatchHeader, rules: RecordRules, now_ms: int) -> Iterator[int]:
    """Looks at the records of a validated batch one by one, and yields before it goes on with as many as it yields.
    The batch is good when this has ended.

    Raises InvalidRecordError, naming the records at fault, or KafkaError from walking them.
    """
    check_timestamps = rules.ask_for_timestamps(header, now_ms)
    earliest_ms, latest_ms = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    without_key: list[tuple[int, str | None]] = []
    misdated: list[tuple[int, str | None]] = []
    for index, record in enumerate(iter_records(records)):
        if index % RECORDS_PER_STEP == 0 and index > 0:
            yield RECORDS_PER_STEP
        if record.offset != index:
            raise _invalid(f"record {index} has offset delta {record.offset}")
        if rules.is_compacted and record.key is None:
            without_key.append((index, "a compacted topic does not accept records without a key"))
        timestamp_ms = record.timestamp_ms
        if check_timestamps and timestamp_ms != NO_TIMESTAMP and not earliest_ms <= timestamp_ms <= latest_ms:
            misdated.append((index, f"timestamp {timestamp_ms} is outside [{earliest_ms}, {latest_ms}]"))
        if max(len(without_key), len(misdated)) == _MAX_RECORD_ERRORS:
            break
    if without_key:
        raise InvalidRecordError(
            ErrorCode.INVALID_RECORD, "a compacted topic does not accept records without a key", without_key
        )
    if misdated:
        raise InvalidRecordError(
            ErrorCode.INVALID_TIMESTAMP, "timestamps are outside the allowed range", misdated
        )


def set_log_append_time(batch: bytearray | memoryview, now_ms: int) -> BatchHeader:
    """Makes `now_ms` the timestamp of all records of a batch, in place, and renews the CRC.

    Readers ignore the records' own timestamps then. Returns the new header.
    """
    header = parse_header(batch)
    header = header._replace(attributes=header.attributes | ATTR_LOG_APPEND_TIME, max_timestamp=now_ms)
    batch[:HEADER_BYTES] = pack_header(header)
    return renew_crc(batch)


def _the_one_batch(records: memoryview | None) -> BatchHeader:
    """The header of the batch that fills `records` exactly."""
    if records is None or len(records) < HEADER_BYTES:
        raise _invalid("no record batch")
    header = parse_header(records)
    if header.magic != MAGIC:
        raise _invalid(f"record batches must have magic {MAGIC}, not {header.magic}")
    if header.length < MIN_LENGTH:
        raise InvalidRecordError(ErrorCode.CORRUPT_MESSAGE, f"record batch of length {header.length}")
    size_bytes = header.size_bytes
    if size_bytes > len(records):
        raise _invalid("record batch is cut short")
    if size_bytes < len(records):
        raise _invalid("more than one record batch for a partition")
    return header


def _check_header(header: BatchHeader, size_bytes: int) -> None:
    """What the header alone tells, of a batch of this size. The CRC is known to be right."""
    attributes, count = header.attributes, header.count
    if attributes:
        _check_attributes(header)
    if count < 1 or count != header.last_offset_delta + 1:
        raise _invalid(f"{count} records, but a last offset delta of {header.last_offset_delta}")
    if not attributes & ATTR_COMPRESSION and count * MIN_RECORD_BYTES > size_bytes - HEADER_BYTES:
        raise _invalid(f"{count} records do not fit into {size_bytes} bytes")
    if header.producer_id != NO_PRODUCER_ID and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(f"producer id {header.producer_id} without an epoch and a sequence")
    if attributes & ATTR_TRANSACTIONAL and header.producer_id == NO_PRODUCER_ID:
        raise _invalid("transactional batch without a producer id")


def _check_attributes(header: BatchHeader) -> None:
    if header.is_control:
        raise _invalid("clients may not write control batches")
    if header.attributes & ~_PRODUCER_ATTRIBUTES:
        raise _invalid(f"attributes {header.attributes:#x} are not for producers to set")
    if header.attributes & ATTR_LOG_APPEND_TIME:
        raise InvalidRecordError(
            ErrorCode.INVALID_TIMESTAMP, "producers may not set the timestamp type to LogAppendTime"
        )
    if header.compression_id > Compression.ZSTD:
        raise InvalidRecordError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression {header.compression_id}"
        )


def _invalid(message: str) -> InvalidRecordError:
    return InvalidRecordError(ErrorCode.INVALID_RECORD, message)
