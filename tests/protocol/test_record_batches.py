"""Record batches compared with those of aiokafka, and the CRC with that of crcmod."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record import MemoryRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crcmod.predefined import mkPredefinedCrcFun
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import (
    HEADER_BYTES,
    Compression,
    check_crc,
    iter_batches,
    parse_header,
    stamp,
)
from protocol.records.builder import NewRecord, build_batch
from protocol.records.crc import crc32c
from protocol.records.record import decode_varint, encode_varint, iter_records

CODECS = list(Compression)
QUICK = settings(max_examples=25, deadline=None, database=None)

maybe_bytes = st.none() | st.binary(max_size=80) | st.sampled_from((b"", b"v" * 200, b"w" * 70_000))
records_strategy = st.lists(
    st.builds(
        NewRecord,
        key=maybe_bytes,
        value=maybe_bytes,
        timestamp_ms=st.integers(0, 2**42),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=12,
)


def as_tuple(record: Any) -> tuple[Any, ...]:
    """One of our records with bytes instead of slices."""
    return (
        record.offset,
        record.timestamp_ms,
        None if record.key is None else bytes(record.key),
        None if record.value is None else bytes(record.value),
        [(key, None if value is None else bytes(value)) for key, value in record.headers],
    )


def expected(records: list[NewRecord], base_offset: int) -> list[tuple[Any, ...]]:
    return [
        (base_offset + index, r.timestamp_ms, r.key, r.value, list(r.headers))
        for index, r in enumerate(records)
    ]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@QUICK
@given(records=records_strategy, base_offset=st.integers(0, 2**40))
def test_aiokafka_reads_what_we_build(codec: Compression, records: list[NewRecord], base_offset: int) -> None:
    batch = build_batch(records, base_offset=base_offset, leader_epoch=3, compression=codec)
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert theirs is not None
    assert theirs.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in theirs]
    assert read == expected(records, base_offset)
    assert [as_tuple(record) for record in iter_records(memoryview(batch))] == expected(records, base_offset)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
@QUICK
@given(records=records_strategy)
def test_we_read_what_aiokafka_builds(codec: Compression, records: list[NewRecord]) -> None:
    builder = DefaultRecordBatchBuilder(2, int(codec), True, 77, 5, 9, 1 << 30)
    for index, r in enumerate(records):
        builder.append(index, r.timestamp_ms, r.key, r.value, list(r.headers))
    batch = memoryview(bytes(builder.build()))

    header = parse_header(batch)
    assert check_crc(batch, 0, header)
    assert header.size_bytes == len(batch)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, 9)
    assert header.count == len(records)
    assert header.last_offset_delta == len(records) - 1
    assert header.max_timestamp == max(r.timestamp_ms for r in records)
    assert [as_tuple(record) for record in iter_records(batch)] == expected(records, 0)


def test_golden_bytes() -> None:
    """Written by hand from the description of the format. The CRC is crcmod's."""
    record = "10 00 00 00 02 6b 02 76 00"
    after_crc = bytes.fromhex(
        "0000 00000000 0000000000000064 0000000000000064 ffffffffffffffff ffff ffffffff 00000001" + record
    )
    crc = mkPredefinedCrcFun("crc-32c")(after_crc)
    batch = bytes.fromhex("0000000000000007 0000003a 00000002 02") + crc.to_bytes(4, "big") + after_crc
    assert build_batch([NewRecord(b"k", b"v", 100)], base_offset=7, leader_epoch=2) == batch


@given(data=st.binary(max_size=300), start=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None, database=None)
def test_crc_agrees_with_crcmod(data: bytes, start: int) -> None:
    oracle = mkPredefinedCrcFun("crc-32c")
    assert crc32c(data) == crc32c(memoryview(bytearray(data))) == oracle(data)
    assert crc32c(data, start) == oracle(data, start)
    assert crc32c(data[100:], crc32c(data[:100])) == oracle(data)


def test_crc_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # The check value of CRC-32/ISCSI in the catalogue of CRCs.


@given(value=st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=200, deadline=None, database=None)
def test_varints_are_encoded_and_decoded(value: int) -> None:
    encoded = encode_varint(value)
    assert len(encoded) <= 10
    assert decode_varint(memoryview(b"x" + encoded), 1) == (value, 1 + len(encoded))


def test_stamping_leaves_the_crc_valid() -> None:
    batch = build_batch([NewRecord(b"k", b"v", 1)] * 3)
    stamped = stamp(memoryview(batch), parse_header(batch), 1234, 9)
    header = parse_header(batch)
    assert stamped == header and type(stamped) is type(header)
    assert (header.base_offset, header.last_offset, header.next_offset) == (1234, 1236, 1237)
    assert header.leader_epoch == 9
    assert check_crc(memoryview(batch), 0, header)


def test_iteration_stops_at_a_partial_batch() -> None:
    batches = [build_batch([NewRecord(None, b"v" * n)], base_offset=n) for n in range(4)]
    log = b"".join(batches)
    starts = [sum(map(len, batches[:n])) for n in range(4)]
    assert [(pos, header.base_offset) for pos, header in iter_batches(log)] == list(
        zip(starts, range(4), strict=True)
    )
    for size in range(len(log)):
        complete = sum(start + len(batch) <= size for start, batch in zip(starts, batches, strict=True))
        assert len(list(iter_batches(memoryview(log)[:size]))) == complete


def test_a_length_below_that_of_an_empty_batch_is_corruption() -> None:
    for length in (-1, 0, HEADER_BYTES - 12 - 1):
        batch = build_batch([NewRecord(b"k", b"v")])
        batch[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(KafkaError) as refusal:
            list(iter_batches(batch))
        assert refusal.value.code == ErrorCode.CORRUPT_MESSAGE


def test_the_last_sequence_wraps() -> None:
    batch = build_batch([NewRecord(b"k", b"v")] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert parse_header(batch).last_sequence == 0


@QUICK
@given(records=records_strategy, data=st.data())
def test_changed_records_are_refused_or_decoded(records: list[NewRecord], data: Any) -> None:
    batch = build_batch(records)
    position = data.draw(st.integers(57, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    try:
        list(iter_records(memoryview(batch)))
    except KafkaError as refusal:
        assert refusal.code == ErrorCode.CORRUPT_MESSAGE
