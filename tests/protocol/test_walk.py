"""The walk through records, in C and in Python: the same verdict, findings and messages for whatever comes, in whatever
pieces."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import Compression, parse_header
from protocol.records.builder import NewRecord, build_batch
from protocol.records.native_module import native
from protocol.records.record import encode_varint, iter_records
from protocol.records.walk import STEP_BYTES, Walk, walk_in_steps
from protocol.records.walk_twin import MAX_NAMED
from protocol.records.walk_twin import Walk as Twin
from tests.protocol.defects import headers, raw_batch, record, zstd

WALKS = [Twin] if native is None else [Twin, native.Walk]
THOROUGH = settings(max_examples=400, deadline=None, database=None)
INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class Findings:
    fault: str | None
    count: int
    max_timestamp: tuple[int, int]
    found: tuple[int, int] | None
    keyless: list[tuple[int, int]]
    misdated: list[tuple[int, int]]


def walked(kind: type[Walk], pieces: list[bytes], count: int, base_ms: int, **options: Any) -> Findings:
    walk = kind(count, base_ms, **options)
    fault = None
    try:
        for piece in pieces:
            walk.feed(piece)
        walk.finish()
    except ValueError as error:
        fault = str(error)
        with pytest.raises(ValueError) as again:  # A fault stays.
            walk.finish()
        assert str(again.value) == fault
    if fault is not None:
        return Findings(fault, 0, (0, 0), None, [], [])  # They may have stopped at different records.
    found = walk.found
    max_timestamp = (walk.max_timestamp_ms, walk.max_timestamp_delta)
    return Findings(None, walk.count, max_timestamp, found, walk.keyless, walk.misdated)


maybe_bytes = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=140)
header_lists = st.lists(st.tuples(st.binary(max_size=3), maybe_bytes), max_size=2)


@st.composite
def payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    """Good and bad payloads, and how many records they hold, or something near it."""
    count = draw(st.integers(1, 4))
    good = b"".join(
        record(
            delta,
            time=draw(st.integers(-100, 10_000)),
            key=draw(maybe_bytes),
            value=draw(maybe_bytes),
            headers=headers(*draw(header_lists)),
        )
        for delta in range(count)
    )
    changed = bytearray(good)
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        position = draw(st.integers(0, len(changed) - 1))
        byte = draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
        kind = draw(st.sampled_from(("change", "change", "insert", "delete")))
        if kind == "change":
            changed[position] = byte
        elif kind == "insert":
            changed[position:position] = bytes((byte,)) * draw(st.sampled_from((1, 5, 9)))
        elif len(changed) > 1:
            del changed[position]
    return bytes(changed), max(0, count + draw(st.sampled_from((0, 0, 0, -1, 1))))


options = st.fixed_dictionaries(
    {},
    optional={
        "is_consecutive": st.booleans(),
        "needs_keys": st.booleans(),
        "earliest_ms": st.integers(-50, 2000),
        "latest_ms": st.integers(1000, 5000),
        "from_delta": st.integers(-1, 4),
        "wanted_ms": st.integers(-50, 5000),
    },
)


@THOROUGH
@given(
    payload=payloads(),
    base_ms=st.sampled_from((0, 1000, INT64_MAX, -(2**63))),
    options=options,
    cuts=st.lists(st.floats(0, 1), max_size=6).map(sorted),
)
def test_all_walks_agree_however_the_payload_is_cut(
    payload: tuple[bytes, int], base_ms: int, options: dict[str, Any], cuts: list[float]
) -> None:
    data, count = payload
    expected = walked(Twin, [data], count, base_ms, **options)
    ends = [int(cut * len(data)) for cut in cuts]
    some = [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]
    single = [data[position : position + 1] for position in range(len(data))]
    for kind in WALKS:
        for pieces in ([data], some, single):
            assert walked(kind, pieces, count, base_ms, **options) == expected


@THOROUGH
@given(noise=st.binary(max_size=40), count=st.integers(0, 3))
def test_all_walks_agree_on_arbitrary_bytes(noise: bytes, count: int) -> None:
    expected = walked(Twin, [noise], count, 0)
    for kind in WALKS:
        assert walked(kind, [noise], count, 0) == expected


@pytest.mark.parametrize("kind", WALKS)
@THOROUGH
@given(payload=payloads())
def test_what_a_walk_accepts_is_what_decoding_accepts_with_consecutive_offsets(
    kind: type[Walk], payload: tuple[bytes, int]
) -> None:
    data, count = payload
    findings = walked(kind, [data], count, 1000)
    batch = raw_batch(data, count, base_timestamp=1000)
    try:
        records = list(iter_records(memoryview(batch)))
    except KafkaError:
        records = None
    if findings.fault is None:
        assert records is not None
        assert [each.offset for each in records] == list(range(count))
        assert findings.max_timestamp[0] == max([-1, *(each.timestamp_ms for each in records)])
    elif records is not None:
        # Decoding passes over offsets, and over numbers that are too long.
        assert "offset delta" in findings.fault or "a number of more than" in findings.fault


@pytest.mark.parametrize("kind", WALKS)
def test_findings(kind: type[Walk]) -> None:
    data = b"".join(
        record(delta, time=time, key=key)
        for delta, time, key in [(2, 50, b"k"), (3, -1000, None), (7, 90, b""), (9, 90, None), (11, 20, b"k")]
    )
    whole = walked(kind, [data], 5, 1000, is_consecutive=False, needs_keys=True, wanted_ms=1060)
    assert whole == Findings(None, 5, (1090, 7), (7, 1090), [(1, 0), (3, 1090)], [])
    part = walked(
        kind, [data], 5, 1000, is_consecutive=False, from_delta=9, earliest_ms=5, latest_ms=1060, wanted_ms=0
    )
    assert part == Findings(None, 5, (1090, 9), (9, 1090), [], [(1, 0), (2, 1090), (3, 1090)])


@pytest.mark.parametrize("kind", WALKS)
def test_the_timestamp_minus_one_is_none(kind: type[Walk]) -> None:
    findings = walked(kind, [record(time=-1)], 1, 0, earliest_ms=10, latest_ms=20)
    assert findings == Findings(None, 1, (-1, -1), None, [], [])


@pytest.mark.parametrize("kind", WALKS)
def test_so_many_records_are_named_and_no_more(kind: type[Walk]) -> None:
    data = b"".join(record(delta, key=None) for delta in range(MAX_NAMED + 5))
    findings = walked(kind, [data], MAX_NAMED + 5, 0, needs_keys=True, latest_ms=-5)
    assert findings.count == MAX_NAMED + 5
    assert findings.keyless == findings.misdated == [(index, 0) for index in range(MAX_NAMED)]


@pytest.mark.parametrize("kind", WALKS)
def test_messages_name_the_record(kind: type[Walk]) -> None:
    good = record()
    for data, count, message in [
        (good + record(1, length=-5), 2, "record 1: a length of -5"),
        (good + record(2), 2, "record 1: its offset delta is 2"),
        (good + record(1, key_bytes=20), 2, "record 1: a key of 20 bytes"),
        (good + record(1, extra=b"x"), 2, "record 1: its fields are shorter than its length"),
        (good + record(1, length=7), 2, "record 1: its fields go beyond its length"),
        (good + record(1)[:-1], 2, "the payload ends within record 1"),
        (good, 2, "1 records instead of 2"),
        (good + b"\0", 1, "1 records, and bytes behind them"),
    ]:
        assert walked(kind, [data], count, 0).fault == message


@pytest.mark.parametrize("kind", WALKS)
def test_a_walk_reads_any_buffer(kind: type[Walk]) -> None:
    data = record() + record(1)
    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(b"x" + data))[1:]):
        walk = kind(2, 0)
        walk.feed(buffer)
        walk.finish()
        assert walk.count == 2
    with pytest.raises(TypeError):
        kind(2, 0).feed(None)  # type: ignore[arg-type]


def test_a_walk_goes_in_steps_and_ends_at_the_first_fault() -> None:
    """A batch that decompresses to 60 MB of zeros has no record in it: that shows in the first step."""
    header = parse_header(batch := raw_batch(zstd(bytes(60_000_000)), 1000, Compression.ZSTD))
    tracemalloc.start()
    try:
        with pytest.raises(KafkaError) as refusal:
            next(walk_in_steps(Walk(1000, 0), memoryview(batch), header))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert refusal.value.code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("kind", WALKS)
def test_a_large_value_is_walked_through_in_steps(kind: type[Walk]) -> None:
    batch = raw_batch(zstd(record(value=bytes(8_000_000))), 1, Compression.ZSTD)
    walk = kind(1, 0)
    steps = list(walk_in_steps(walk, memoryview(batch), parse_header(batch)))
    assert walk.count == 1
    assert len(steps) >= 8_000_000 // (128 * 1024)


def test_steps_are_short_for_uncompressed_batches_too() -> None:
    batch = build_batch([NewRecord(b"k", b"", i) for i in range(100_000)])
    walk = Walk(100_000, 0)
    steps = list(walk_in_steps(walk, memoryview(batch), parse_header(batch)))
    assert len(steps) == (len(batch) - 61 - 1) // STEP_BYTES + 1
    assert walk.count == 100_000


@pytest.mark.parametrize("kind", WALKS)
def test_a_record_with_many_headers_in_many_pieces_is_looked_at_once(kind: type[Walk]) -> None:
    """300,000 headers in pieces of 1 KB: it would take minutes to begin anew with each piece."""
    many = headers(*[(b"", b"")] * 300_000)
    data = record(headers=many)
    pieces = [data[start : start + 1000] for start in range(0, len(data), 1000)]
    assert walked(kind, pieces, 1, 0).fault is None


def test_random_batches_of_all_codecs_are_accepted() -> None:
    rng = random.Random(7)
    for codec in Compression:
        for count in (1, 50, 3000):
            records = [
                NewRecord(rng.randbytes(8), rng.randbytes(rng.randrange(300)), 1000 + rng.randrange(99))
                for _ in range(count)
            ]
            batch = build_batch(records, compression=codec)
            walk = Walk(count, records[0].timestamp_ms)
            list(walk_in_steps(walk, memoryview(batch), parse_header(batch)))
            assert walk.count == count
            assert walk.max_timestamp_ms == max(each.timestamp_ms for each in records)


def test_numbers_of_every_length() -> None:
    for kind in WALKS:
        for bits in range(32):
            for number in (1 << bits, (1 << bits) - 1, -(1 << bits)):
                if -(2**31) <= number < 2**31:
                    data = record(number, time=number * 2**31)
                    findings = walked(kind, [data], 1, 0, is_consecutive=False)
                    timestamp_ms = max(number * 2**31, -1)
                    assert findings.max_timestamp[0] == timestamp_ms
        assert walked(kind, [record(offset=encode_varint(2**31))], 1, 0).fault is not None
