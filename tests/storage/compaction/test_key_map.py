"""The key map: what is in it, where it ends, and what it does with batches that are too large or corrupt."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import Compression, parse_header, renew_crc
from protocol.records.builder import NewRecord, build_batch, build_filler
from protocol.records.control import Marker, build_marker
from protocol.records.record import encode_varint, iter_records
from storage.aborted_index import AbortedTransaction
from storage.compaction.aborted_data import AbortedData
from storage.compaction.key_map import ENTRY_BYTES, KeyMap, KeyMapTooSmallError, capacity_of
from storage.compaction.scan import payload_of, scan_records
from tests.protocol import defects
from tests.storage.compaction.model import key_buffer
from tests.storage.compaction.test_key_table import TABLES

NONE_ABORTED = AbortedData()
LONG = b"a key of more than sixteen bytes, "


def batch_of(*keys: bytes | None, at: int = 0, compression: Compression = Compression.NONE) -> memoryview:
    records = [NewRecord(key, b"v") for key in keys]
    return memoryview(bytes(build_batch(records, base_offset=at, compression=compression)))


NewMap = Callable[..., KeyMap]


@pytest.fixture(params=TABLES)
def new_map(request: pytest.FixtureRequest) -> NewMap:
    """Makes maps for so many keys, with a table in Python and in C."""

    def make(key_count: int, start_offset: int = 0) -> KeyMap:
        key_map = KeyMap(key_buffer(key_count), start_offset, table=request.param)
        assert key_map.capacity == key_count
        return key_map

    return make


def asked_for(error: KeyMapTooSmallError) -> int:
    """The bytes that the message names."""
    found = re.search(r"enough with (\d+) bytes", str(error))
    assert found is not None
    return int(found[1])


def test_the_capacity_is_nine_tenths_of_the_buffer() -> None:
    assert capacity_of(128 << 20) == 5_033_164
    assert capacity_of(ENTRY_BYTES) == 0


@pytest.mark.parametrize("compression", list(Compression))
def test_a_map_holds_the_newest_offset_of_each_key(new_map: NewMap, compression: Compression) -> None:
    key_map = new_map(10)
    assert key_map.add_batch(batch_of(b"a", LONG, b"a", compression=compression), NONE_ABORTED)
    assert key_map.add_batch(batch_of(LONG, b"b", at=3, compression=compression), NONE_ABORTED)
    assert (len(key_map), key_map.end_offset) == (3, 5)
    for key, newest in [(b"a", 2), (LONG, 3), (b"b", 4)]:
        assert key_map.is_superseded(key, newest - 1)
        assert not key_map.is_superseded(key, newest)
        assert not key_map.is_superseded(key, 5)
    assert not key_map.is_superseded(b"unknown", 0)


def test_keys_around_the_size_of_a_digest_are_told_apart(new_map: NewMap) -> None:
    keys = [b"k" * size for size in range(40)]
    key_map = new_map(100)
    assert key_map.add_batch(batch_of(*keys), NONE_ABORTED)
    assert len(key_map) == len(keys)
    assert all(key_map.is_superseded(key, -1) for key in keys)


def test_records_without_a_key_control_batches_and_aborted_data_add_nothing(new_map: NewMap) -> None:
    aborted = AbortedData([AbortedTransaction(7, 1, 5, 6)])
    key_map = new_map(1)
    assert key_map.add_batch(batch_of(None), aborted)
    data = build_batch(
        [NewRecord(b"a", b"v"), NewRecord(b"b", b"v")],
        base_offset=1,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    assert key_map.add_batch(memoryview(data), aborted)
    marker = build_marker(7, 0, Marker(False, 0), 0)
    marker[7] = 5
    assert key_map.add_batch(memoryview(marker), aborted)
    assert (len(key_map), key_map.end_offset) == (0, 6)


def test_a_batch_that_does_not_fit_whole_is_not_begun(new_map: NewMap) -> None:
    key_map = new_map(3)
    assert key_map.add_batch(batch_of(b"a", b"b"), NONE_ABORTED)
    assert not key_map.add_batch(batch_of(b"c", b"d", at=2), NONE_ABORTED)
    assert (len(key_map), key_map.end_offset) == (2, 2)
    assert not key_map.is_superseded(b"c", 0)


def test_a_batch_whose_keys_are_mostly_known_fits(new_map: NewMap) -> None:
    key_map = new_map(3)
    assert key_map.add_batch(batch_of(b"a", b"b"), NONE_ABORTED)
    assert key_map.add_batch(batch_of(b"a", b"b", b"c", at=2), NONE_ABORTED)
    assert (len(key_map), key_map.end_offset) == (3, 5)


def test_a_batch_with_more_keys_than_the_whole_map_names_the_setting(new_map: NewMap) -> None:
    key_map = new_map(2)
    with pytest.raises(KeyMapTooSmallError, match=r"offset 4 .*log\.cleaner\.dedupe\.buffer\.size") as caught:
        key_map.add_batch(batch_of(b"a", b"b", b"c", at=4), NONE_ABORTED)
    assert capacity_of(asked_for(caught.value)) >= 3


@given(st.integers(1, 2**31 - 1))
@settings(database=None)
def test_what_the_error_asks_for_is_enough(key_count: int) -> None:
    header = parse_header(batch_of(b"a"))._replace(count=key_count)
    assert key_count <= capacity_of(asked_for(KeyMapTooSmallError(header, 0))) <= key_count + 2


def test_a_filler_adds_no_key_and_moves_the_end(new_map: NewMap) -> None:
    """The last batches of the dirty part may be gone already."""
    key_map = new_map(3, start_offset=10)
    assert key_map.add_batch(memoryview(build_filler(10, 20, 0)), NONE_ABORTED)
    assert (key_map.end_offset, len(key_map)) == (20, 0)


def test_a_dirty_part_may_begin_inside_a_batch(new_map: NewMap) -> None:
    """The log start was raised to there."""
    key_map = new_map(3, start_offset=1)
    assert key_map.add_batch(batch_of(b"a", b"b"), NONE_ABORTED)
    assert key_map.end_offset == 2


def test_a_corrupt_batch_leaves_no_trace(new_map: NewMap) -> None:
    key_map = new_map(10)
    damaged = bytearray(batch_of(b"a", b"b"))
    damaged[-2] ^= 1
    with pytest.raises(KafkaError) as caught:
        key_map.add_batch(memoryview(damaged), NONE_ABORTED)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    cut = bytearray(batch_of(b"a", b"b"))
    cut[60] = 3  # The count, with a right CRC.
    renew_crc(cut)
    with pytest.raises(KafkaError):
        key_map.add_batch(memoryview(cut), NONE_ABORTED)
    assert (len(key_map), key_map.end_offset) == (0, 0)


def test_a_batch_is_aborted_only_inside_its_transaction() -> None:
    aborted = AbortedData([AbortedTransaction(7, 30, 40, 41), AbortedTransaction(7, 10, 20, 21)])

    def covers(offset: int, producer_id: int = 7, **changes: bool) -> bool:
        batch = build_batch(
            [NewRecord(b"a", b"v")],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=changes.get("is_transactional", True),
            is_control=changes.get("is_control", False),
        )
        return aborted.covers(parse_header(batch))

    assert [offset for offset in range(50) if covers(offset)] == [*range(10, 21), *range(30, 41)]
    assert not covers(15, producer_id=8)
    assert not covers(15, is_transactional=False), "a committed transaction's, cleared"
    assert not covers(20, is_control=True)


# -- the scan below it


@pytest.mark.parametrize("name", defects.DEFECTS)
def test_the_scan_reads_what_can_be_read_and_refuses_the_rest(name: str) -> None:
    """It says the same as `iter_records`, or raises CORRUPT_MESSAGE. It does not look at headers."""
    defect = defects.DEFECTS[name]
    batch = memoryview(defects.raw_batch(defect.payload, defect.count, **defect.header))
    header = parse_header(batch)
    try:
        scanned = [
            (key, is_null) for *_, key, is_null in scan_records(bytes(payload_of(batch, header)), header)
        ]
    except KafkaError as error:
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert not name.startswith("no defect")
        return
    try:
        expected = [(record.key, record.value is None) for record in iter_records(batch)]
    except KafkaError:
        assert "header" in name or "fields" in name
        return
    assert scanned == expected


fields = st.none() | st.binary(max_size=80) | st.sampled_from((b"", b"v" * 64, b"w" * 8191, b"x" * 70_000))


@given(st.lists(st.tuples(fields, fields, st.integers(-(2**40), 2**40)), min_size=1, max_size=80))
@settings(deadline=None, database=None, max_examples=50)
def test_the_scan_finds_each_record(records: list[tuple[bytes | None, bytes | None, int]]) -> None:
    batch = memoryview(
        build_batch([NewRecord(key, value, time) for key, value, time in records], base_offset=5)
    )
    header = parse_header(batch)
    payload = bytes(payload_of(batch, header))
    position = 0
    for scanned, record in zip(scan_records(payload, header), iter_records(batch), strict=True):
        start, end, offset_delta, timestamp_delta, behind_timestamp, key, is_null = scanned
        assert start == position
        assert 5 + offset_delta == record.offset
        assert header.base_timestamp + timestamp_delta == record.timestamp_ms
        assert payload[start:behind_timestamp].endswith(encode_varint(timestamp_delta))
        assert key == record.key
        assert is_null is (record.value is None)
        position = end
    assert position == len(payload)
