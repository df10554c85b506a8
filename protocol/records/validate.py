"""The validation of a produced batch before it is appended (client-behaviour.md, B.3).

`validate_produce` checks the header and the CRC. `check_records` and `check_records_in_steps` walk through the records:
what was acknowledged can be read by every client. Errors are those of Apache Kafka 4.3.1, where its answer is of use
(tests/protocol/test_record_defects.py).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from protocol.errors import ErrorCode, InvalidRecordError, KafkaError
from protocol.records.batch import (
    ATTR_COMPRESSION,
    ATTR_LOG_APPEND_TIME,
    ATTR_TRANSACTIONAL,
    HEADER_BYTES,
    MAGIC,
    MIN_LENGTH,
    NO_PRODUCER_ID,
    BatchHeader,
    Compression,
    TimestampType,
    check_crc,
    pack_header,
    parse_header,
    renew_crc,
)  # fmt: skip
from protocol.records.compression import most_payload_bytes
from protocol.records.record import MIN_RECORD_BYTES
from protocol.records.walk import STEP_BYTES, Walk, walk_in_steps

NO_LIMIT_MS = 2**63 - 1
"""`message.timestamp.before.max.ms` without a limit."""

_FIRST_VERSION_WITH_ZSTD = 7
_INT64_MAX = 2**63 - 1
_CREATE_TIME = TimestampType.CREATE_TIME  # Looking it up takes 40 ns.
_PRODUCER_ATTRIBUTES = ATTR_COMPRESSION | ATTR_LOG_APPEND_TIME | ATTR_TRANSACTIONAL


class RecordRules(NamedTuple):
    """The rules for each record that follow from the settings of a topic."""

    is_compacted: bool
    timestamp_type: TimestampType
    before_max_ms: int
    after_max_ms: int

    def ask_for_each(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether the header does not show that all records follow the rules. They are looked at then, also on a node
        that does not look at all records (`varve.produce.validate.records`)."""
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


def fits_one_step(header: BatchHeader) -> bool:
    """Whether the records are so few, and not compressed, that `check_records` may look at them at once."""
    return header.length <= STEP_BYTES and not header.attributes & ATTR_COMPRESSION


def check_records(batch: memoryview, header: BatchHeader, rules: RecordRules, now_ms: int) -> int:
    """Checks the records of a validated batch that is not compressed. Returns the largest timestamp of them, which the
    header ought to have.

    Raises InvalidRecordError, which names the records that break a rule of the topic.
    """
    walk = _new_walk(header, rules, now_ms)
    try:
        walk.feed(batch[HEADER_BYTES:])
        walk.finish()
    except ValueError as fault:
        raise _invalid(str(fault)) from None
    return _judge(walk, header, rules, now_ms)


def check_records_in_steps(
    batch: memoryview, header: BatchHeader, rules: RecordRules, now_ms: int
) -> Generator[None, None, int]:
    """As `check_records`, for batches of any kind: decompresses them, and yields after each step (`walk_in_steps`).
    Raises also KafkaError MESSAGE_TOO_LARGE, if the payload is too large when it is decompressed."""
    walk = _new_walk(header, rules, now_ms)
    try:
        yield from walk_in_steps(walk, batch, header)
    except KafkaError as error:
        # The CRC is right, so the client has made the batch so. It would send the same again after CORRUPT_MESSAGE.
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        raise _invalid(error.message or "") from None
    return _judge(walk, header, rules, now_ms)


def _new_walk(header: BatchHeader, rules: RecordRules, now_ms: int) -> Walk:
    if rules.timestamp_type is not _CREATE_TIME:
        return Walk(header.count, header.base_timestamp, True, rules.is_compacted)
    latest_ms = now_ms + rules.after_max_ms
    if latest_ms > _INT64_MAX:
        latest_ms = _INT64_MAX
    earliest_ms = now_ms - rules.before_max_ms
    return Walk(header.count, header.base_timestamp, True, rules.is_compacted, earliest_ms, latest_ms)


def _judge(walk: Walk, header: BatchHeader, rules: RecordRules, now_ms: int) -> int:
    """The largest timestamp of a batch whose walk has ended. Raises InvalidRecordError."""
    if walk.keyless:
        message = "a compacted topic does not accept records without a key"
        raise InvalidRecordError(
            ErrorCode.INVALID_RECORD, message, [(index, message) for index, _ in walk.keyless]
        )
    if walk.misdated:
        allowed = f"[{now_ms - rules.before_max_ms}, {now_ms + rules.after_max_ms}]"
        raise InvalidRecordError(
            ErrorCode.INVALID_TIMESTAMP,
            "timestamps are outside the allowed range",
            [
                (index, f"timestamp {timestamp_ms} is outside {allowed}")
                for index, timestamp_ms in walk.misdated
            ],
        )
    return walk.max_timestamp_ms


def set_max_timestamp(batch: bytearray | memoryview, max_timestamp_ms: int) -> BatchHeader:
    """Writes the largest timestamp of the records into the header, in place, with a new CRC. Returns the new header.

    Look-ups by time and retention go by the header. Apache Kafka corrects it, too.
    """
    batch[:HEADER_BYTES] = pack_header(parse_header(batch)._replace(max_timestamp=max_timestamp_ms))
    return renew_crc(batch)


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
    payload_bytes = size_bytes - HEADER_BYTES
    if attributes & ATTR_COMPRESSION:
        payload_bytes = most_payload_bytes(header.compression_id, payload_bytes)
    if count * MIN_RECORD_BYTES > payload_bytes:
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
