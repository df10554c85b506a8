"""The digest of a view: equal on replicas that were compacted differently, and different after any change of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records.batch import ATTR_TRANSACTIONAL, Compression, parse_header, renew_crc, stamp
from protocol.records.builder import NewRecord, build_batch
from protocol.records.control import Marker, build_marker
from storage.compaction import table_twin
from storage.compaction.aborted_data import AbortedData
from storage.compaction.key_table import new_table
from storage.compaction.view_digest import (
    KeyShare,
    OffsetRange,
    RangeDigest,
    ViewRound,
    add_batch,
    is_rewritten,
)
from tests.storage.compaction.model import History, Seen, aborted_in
from tests.storage.compaction.test_compaction_random import THOROUGH, apply, start, steps

EVERYTHING = 1 << 40


def digest_of(
    batches: Sequence[bytes],
    view: OffsetRange,
    *,
    key_count: int = 1000,
    focus: OffsetRange | None = None,
    table: Any = new_table,
) -> RangeDigest:
    """In as many rounds as a table for so many keys takes."""
    digest = RangeDigest(focus or view)
    aborted = AbortedData(aborted_in(batches))
    shares = [KeyShare(0, 1, b"salt")]
    overlapping = [
        (memoryview(batch), header)
        for batch in batches
        if (header := parse_header(batch)).base_offset < view.end and header.next_offset > view.start
    ]
    while shares:
        share = shares.pop()
        one = ViewRound(view, focus or view, aborted, share, table(key_count))
        if all(one.add_keys(*each) for each in overlapping):
            for each in overlapping:
                one.add_records(*each)
            digest.add_all(one.digest)
        else:
            shares += share.halves()
    return digest


def written_view(history: History, view: OffsetRange) -> list[Seen]:
    """By definition."""
    newest: dict[bytes, Seen] = {}
    for written in history.written:
        record = written.record
        if written.is_committed and record.key is not None and view.start <= record.offset < view.end:
            newest[record.key] = record
    return [record for record in newest.values() if record.value is not None]


def as_batches(records: Iterable[Seen]) -> list[bytes]:
    """Each in a batch of its own."""
    return [
        bytes(
            build_batch(
                [NewRecord(seen.key, seen.value, seen.timestamp_ms, seen.headers)],
                base_offset=seen.offset,
                leader_epoch=3,
                compression=Compression.GZIP,
            )
        )
        for seen in sorted(records)
    ]


@THOROUGH
@given(steps, st.integers(0, 30), st.integers(1, 6))
def test_replicas_that_were_compacted_differently_have_the_digest_of_what_was_written(
    steps: list[tuple[Any, ...]], start_offset: int, key_count: int
) -> None:
    history = start()
    for step in steps:
        apply(history, step)
    end = history.last_stable_offset
    assert all(replica.reached <= end for replica in history.replicas)
    view = OffsetRange(min(start_offset, end), end)
    expected = digest_of(as_batches(written_view(history, view)), view)
    assert expected.count == len(written_view(history, view))
    for replica in history.replicas:
        assert digest_of(replica.stored, view) == expected
        assert digest_of(replica.stored, view, key_count=key_count) == expected
        assert digest_of(replica.stored, view, table=table_twin.KeyTable) == expected


@THOROUGH
@given(steps, st.data())
def test_a_part_of_the_view_has_the_same_records_in_a_digest_of_its_own(
    steps: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    history = start()
    for step in steps:
        apply(history, step)
    view = OffsetRange(0, history.last_stable_offset)
    first = data.draw(st.integers(0, view.end))
    focus = OffsetRange(first, data.draw(st.integers(first, view.end)))
    for replica in history.replicas:
        whole, part = digest_of(replica.stored, view), digest_of(replica.stored, view, focus=focus)
        # So short a view has a part for each offset.
        assert part.counts == whole.counts[focus.start : focus.end]
        assert part.sums == whole.sums[focus.start : focus.end]


# -- any change is seen

RECORDS = [
    NewRecord(b"a", b"first", 10),
    NewRecord(b"b", b"value", 20, [("name", b"of a header")]),
    NewRecord(b"a", b"second", 30),
    NewRecord(b"c", b"deleted", 40),
    NewRecord(b"c", None, 50),
    NewRecord(b"d", b"", 60),
]
VIEW = OffsetRange(0, 20)


def a_log(records: Sequence[NewRecord | None] = RECORDS, *, is_aborted: bool = True) -> list[bytes]:
    """One record a batch; None: it is not there. Then one of a transaction, and its marker."""
    batches = [
        bytes(build_batch([record], base_offset=offset, leader_epoch=3))
        for offset, record in enumerate(records)
        if record is not None
    ]
    end = len(records)
    batches.append(
        bytes(
            build_batch(
                [NewRecord(b"e", b"in a transaction", 70)],
                base_offset=end,
                leader_epoch=3,
                producer_id=7,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=True,
            )
        )
    )
    marker = build_marker(7, 0, Marker(not is_aborted, 0), 80, leader_epoch=3)
    stamp(marker, parse_header(marker), end + 1, 3)
    return [*batches, bytes(marker)]


def changed(at: int, **fields: Any) -> list[bytes]:
    return a_log([record._replace(**fields) if at == n else record for n, record in enumerate(RECORDS)])


@pytest.mark.parametrize(
    ("batches", "part"),
    [
        (changed(1, value=b"valuf"), 1),
        (changed(1, value=b"valu"), 1),
        (changed(5, value=b"\0"), 5),
        (changed(5, value=None), 5),
        (changed(5, key=b"dd"), 5),
        # One byte less of the key, one more of the value.
        (changed(1, key=b"", value=b"bvalue"), 1),
        (changed(1, headers=[("name", b"of another")]), 1),
        (changed(1, headers=[("eman", b"of a header")]), 1),
        (changed(1, headers=[]), 1),
        (changed(1, timestamp_ms=21), 1),
        # A record that is lost, one that is not superseded any more, and a deletion that did not happen.
        (a_log([*RECORDS[:5], None]), 5),
        (a_log([*RECORDS[:2], None, *RECORDS[3:]]), 0),
        (a_log([*RECORDS[:4], None, RECORDS[5]]), 3),
        # An aborted record that is served.
        (a_log(is_aborted=False), 6),
    ],
)
def test_a_change_of_one_record_is_seen_in_its_place(batches: list[bytes], part: int) -> None:
    right, wrong = digest_of(a_log(), VIEW), digest_of(batches, VIEW)
    assert right.first_difference(wrong) == wrong.first_difference(right) == part
    assert right != wrong


@pytest.mark.parametrize(
    "batches",
    [
        # Superseded by the third one; superseded, and deleted with its tombstone; aborted.
        a_log([None, *RECORDS[1:]]),
        a_log([*RECORDS[:3], None, None, RECORDS[5]]),
        [batch for batch in a_log() if parse_header(batch).base_offset != 6],
    ],
)
def test_what_compaction_may_remove_makes_no_difference(batches: list[bytes]) -> None:
    assert digest_of(batches, VIEW).first_difference(digest_of(a_log(), VIEW)) is None


def test_a_long_range_has_parts_of_some_offsets() -> None:
    whole = OffsetRange(5, 5 + 1024 * 10 + 5)
    assert (whole.part_offsets, whole.part_count) == (11, 932)
    assert whole.part(0) == (5, 16)
    assert whole.part(931) == (5 + 931 * 11, whole.end)
    digest = RangeDigest(whole)
    for offset in (4, 5, 16, whole.end - 1, whole.end):
        digest.add(offset, b"\1" * 16)
    assert [at for at, count in enumerate(digest.counts) if count] == [0, 1, 931]


def test_a_digest_is_the_same_behind_the_wire() -> None:
    digest = digest_of(a_log(), VIEW)
    assert RangeDigest.decode(VIEW, digest.encode()) == digest
    with pytest.raises(ValueError, match="for 20 parts"):
        RangeDigest.decode(VIEW, digest.encode()[:-1])
    assert RangeDigest.decode(OffsetRange(4, 4), b"").count == 0


def test_a_share_of_the_keys_is_halved() -> None:
    keys = [b"%d" % number for number in range(200)]
    share = KeyShare(0, 1, b"salt")
    parts = [quarter for half in share.halves() for quarter in half.halves()]
    held = [[key for key in keys if part.holds(key)] for part in parts]
    assert sorted(key for part in held for key in part) == sorted(keys)
    assert all(20 < len(part) < 80 for part in held)


# -- logs without compaction


def whole_digest(batches: Iterable[bytes], view: OffsetRange = VIEW) -> RangeDigest:
    digest = RangeDigest(view)
    for batch in batches:
        add_batch(digest, memoryview(batch), parse_header(batch))
    return digest


def test_every_batch_counts_where_nothing_is_compacted() -> None:
    digest = whole_digest(a_log())
    assert (digest.count, digest.is_rewritten) == (8, False)
    for other, part in [
        (changed(0, value=b"f"), 0),
        (a_log([*RECORDS[:3], RECORDS[3]._replace(timestamp_ms=41), *RECORDS[4:]]), 3),
        (a_log(is_aborted=False), 7),
        (a_log([*RECORDS[:5], None]), 5),
    ]:
        assert digest.first_difference(whole_digest(other)) == part


def test_a_batch_across_an_end_of_the_range_counts_in_it() -> None:
    batch = bytes(build_batch(RECORDS, base_offset=10, leader_epoch=3))
    assert whole_digest([batch], OffsetRange(12, 20)).counts == [1] + [0] * 7
    assert whole_digest([batch], OffsetRange(0, 12)).counts == [0] * 10 + [1, 0]
    assert whole_digest([batch], OffsetRange(0, 10)).count == 0
    assert whole_digest([batch], OffsetRange(16, 20)).count == 0


def test_a_transactional_bit_that_was_cleared_makes_no_difference() -> None:
    batches = a_log(is_aborted=False)
    cleared = bytearray(batches[6])
    assert cleared[22] & ATTR_TRANSACTIONAL
    cleared[22] &= ~ATTR_TRANSACTIONAL
    renew_crc(cleared)
    assert whole_digest([*batches[:6], bytes(cleared), batches[7]]) == whole_digest(batches)


@THOROUGH
@given(steps)
def test_what_was_rewritten_is_known_by_its_batches(steps: list[tuple[Any, ...]]) -> None:
    """Batches that show no trace of a pass have the same digests as before it."""
    history = start()
    for step in steps:
        if step[0] != "pass":
            apply(history, step)
    view = OffsetRange(0, EVERYTHING)
    compacted, original = history.replicas
    before = {parse_header(batch).base_offset: batch for batch in original.stored}
    compacted.compact(1000)
    for batch in compacted.stored:
        header = parse_header(batch)
        if not is_rewritten(header):
            same = whole_digest([before[header.base_offset]], view)
            assert whole_digest([batch], view) == same
