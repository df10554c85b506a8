"""The rows of the table in client-behaviour.md B.3."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from protocol.errors import ErrorCode, InvalidRecordError, KafkaError
from protocol.records.batch import (
    ATTR_CONTROL,
    ATTR_DELETE_HORIZON,
    ATTR_LOG_APPEND_TIME,
    BatchHeader,
    Compression,
    TimestampType,
    check_crc,
    pack_header,
    parse_header,
    renew_crc,
)
from protocol.records.builder import NewRecord, build_batch
from protocol.records.compression import PIECE_BYTES
from protocol.records.record import iter_records
from protocol.records.validate import (
    NO_LIMIT_MS,
    RecordRules,
    check_records_in_steps,
    fits_one_step,
    set_log_append_time,
    validate_produce,
)
from protocol.records.walk import STEP_BYTES

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
RULES = RecordRules(False, TimestampType.CREATE_TIME, NO_LIMIT_MS, HOUR_MS)
RECORDS = [NewRecord(b"key", b"value", NOW_MS - 5), NewRecord(b"other", None, NOW_MS)]


def validate(
    batch: bytes | bytearray | None, *, api_version: int = 9, max_message_bytes: int = 1_048_588, **rules: Any
) -> BatchHeader:
    """All checks of a broker."""
    records = None if batch is None else memoryview(batch)
    header = validate_produce(records, api_version=api_version, max_message_bytes=max_message_bytes)
    assert records is not None
    list(check_records_in_steps(records, header, RULES._replace(**rules), NOW_MS))
    return header


def refusal(batch: bytes | bytearray | None, **changes: Any) -> tuple[ErrorCode, list[int]]:
    with pytest.raises(KafkaError) as raised:
        validate(batch, **changes)
    assert raised.value.message
    errors = raised.value.record_errors if isinstance(raised.value, InvalidRecordError) else []
    return raised.value.code, [index for index, _ in errors]


def forged(change: Callable[[BatchHeader], BatchHeader], **options: Any) -> bytearray:
    """A batch with a changed header and a valid CRC."""
    batch = build_batch(RECORDS, **options)
    batch[:61] = pack_header(change(parse_header(batch)))
    renew_crc(batch)
    return batch


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("compacted", [False, True])
def test_good_batches_pass(codec: Compression, compacted: bool) -> None:
    batch = build_batch(RECORDS, compression=codec, producer_id=5, producer_epoch=0, base_sequence=0)
    assert validate(batch, is_compacted=compacted) == parse_header(batch)


def test_anything_but_one_whole_batch_is_refused() -> None:
    good = build_batch(RECORDS)
    assert refusal(None) == (ErrorCode.INVALID_RECORD, [])
    assert refusal(b"") == (ErrorCode.INVALID_RECORD, [])
    assert refusal(good[:60]) == (ErrorCode.INVALID_RECORD, [])
    assert refusal(good[:-1]) == (ErrorCode.INVALID_RECORD, [])
    assert refusal(good + good) == (ErrorCode.INVALID_RECORD, [])
    assert refusal(good + b"\0") == (ErrorCode.INVALID_RECORD, [])
    assert refusal(forged(lambda h: h._replace(magic=1))) == (ErrorCode.INVALID_RECORD, [])
    assert refusal(build_batch(RECORDS, base_offset=1)) == (ErrorCode.INVALID_RECORD, [])


def test_every_bit_under_the_crc_is_checked() -> None:
    for position in range(17, len(build_batch(RECORDS))):
        batch = build_batch(RECORDS)
        batch[position] ^= 0x40
        assert refusal(batch) == (ErrorCode.CORRUPT_MESSAGE, [])


def test_the_size_limit_includes_the_twelve_bytes_before_the_length() -> None:
    batch = build_batch(RECORDS)
    validate(batch, max_message_bytes=len(batch))
    assert refusal(batch, max_message_bytes=len(batch) - 1) == (ErrorCode.MESSAGE_TOO_LARGE, [])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda h: h._replace(count=3), id="count above the last offset delta"),
        pytest.param(lambda h: h._replace(count=1), id="count below it"),
        pytest.param(lambda h: h._replace(count=0, last_offset_delta=-1), id="no records"),
        pytest.param(lambda h: h._replace(count=50, last_offset_delta=49), id="more than fit"),
        pytest.param(lambda h: h._replace(attributes=ATTR_CONTROL), id="control batch"),
        pytest.param(lambda h: h._replace(attributes=ATTR_DELETE_HORIZON), id="delete horizon"),
        pytest.param(lambda h: h._replace(producer_id=1, producer_epoch=0), id="producer id, no sequence"),
        pytest.param(lambda h: h._replace(attributes=0x10), id="transactional without a producer id"),
    ],
)
def test_headers_that_contradict_the_batch_are_refused(change: Callable[[BatchHeader], BatchHeader]) -> None:
    assert refusal(forged(change)) == (ErrorCode.INVALID_RECORD, [])


def test_zstd_needs_produce_7() -> None:
    batch = build_batch(RECORDS, compression=Compression.ZSTD)
    assert refusal(batch, api_version=6) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, [])
    validate(batch, api_version=7)
    unknown = forged(lambda h: h._replace(attributes=6))
    assert refusal(unknown) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, [])


@pytest.mark.parametrize("codec", Compression)
def test_a_compacted_topic_names_every_record_without_a_key(codec: Compression) -> None:
    records = [NewRecord(key, b"v", NOW_MS) for key in (None, b"a", None, b"", None)]
    batch = build_batch(records, compression=codec)
    assert refusal(batch, is_compacted=True) == (ErrorCode.INVALID_RECORD, [0, 2, 4])
    validate(batch)


def test_timestamps_must_be_within_the_allowed_range() -> None:
    times = [NOW_MS, NOW_MS + HOUR_MS + 1, -1, NOW_MS - HOUR_MS - 1, NOW_MS + HOUR_MS]
    batch = build_batch([NewRecord(b"k", b"v", ms) for ms in times])
    assert refusal(batch) == (ErrorCode.INVALID_TIMESTAMP, [1])
    assert refusal(batch, before_max_ms=HOUR_MS) == (ErrorCode.INVALID_TIMESTAMP, [1, 3])
    validate(batch, after_max_ms=HOUR_MS + 1, before_max_ms=HOUR_MS + 1)
    validate(batch, timestamp_type=TimestampType.LOG_APPEND_TIME)
    without_time = build_batch([NewRecord(b"k", b"v")])
    validate(without_time, before_max_ms=HOUR_MS)


@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_producers_may_not_set_log_append_time(timestamp_type: TimestampType) -> None:
    batch = forged(lambda h: h._replace(attributes=ATTR_LOG_APPEND_TIME))
    assert refusal(batch, timestamp_type=timestamp_type)[0] == ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_is_written_in_place() -> None:
    batch = build_batch(RECORDS, compression=Compression.GZIP)
    header = set_log_append_time(memoryview(batch), NOW_MS + 77)
    assert header == parse_header(batch)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.compression_id == Compression.GZIP
    assert check_crc(memoryview(batch), 0, header)
    assert [record.timestamp_ms for record in iter_records(memoryview(batch))] == [NOW_MS + 77] * 2


def test_the_header_tells_whether_records_can_break_the_rules_of_the_topic() -> None:
    """A node that does not look at all records (varve.produce.validate.records) looks at these."""

    def is_asked(*times: int, **rules: Any) -> bool:
        header = parse_header(build_batch([NewRecord(b"k", b"v", ms) for ms in times]))
        return RULES._replace(**rules).ask_for_each(header, NOW_MS)

    assert not is_asked(NOW_MS, NOW_MS + HOUR_MS)
    assert is_asked(NOW_MS, NOW_MS, is_compacted=True)
    assert is_asked(NOW_MS, NOW_MS + HOUR_MS + 1)
    assert not is_asked(NOW_MS, NOW_MS + HOUR_MS + 1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert is_asked(NOW_MS, NOW_MS, before_max_ms=HOUR_MS)  # the header does not hold the smallest
    assert not is_asked(NOW_MS, before_max_ms=HOUR_MS)
    assert is_asked(NOW_MS - HOUR_MS - 1, before_max_ms=HOUR_MS)


@pytest.mark.parametrize("codec", Compression)
def test_large_batches_are_checked_in_steps(codec: Compression) -> None:
    def steps(count: int) -> int:
        records = [NewRecord(b"k", random.Random(i).randbytes(1000), NOW_MS) for i in range(count)]
        batch = memoryview(build_batch(records, compression=codec))
        return len(list(check_records_in_steps(batch, parse_header(batch), RULES, NOW_MS)))

    assert steps(1) == 1
    step_bytes = STEP_BYTES if codec is Compression.NONE else min(STEP_BYTES, 2 * PIECE_BYTES)
    for size_bytes in (300_000, 1_000_000):
        assert steps(size_bytes // 1000) >= size_bytes // step_bytes
    small, large = (build_batch([NewRecord(b"k", bytes(size), NOW_MS)]) for size in (1000, STEP_BYTES))
    assert fits_one_step(parse_header(small)) and not fits_one_step(parse_header(large))
