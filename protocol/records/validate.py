"""The validation of a produced batch before it is appended (client-behaviour.md, B.3).

The header and the CRC are always checked. Records are decoded, and decompressed if necessary, only in two cases. In a
compacted topic every record must have a key. And if timestamps may be outside the allowed range, the answer names the
records. "Non-obvious" in the README says what is not noticed therefore.
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
"""`message.timestamp.before.max.ms` without a limit."""

_FIRST_VERSION_WITH_ZSTD = 7
_MAX_RECORD_ERRORS = 10_000
"""How many records one answer names at most. A compressed batch can hold millions of empty records."""
_PRODUCER_ATTRIBUTES = ATTR_COMPRESSION | ATTR_LOG_APPEND_TIME | ATTR_TRANSACTIONAL


class RecordRules(NamedTuple):
    """The rules for each record that follow from the settings of a topic."""

    is_compacted: bool
    timestamp_type: TimestampType
    before_max_ms: int
    after_max_ms: int

    def ask_for_each(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the header does not show that all records follow the rules. `check_records` is needed then."""
        return self.is_compacted or self.ask_for_timestamps(header, now_ms)

    def ask_for_timestamps(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the header does not show that all timestamps are within [now - before, now + after]. It holds the
        largest timestamp and the first one, but not the smallest. So a limit on the age needs a look at the records."""
        if self.timestamp_type is not TimestampType.CREATE_TIME:
            return False
        if max(header.max_timestamp, header.base_timestamp) > now_ms + self.after_max_ms:
            return True
        return self.before_max_ms != NO_LIMIT_MS and (
            header.count > 1 or header.base_timestamp < now_ms - self.before_max_ms
        )


def validate_produce(records: memoryview | None, *, api_version: int, max_message_bytes: int) -> BatchHeader:
    """Checks the batch of a partition of a Produce request, without its records. Returns its header.

    Raises InvalidRecordError. The order of the checks is Kafka's: shape, version, size, CRC, fields of the header.
    """
    header = _only_batch(records)
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
    """Checks the records of a validated batch in steps. After each step it yields how many records the next step has at
    most. The batch is valid when the iterator has ended.

    Raises InvalidRecordError, which names the invalid records, or KafkaError if they cannot be decoded.
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
    """Makes `now_ms` the timestamp of all records of a batch, in place, with a new CRC. Returns the new header.

    Readers ignore the timestamps of the records then.
    """
    header = parse_header(batch)
    header = header._replace(attributes=header.attributes | ATTR_LOG_APPEND_TIME, max_timestamp=now_ms)
    batch[:HEADER_BYTES] = pack_header(header)
    return renew_crc(batch)


def _only_batch(records: memoryview | None) -> BatchHeader:
    """The header of the batch. Raises InvalidRecordError unless `records` is exactly one batch."""
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
