"""Whatever a broker acknowledges can be read by every client: the table of what is refused, and with which error.

`tests.protocol.defects` holds the batches and Apache Kafka's answers. Where ours differ, the batch would stop a
consumer for good, or Kafka answers UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode, InvalidRecordError, KafkaError
from protocol.records.batch import HEADER_BYTES, BatchHeader, TimestampType, parse_header
from protocol.records.record import iter_records
from protocol.records.validate import (
    NO_LIMIT_MS,
    RecordRules,
    check_records,
    check_records_in_steps,
    fits_one_step,
    set_max_timestamp,
    validate_produce,
)
from tests.protocol.defects import (
    CODECS,
    DEFECTS,
    HOUR_MS,
    INVALID,
    MAX_TIMESTAMPS,
    MISDATED,
    NOW_MS,
    OK,
    STREAM_DEFECTS,
    raw_batch,
    record,
)

RULES = RecordRules(False, TimestampType.CREATE_TIME, NO_LIMIT_MS, HOUR_MS)


def checked(batch: bytearray, rules: RecordRules = RULES) -> tuple[BatchHeader, int]:
    """All checks, at once and in steps. Returns the header and the largest timestamp of the records."""
    view = memoryview(batch)
    header = validate_produce(view, api_version=9, max_message_bytes=1 << 30)
    at_once = found = None
    if fits_one_step(header):
        try:
            found = check_records(view, header, rules, NOW_MS)
        except KafkaError as error:
            at_once = str(error)
    steps = check_records_in_steps(view, header, rules, NOW_MS)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        assert at_once is None and found in (None, end.value)
        return header, end.value
    except KafkaError as error:
        assert at_once in (None, str(error)) and found is None
        raise


def answer(batch: bytearray, rules: RecordRules = RULES) -> tuple[ErrorCode, list[int]]:
    """The error code, and the records that are named."""
    try:
        checked(batch, rules)
    except KafkaError as error:
        assert error.message
        errors = error.record_errors if isinstance(error, InvalidRecordError) else []
        return error.code, [index for index, _ in errors]
    return OK, []


@pytest.mark.parametrize("codec", ["uncompressed", *CODECS])
@pytest.mark.parametrize("name", DEFECTS)
def test_records(name: str, codec: str) -> None:
    defect = DEFECTS[name]
    compression, compress = CODECS.get(codec, (0, bytes))
    batch = raw_batch(compress(defect.payload), defect.count, compression, **defect.header)
    code, named = answer(batch)
    assert code == defect.expected
    if code == OK:
        assert len(list(iter_records(memoryview(batch)))) == defect.count
    else:
        assert bool(named) == (code == MISDATED)


@pytest.mark.parametrize("name", STREAM_DEFECTS)
def test_compressed_streams(name: str) -> None:
    compression, payload, _, ours = STREAM_DEFECTS[name]
    batch = raw_batch(payload, 2, compression)
    assert answer(batch) == (ours, [])
    if ours == OK:
        assert len(list(iter_records(memoryview(batch)))) == 2


@pytest.mark.parametrize("name", [*DEFECTS, *STREAM_DEFECTS])
def test_nothing_is_accepted_that_apache_kafka_refuses_with_a_reason(name: str) -> None:
    """And where it names one, ours is the same."""
    if name in DEFECTS:
        defect = DEFECTS[name]
        theirs, ours = {defect.kafka, defect.kafka_compressed or defect.kafka}, defect.expected
    else:
        theirs, ours = {STREAM_DEFECTS[name][2]}, STREAM_DEFECTS[name][3]
    for code in theirs:
        assert code in (OK, ErrorCode.UNKNOWN_SERVER_ERROR, ours)
    assert ours != OK or theirs == {OK}


@pytest.mark.parametrize("codec", ["uncompressed", *CODECS])
@pytest.mark.parametrize("name", MAX_TIMESTAMPS)
def test_the_largest_timestamp_is_corrected(name: str, codec: str) -> None:
    payload, fields, right_ms = MAX_TIMESTAMPS[name]
    compression, compress = CODECS.get(codec, (0, bytes))
    batch = raw_batch(compress(payload), 2, compression, **fields)
    header, found_ms = checked(batch)
    assert found_ms == right_ms
    corrected = set_max_timestamp(batch, found_ms)
    assert corrected == parse_header(batch) == header._replace(max_timestamp=right_ms, crc=corrected.crc)
    assert checked(batch) == (corrected, right_ms)


@pytest.mark.parametrize("codec", ["uncompressed", *CODECS])
def test_log_append_time_lets_producers_write_any_timestamp(codec: str) -> None:
    rules = RULES._replace(timestamp_type=TimestampType.LOG_APPEND_TIME, before_max_ms=HOUR_MS)
    compression, compress = CODECS.get(codec, (0, bytes))
    for time in (2 * HOUR_MS, -2 * HOUR_MS, 2**63 - 1):
        batch = raw_batch(compress(record(time=time)), 1, compression)
        assert answer(batch, rules) == (OK, [])
        assert answer(batch, rules._replace(timestamp_type=TimestampType.CREATE_TIME)) == (MISDATED, [0])


@pytest.mark.parametrize("codec", ["uncompressed", *CODECS])
def test_every_record_that_breaks_a_rule_is_named(codec: str) -> None:
    payload = b"".join(
        record(delta, key=None if delta % 3 == 0 else b"k", time=2 * HOUR_MS if delta % 2 else 0)
        for delta in range(10)
    )
    compression, compress = CODECS.get(codec, (0, bytes))
    batch = raw_batch(compress(payload), 10, compression)
    assert answer(batch, RULES._replace(is_compacted=True)) == (INVALID, [0, 3, 6, 9])
    assert answer(batch) == (MISDATED, [1, 3, 5, 7, 9])


def test_at_most_ten_thousand_records_are_named() -> None:
    payload = b"".join(record(delta, key=None) for delta in range(20_000))
    batch = raw_batch(CODECS["zstd"][1](payload), 20_000, CODECS["zstd"][0])
    assert answer(batch, RULES._replace(is_compacted=True)) == (INVALID, list(range(10_000)))


@pytest.mark.parametrize("codec", CODECS)
def test_a_small_batch_cannot_have_a_large_count(codec: str) -> None:
    """Nor if nobody looks at its records: the count moves the end of the log."""
    compression, compress = CODECS[codec]
    payload = compress(record())
    for count in (2**31 - 1, 20_000_000):
        with pytest.raises(InvalidRecordError) as refusal:
            validate_produce(
                memoryview(raw_batch(payload, count, compression)), api_version=9, max_message_bytes=1 << 20
            )
        assert refusal.value.code == INVALID
        assert f"{count} records" in str(refusal.value)
    assert len(payload) + HEADER_BYTES < 120
