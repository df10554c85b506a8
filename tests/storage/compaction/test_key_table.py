"""The tables in C and in Python: the same answers, the same refusals with the same messages, for whatever comes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import ATTR_DELETE_HORIZON, BatchHeader, Compression, parse_header
from protocol.records.builder import NewRecord, build_batch
from storage.compaction import table_twin
from storage.compaction.key_map import capacity_of
from storage.compaction.key_table import KeyTable, NativeKeyTable, Split
from storage.compaction.native_module import native
from storage.compaction.scan import payload_of
from tests.protocol import defects
from tests.protocol.defects import headers, raw_batch, record

TABLES: list[Callable[[int], KeyTable]] = (
    [table_twin.KeyTable] if native is None else [table_twin.KeyTable, NativeKeyTable]
)
THOROUGH = settings(max_examples=300, deadline=None, database=None)
with_native = pytest.mark.skipif(native is None, reason="the native module was not built")

LONG_KEYS = [b"k" * size for size in (15, 16, 17, 100, 300)]
KEYS = [b"", b"a", b"b", b"c", *LONG_KEYS]
maybe_keys = st.none() | st.sampled_from(KEYS) | st.binary(max_size=2)
values = st.none() | st.sampled_from((b"", b"v", b"w" * 100, b"x" * 9000))
header_lists = st.lists(st.tuples(st.binary(max_size=2), st.none() | st.binary(max_size=2)), max_size=2)
#: Numbers in more bytes than they need, of more than 64 bits, and without an end.
ODD_NUMBERS = [
    b"\x82\x00",
    b"\x82\x80\x80\x00",
    b"\x82" + b"\x80" * 8 + b"\x00",
    b"\x82" + b"\x80" * 8 + b"\x01",
    b"\x80" * 9 + b"\x02",
    b"\xff" * 9 + b"\x7f",
    b"\x80" * 10 + b"\x00",
    b"\xff" * 9,
]
OLD = -(2**31)


@dataclass(frozen=True)
class Batch:
    payload: bytes
    header: BatchHeader


@st.composite
def batches(draw: st.DrawFn, *, is_damaged: bool = True) -> Batch:
    """Offsets have holes, as in what an earlier pass left."""
    deltas = sorted(draw(st.sets(st.integers(0, 200), min_size=1, max_size=5)))
    odd = st.none() if not is_damaged else st.none() | st.none() | st.none() | st.sampled_from(ODD_NUMBERS)
    records = []
    for delta in deltas:
        time = draw(odd)
        offset = draw(odd)
        records.append(
            record(
                delta,
                time=draw(st.integers(OLD, 2**40)) if time is None else time,
                offset=offset,
                key=draw(maybe_keys),
                value=draw(values),
                headers=headers(*draw(header_lists)),
            )
        )
    payload = bytearray(b"".join(records))
    if is_damaged:
        damage(draw, payload)
    last_delta = deltas[-1] + draw(st.sampled_from((0, 0, 3) if not is_damaged else (0, 0, 0, 3, -1)))
    count = len(deltas) + draw(st.sampled_from((0,) if not is_damaged else (0, 0, 0, 0, 1, -1)))
    batch = raw_batch(
        bytes(payload),
        count,
        last_offset_delta=last_delta,
        base_offset=draw(st.integers(0, 300)),
        base_timestamp=draw(st.sampled_from((1000, 0, 2**63 - 1, -(2**63)))),
        attributes=draw(st.sampled_from((0, ATTR_DELETE_HORIZON))),
    )
    return Batch(bytes(payload), parse_header(batch))


def damage(draw: st.DrawFn, payload: bytearray) -> None:
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        position = draw(st.integers(0, len(payload) - 1))
        byte = draw(st.sampled_from((0, 1, 2, 3, 0x7F, 0x80, 0xFF)) | st.integers(0, 255))
        match draw(st.sampled_from(("change", "change", "insert", "cut"))):
            case "change":
                payload[position] = byte
            case "insert":
                payload[position:position] = bytes((byte,)) * draw(st.sampled_from((1, 5, 9)))
            case "cut" if len(payload) > 1:
                del payload[position : position + draw(st.sampled_from((1, 1, 1000)))]
                payload += b"" if payload else b"\0"


def answer_of(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a call says, with a refusal as text."""
    try:
        result = call(*args, **options)
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        return str(error)
    return result._replace(payload=bytes(result.payload)) if isinstance(result, Split) else result


def answers(table: KeyTable, added: list[Batch], asked: list[Batch]) -> list[Any]:
    """All that a table says of these batches."""
    said = [(answer_of(table.add, each.payload, each.header), len(table)) for each in added]
    said += [
        answer_of(table.split, each.payload, each.header, tombstones_go=tombstones_go)
        for each in asked
        for tombstones_go in (False, True)
    ]
    return said + [[table.is_superseded(key, offset) for offset in (-1, 0, 100, 299, 400)] for key in KEYS]


@with_native
@THOROUGH
@given(st.lists(batches(), max_size=6), st.integers(0, 12))
def test_both_tables_say_the_same(stored: list[Batch], capacity: int) -> None:
    twin, other = (answers(table(capacity), stored, stored) for table in TABLES)
    assert twin == other


@with_native
@THOROUGH
@given(st.binary(max_size=60), st.integers(-1, 3), st.integers(-1, 9))
def test_both_tables_say_the_same_of_arbitrary_bytes(noise: bytes, count: int, last_delta: int) -> None:
    batch = Batch(noise, parse_header(raw_batch(noise, count, last_offset_delta=last_delta)))
    twin, other = (answers(table(9), [batch], [batch]) for table in TABLES)
    assert twin == other


@with_native
@pytest.mark.parametrize("name", defects.DEFECTS)
def test_both_tables_say_the_same_of_each_defect(name: str) -> None:
    defect = defects.DEFECTS[name]
    header = parse_header(raw_batch(defect.payload, defect.count, **defect.header))
    batch = Batch(defect.payload, header)
    twin, other = (answers(table(9), [batch], [batch]) for table in TABLES)
    assert twin == other


@pytest.mark.parametrize("table", TABLES)
def test_each_cut_of_a_payload_is_refused_and_leaves_no_trace(table: Callable[[int], KeyTable]) -> None:
    whole = b"".join(record(delta, key=b"key %d" % delta, value=None) for delta in range(3))
    header = parse_header(raw_batch(whole, 3))
    keys = table(9)
    for end in range(len(whole)):
        for call in (keys.add, keys.split):
            options = {"tombstones_go": False} if call == keys.split else {}
            assert isinstance(answer_of(call, whole[:end], header, **options), str)
    assert len(keys) == 0
    assert keys.add(whole, header)


@pytest.mark.parametrize("table", TABLES)
def test_a_null_value_needs_the_count_of_its_headers_behind_it(table: Callable[[int], KeyTable]) -> None:
    """The byte that follows is another record's."""
    payload = record(value=None, headers=b"") + record(1)
    answer = answer_of(table(9).add, payload, parse_header(raw_batch(payload, 2)))
    assert answer.endswith("batch at offset 0, record 0: a key of 1 bytes, a value of -1")


@pytest.mark.parametrize("table", TABLES)
@THOROUGH
@given(st.lists(batches(is_damaged=False), max_size=8), st.integers(0, 12))
def test_a_table_does_what_its_definition_says(
    table: Callable[[int], KeyTable], stored: list[Batch], capacity: int
) -> None:
    """The definition: of each key the offset that was added last, of as many keys as the capacity."""
    keys = table(capacity)
    newest: dict[bytes, int] = {}
    for batch in stored:
        records = defined_records(batch)
        added = {key: offset for _, offset, _, key, _ in records if key is not None}
        assert keys.add(batch.payload, batch.header) is (len(newest | added) <= capacity)
        if len(newest | added) <= capacity:
            newest |= added
        assert len(keys) == len(newest)
    for batch in stored:
        for tombstones_go in (False, True):
            split = keys.split(batch.payload, batch.header, tombstones_go=tombstones_go)
            left = [
                (data, time, is_null)
                for data, offset, time, key, is_null in defined_records(batch)
                if key is not None and newest.get(key, -1) <= offset and not (is_null and tombstones_go)
            ]
            assert bytes(split.payload) == b"".join(data for data, _, _ in left)
            assert split.kept == len(left)
            assert split.kept + split.superseded + split.keyless + split.expired == batch.header.count
            assert (split.payload is batch.payload) is (split.kept == batch.header.count)
            tombstones = [data for data, _, is_null in left if is_null]
            assert (split.tombstones, split.tombstone_bytes) == (len(tombstones), sum(map(len, tombstones)))
            assert split.max_timestamp_ms == max([-(2**63), *(time for _, time, _ in left)])


def defined_records(batch: Batch) -> list[tuple[bytes, int, int, bytes | None, bool]]:
    """Bytes, offset, time, key, whether it is a tombstone: decoded in the plainest way."""
    found = []
    rest = batch.payload
    while rest:
        length, body = number_of(rest)
        data, rest = rest[: len(rest) - len(body) + length], body[length:]
        timestamp_delta, body = number_of(body[1:])
        offset_delta, body = number_of(body)
        key_bytes, body = number_of(body)
        key = None if key_bytes < 0 else body[:key_bytes]
        value_bytes, _ = number_of(body[max(key_bytes, 0) :])
        time = (batch.header.base_timestamp + timestamp_delta + 2**63) % 2**64 - 2**63
        found.append((data, batch.header.base_offset + offset_delta, time, key, value_bytes < 0))
    return found


def number_of(data: bytes) -> tuple[int, bytes]:
    size = next(i for i, byte in enumerate(data) if byte < 0x80) + 1
    zigzag = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data[:size]))
    return (-(zigzag + 1) // 2 if zigzag & 1 else zigzag // 2), data[size:]


# -- many keys


def plain_batch(keys: list[bytes], base_offset: int) -> tuple[bytes, BatchHeader]:
    batch = memoryview(build_batch([NewRecord(key, b"v") for key in keys], base_offset=base_offset))
    header = parse_header(batch)
    return bytes(payload_of(batch, header)), header


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("capacity", [1, 2, 8, 9, 10, 459, 460, 461, 1000, 30_000])
def test_a_table_holds_all_that_it_has_room_for(table: Callable[[int], KeyTable], capacity: int) -> None:
    """It grows several times, is filled to the last slot that it may fill, and refuses the next key."""
    rng = random.Random(capacity)
    keys = table(capacity)
    names = [b"key %d" % number for number in range(capacity)]
    newest: dict[bytes, int] = {}
    offset = 0
    for start in range(0, capacity, 700):
        chosen = names[start : start + 700] + rng.choices(names[: start + 1], k=50)
        assert keys.add(*plain_batch(chosen, offset))
        newest |= {name: offset + index for index, name in enumerate(chosen)}
        offset += len(chosen)
        # What is too much is taken back, also what the table has grown for.
        strangers = [b"stranger %d" % number for number in range(capacity + 1)]
        rng.shuffle(strangers)
        assert not keys.add(*plain_batch(strangers + chosen, offset))
        assert len(keys) == len(newest)
        assert not any(keys.is_superseded(name, -1) for name in strangers[:300])
    assert len(keys) == capacity
    assert not keys.add(*plain_batch([b"one more"], offset))
    assert keys.add(*plain_batch(names, offset))
    assert all(
        keys.is_superseded(name, offset + index - 1) and not keys.is_superseded(name, offset + index)
        for index, name in enumerate(names)
    )


@with_native
@settings(max_examples=60, deadline=None, database=None)
@given(st.integers(0, 2**32), st.integers(1, 700))
def test_both_tables_say_the_same_of_many_batches_near_their_capacity(seed: int, capacity: int) -> None:
    rng = random.Random(seed)
    twin, other = (table(capacity) for table in TABLES)
    offset = 0
    for _ in range(20):
        names = [b"%d" % rng.randrange(2 * capacity) for _ in range(rng.choice((1, 3, 50, capacity)))]
        payload, header = plain_batch(names, offset)
        assert twin.add(payload, header) is other.add(payload, header)
        assert len(twin) == len(other)
        offset = header.next_offset
    for number in range(2 * capacity):
        name = b"%d" % number
        positions = (-1, rng.randrange(offset), rng.randrange(offset), offset)
        assert [twin.is_superseded(name, at) for at in positions] == [
            other.is_superseded(name, at) for at in positions
        ]


@pytest.mark.parametrize("table", TABLES)
def test_a_batch_that_is_too_large_and_malformed_is_malformed(table: Callable[[int], KeyTable]) -> None:
    payload, header = plain_batch([b"a", b"b", b"c"], 0)
    assert isinstance(answer_of(table(1).add, payload + b"\0", header), str)


# -- the rest of the native module


@THOROUGH
@given(batches(is_damaged=False), st.integers(-(2**63), 2**63 - 1))
def test_another_base_leaves_every_time_as_it_was(batch: Batch, shift_ms: int) -> None:
    expected = table_twin.rebased(batch.payload, shift_ms)
    for moved in [expected] if native is None else [expected, native.rebased(batch.payload, shift_ms)]:
        assert moved == expected
        base_timestamp = (batch.header.base_timestamp - shift_ms + 2**63) % 2**64 - 2**63
        after = Batch(moved, batch.header._replace(base_timestamp=base_timestamp))
        assert [each[1:] for each in defined_records(after)] == [each[1:] for each in defined_records(batch)]


@with_native
@pytest.mark.parametrize("payload", [b"\0", b"\2", b"\x7f", b"\3", b"\2\0", b"\4\0\x80", b"\x80" * 11])
def test_another_base_for_what_is_malformed(payload: bytes) -> None:
    assert native is not None
    with pytest.raises(ValueError):
        native.rebased(payload, 5)


@with_native
def test_siphash_is_what_others_compute() -> None:
    """`openssl mac -macopt size:16 SIPHASH` of the bytes 0, 1, 2 ... The first is in the paper's own vectors, too."""
    assert native is not None
    for size, expected in [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (16, "6ee2a4ca67b054bbfd3315bf85230577"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
        (100, "39732dd009be17338297c6358fe5e6d9"),
    ]:
        assert native.siphash(bytes(range(16)), bytes(range(size))).hex() == expected


@with_native
def test_the_native_table_refuses_what_is_no_batch() -> None:
    assert native is not None
    table = native.KeyTable(5)
    payload = record()
    for base_offset in (-1, 2**63 - 1, 2**63 - 2**31):
        with pytest.raises(OverflowError):
            table.add(payload, 1, 0, base_offset)
    with pytest.raises(OverflowError):
        table.add(payload, 2**31, 0, 0)
    with pytest.raises(TypeError):
        table.add("text", 1, 0, 0)
    with pytest.raises(MemoryError):
        native.KeyTable(2**63)
    with pytest.raises(ValueError):
        native.siphash(b"short", b"")
    assert len(table) == 0


@with_native
def test_a_native_table_reads_any_buffer_and_lets_go_of_it() -> None:
    assert native is not None
    data = bytearray(record() + record(1, key=b"other") + record(2))
    table = native.KeyTable(5)
    assert table.add(memoryview(data), 3, 2, 0)
    kept, payload, *_ = table.split(data, 3, 2, 0, 0, False)
    assert (kept, payload) == (2, data[len(record()) :])
    data += b"x"  # BufferError, if it were still held.


def test_a_compressed_batch_of_millions_of_records_with_few_keys_fits() -> None:
    records = [NewRecord(b"k%d" % (index % 3), b"") for index in range(20_000)]
    batch = memoryview(build_batch(records, compression=Compression.ZSTD))
    header = parse_header(batch)
    for table in TABLES:
        keys = table(3)
        assert keys.add(payload_of(batch, header), header)
        assert len(keys) == 3
        assert keys.split(payload_of(batch, header), header, tombstones_go=False).kept == 3
        assert not table(2).add(payload_of(batch, header), header)


def test_the_capacity_of_a_buffer_leaves_the_slots_of_the_native_table_inside_it() -> None:
    """One entry in ten is free: nine entries need ten slots, and the smallest table one more than it holds."""
    for slots in [*range(1, 3000), 5_592_405]:
        capacity = capacity_of(slots * 24)
        assert capacity < capacity + (1 if capacity < 9 else capacity // 9) <= slots
