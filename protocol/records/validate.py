"""What a broker checks before it appends what a producer sent (client-behaviour.md, B.3).

The header and the CRC are always checked. Records are walked, and compressed ones decompressed, only where
the answer needs it: the topic is compacted (every record must have a key), or timestamps leave the allowed
window (the answer names the records). See "Non-obvious" in the README for what this leaves unseen.
"""

from __future__ import annotations

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
from protocol.records.compression import DEFAULT_MAX_OUTPUT_BYTES
from protocol.records.record import MIN_RECORD_BYTES, iter_records

NO_LIMIT_MS = 2**63 - 1
"""`message.timestamp.before.max.ms` where nothing is too old."""

_FIRST_VERSION_WITH_ZSTD = 7
_MAX_RECORD_ERRORS = 10_000
"""How many records an answer names at most: a compressed batch can hold millions of empty ones."""
_PRODUCER_ATTRIBUTES = ATTR_COMPRESSION | ATTR_LOG_APPEND_TIME | ATTR_TRANSACTIONAL


def validate_produce(
    records: memoryview | None,
    *,
    api_version: int,
    max_message_bytes: int,
    compacted: bool,
    timestamp_type: TimestampType,
    before_max_ms: int,
    after_max_ms: int,
    now_ms: int,
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
) -> BatchHeader:
    """Checks the records of one partition of a Produce request. Returns the header of their one batch.

    Raises InvalidRecordError, naming the records at fault, or KafkaError from walking them. The checks come
    in the broker's order: shape, version, size, CRC, meaning.
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
    check_timestamps = timestamp_type is TimestampType.CREATE_TIME and not _surely_in_window(
        header, before_max_ms, after_max_ms, now_ms
    )
    if compacted or check_timestamps:
        _check_records(
            records, compacted, check_timestamps, now_ms - before_max_ms, now_ms + after_max_ms,
            max_output_bytes,
        )  # fmt: skip
    return header


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


def _surely_in_window(header: BatchHeader, before_max_ms: int, after_max_ms: int, now_ms: int) -> bool:
    """Whether the header excludes a timestamp outside [now - before, now + after].

    It tells the greatest timestamp and the first, but not the least: a limit on age makes us look.
    """
    if max(header.max_timestamp, header.base_timestamp) > now_ms + after_max_ms:
        return False
    return before_max_ms == NO_LIMIT_MS or (
        header.count == 1 and header.base_timestamp >= now_ms - before_max_ms
    )


def _check_records(
    records: memoryview,
    compacted: bool,
    check_timestamps: bool,
    earliest_ms: int,
    latest_ms: int,
    max_output_bytes: int,
) -> None:
    without_key: list[tuple[int, str | None]] = []
    misdated: list[tuple[int, str | None]] = []
    for index, record in enumerate(iter_records(records, max_output_bytes)):
        if record.offset != index:
            raise _invalid(f"record {index} has offset delta {record.offset}")
        if compacted and record.key is None:
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


def _invalid(message: str) -> InvalidRecordError:
    return InvalidRecordError(ErrorCode.INVALID_RECORD, message)
