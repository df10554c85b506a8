"""Each invariant of compaction accepts what the real filter leaves of a log, and bites when somebody changes it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from protocol.records.batch import (
    ATTR_TRANSACTIONAL,
    HEADER_BYTES,
    BatchHeader,
    pack_header,
    parse_header,
    renew_crc,
)
from protocol.records.builder import NewRecord, build_batch, build_filler
from raft.types import ReplicaId
from storage.journal_records import Bounds
from storage.log_types import GroupKey
from tests.simulation.test_invariants import bites
from tests.simulator.compaction_oracle import CompactionOracle
from tests.simulator.invariants.bounds_never_fall import BoundsNeverFall
from tests.simulator.invariants.expired_is_safe import ExpiredIsSafe
from tests.simulator.invariants.no_duplicate import NoDuplicate
from tests.simulator.invariants.nothing_missing import check_readers_of_committed, check_whole
from tests.simulator.invariants.one_record_per_key import check_clean
from tests.simulator.invariants.one_value_per_offset import OneValuePerOffset, content_digest, value_of
from tests.simulator.invariants.same_view import check_view
from tests.simulator.invariants.stable_without_open import check_stable
from tests.simulator.written import Stored, Written, counted
from tests.storage.compaction.model import FOREVER, History, Replica, aborted_in

KEY = GroupKey(UUID(int=1), 0)
IDENTITY = ReplicaId(1, b"d" * 16, 0)
UNSET = Bounds(KEY)
NO_BOUNDS = {"max_tombstone_remove_offset": FOREVER, "max_transaction_remove_offset": FOREVER}


def stored(batches: Sequence[bytes | bytearray]) -> list[Stored]:
    return [(parse_header(batch), memoryview(batch)) for batch in batches]


class World:
    """What was written, and two replicas of it that compact. Their bounds are what both have reached."""

    def __init__(self) -> None:
        self.history = History()
        self.a, self.b = self.history.replica(), self.history.replica()
        self.oracle = CompactionOracle({})
        self.oracle.begins(KEY)
        self.oracle.bounds_now = lambda key: [UNSET._replace(mtro=self.history.mtro, mxro=self.history.mxro)]
        #: The log as it was written, as far as it was noted.
        self.originals: list[bytes] = []

    @property
    def written(self) -> Written:
        return self.oracle.written(KEY)

    def note(self) -> None:
        """All is committed, and was not compacted yet."""
        end_offset = self.written.end_offset
        new = [batch for batch in self.a.stored if parse_header(batch).base_offset >= end_offset]
        self.originals += new
        for header, batch in stored(new):
            self.written.add(header, batch)

    def turn(self, replica: Replica, **changes: int) -> None:
        """Everything is sealed, and later this replica compacts it."""
        self.note()
        self.history.now_ms += 2000
        self.history.roll()
        replica.compact(producers_last_offsets=frozenset(), **changes)

    def judge(self, batches: Sequence[bytes | bytearray]) -> None:
        for header, batch in stored(batches):
            self.oracle.check(KEY, header, batch, content_digest(batch))

    def judge_whole(self, replica: Replica) -> None:
        """As the oracle walks a log."""
        self.judge(replica.stored)
        batches, end = stored(replica.stored), self.history.end_offset
        check_whole(KEY, batches, 0, end)
        check_clean(KEY, batches, 0, replica.cleaned_end, replica.transaction_free_end)
        check_readers_of_committed(KEY, self.written, batches, aborted_in(replica.batches))
        check_view(KEY, self.written, counted(self.written, batches, 0), 0, "a replica")
        self.oracle.expired.check(KEY, self.written, batches, 0, end)


@pytest.fixture
def world() -> World:
    return World()


def some_history(world: World) -> None:
    """Values, deletions, transactions of both ends, a producer with sequences."""
    history = world.history
    history.write((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), pid=7)
    history.write((b"a", None), (b"b", b"2"), pid=7)
    history.write((b"c", b"aborted"), pid=8, is_transactional=True)
    history.end(8, is_commit=False)
    history.write((b"c", b"2"), (b"d", b"1"), pid=8, is_transactional=True)
    history.end(8, is_commit=True)
    history.write((b"e", b"1"))


def test_what_compaction_does_breaks_nothing(world: World) -> None:
    some_history(world)
    for number in range(8):
        world.history.write((b"more %d" % (number % 3), b"%d" % number))
        world.turn(world.a if number % 3 else world.b)
        world.judge_whole(world.a)
        world.judge_whole(world.b)
    assert not any(header.is_control for header, _ in stored(world.a.batches)), "all markers could go"
    assert not any(record.is_tombstone for record in counted(world.written, stored(world.a.batches), 0))
    assert world.oracle.is_rewritten(KEY)


def test_a_group_that_is_never_compacted_is_compared_bit_by_bit(world: World) -> None:
    some_history(world)
    world.turn(world.a)
    values = OneValuePerOffset(CompactionOracle({}))
    for header, batch in stored(world.originals):
        values.seen(KEY, header, batch, value_of(header, batch))
    with bites("one_value_per_offset"):
        for header, batch in stored(world.a.stored):
            values.check(KEY, header, batch)


# -- 8: survivors ----------------------------------------------------------------------------------------------


def changed(batch: bytes, **fields: int) -> bytearray:
    """With other fields in its header, and a right CRC."""
    other = bytearray(batch)
    other[:HEADER_BYTES] = pack_header(parse_header(batch)._replace(**fields))
    renew_crc(other)
    return other


@pytest.mark.parametrize(
    "fields",
    [
        {"leader_epoch": 4},
        {"producer_id": 8},
        {"producer_epoch": 1},
        {"base_sequence": 1},
        {"base_timestamp": 9_999},
        {"base_offset": 1},
        {"last_offset_delta": 2},
    ],
    ids=str,
)
def test_a_survivor_that_is_not_as_it_was(world: World, fields: dict[str, int]) -> None:
    world.history.write((b"a", b"1"), (b"b", b"1"), pid=7)
    world.history.write((b"z", b"1"))
    world.note()
    with bites("survivors_unchanged"):
        world.judge([changed(world.originals[0], **fields)])


def test_a_value_that_was_changed(world: World) -> None:
    world.history.write((b"a", b"1"))
    world.note()
    with bites("survivors_unchanged"):
        world.judge([build_batch([NewRecord(b"a", b"2", world.history.now_ms)], leader_epoch=3)])


def test_a_crc_that_is_wrong(world: World) -> None:
    world.history.write((b"a", b"1"))
    world.note()
    batch = bytearray(world.originals[0])
    batch[-1] ^= 1
    with bites("survivors_unchanged"):
        world.judge([batch])


def test_a_filler_that_begins_within_a_batch(world: World) -> None:
    world.history.write((b"a", b"1"), (b"a", b"2"))
    world.history.write((b"a", b"3"))
    world.note()
    world.judge([build_filler(0, 2, 3)])
    with bites("survivors_unchanged"):
        world.judge([build_filler(1, 2, 3)])


@pytest.mark.parametrize("is_commit", [True, False, None])
def test_the_transactional_bit_goes_from_committed_data_only(world: World, is_commit: bool | None) -> None:
    history = world.history
    history.write((b"a", b"1"), pid=8, is_transactional=True)
    if is_commit is not None:
        history.end(8, is_commit=is_commit)
    world.note()
    cleared = changed(
        world.originals[0], attributes=parse_header(world.originals[0]).attributes & ~ATTR_TRANSACTIONAL
    )
    if is_commit:
        world.judge([cleared])
    else:
        with bites("survivors_unchanged"):
            world.judge([cleared])


def test_a_remnant_that_says_the_opposite(world: World) -> None:
    some_history(world)
    for _ in range(4):
        world.history.write((b"more", b"v"))
        world.turn(world.a)
        world.turn(world.b)
        remnants = [b for b in world.a.stored if (h := parse_header(b)).is_control and not h.count]
        if remnants:
            break
    world.judge(remnants)
    with bites("survivors_unchanged"):
        world.judge([changed(remnants[0], attributes=parse_header(remnants[0]).attributes ^ 0x300)])


# -- 2: nothing missing ----------------------------------------------------------------------------------------


def filler_over(batch: bytes | BatchHeader) -> bytearray:
    header = batch if isinstance(batch, BatchHeader) else parse_header(batch)
    return build_filler(header.base_offset, header.next_offset, header.leader_epoch)


def test_the_last_value_of_a_key_is_gone(world: World) -> None:
    world.history.write((b"a", b"1"))
    world.history.write((b"a", b"2"))
    world.note()
    first, second = world.originals
    world.judge([filler_over(first)])
    with bites("nothing_missing"):
        world.judge([filler_over(second)])


def test_a_value_is_gone_for_one_that_was_aborted(world: World) -> None:
    """A key map that knows aborted data."""
    history = world.history
    history.write((b"a", b"1"))
    history.write((b"a", b"2"), pid=8, is_transactional=True)
    history.end(8, is_commit=False)
    world.note()
    with bites("nothing_missing"):
        world.judge([filler_over(world.originals[0])])


def test_data_of_an_open_transaction_are_gone(world: World) -> None:
    world.history.write((b"a", b"2"), pid=8, is_transactional=True)
    world.note()
    with bites("nothing_missing"):
        world.judge([filler_over(world.originals[0])])


def test_a_hole(world: World) -> None:
    some_history(world)
    world.note()
    batches = stored(world.originals)
    check_whole(KEY, batches, 0, world.history.end_offset)
    with bites("nothing_missing"):
        check_whole(KEY, batches[:1] + batches[2:], 0, world.history.end_offset)


def test_readers_are_told_too_few_or_too_many_aborted_transactions(world: World) -> None:
    some_history(world)
    world.note()
    batches, aborted = stored(world.originals), aborted_in(world.originals)
    check_readers_of_committed(KEY, world.written, batches, aborted)
    with bites("nothing_missing"):
        check_readers_of_committed(KEY, world.written, batches, [])
    with bites("nothing_missing"):
        later = [each._replace(last_offset=each.last_offset + 3) for each in aborted]
        check_readers_of_committed(KEY, world.written, batches, later)


# -- 5 and 6: expiry -------------------------------------------------------------------------------------------


def test_a_tombstone_goes_although_somebody_may_need_it(world: World) -> None:
    world.history.write((b"k", b"V"))
    world.history.write((b"k", None))
    for _ in range(3):
        world.history.write((b"more", b"v"))
        world.turn(world.a)
    world.judge(world.a.stored)  # B has not compacted, so nothing has expired
    world.history.write((b"more", b"v"))
    world.turn(world.a, **NO_BOUNDS)
    with bites("nothing_expires_early"):
        world.judge(world.a.stored)


def test_a_marker_goes_although_somebody_may_need_it(world: World) -> None:
    world.history.write((b"k", b"V"), pid=8, is_transactional=True)
    world.history.end(8, is_commit=True)
    for _ in range(3):
        world.history.write((b"more", b"v"))
        world.turn(world.a)
    world.judge(world.a.stored)
    world.history.write((b"more", b"v"))
    world.turn(world.a, **NO_BOUNDS)
    with bites("nothing_expires_early"):
        world.judge(world.a.stored)


def without_bounds(world: World) -> None:
    """Everybody believes that the bounds are higher than they are: that alone would not be noticed."""
    world.oracle.bounds_now = lambda key: [UNSET._replace(mtro=FOREVER, mxro=FOREVER)]


def test_a_member_holds_what_an_expired_tombstone_has_deleted(world: World) -> None:
    without_bounds(world)
    world.history.write((b"k", b"V"))
    world.history.write((b"k", None))
    world.note()
    of_b = stored(world.originals[:1])
    for _ in range(3):
        world.history.write((b"more", b"v"))
        world.turn(world.a, **NO_BOUNDS)
    world.oracle.expired.check(KEY, world.written, of_b, 0, 1)
    world.judge(world.a.stored)
    with bites("expired_is_safe"):
        world.oracle.expired.check(KEY, world.written, of_b, 0, 1)
    world.history.write((b"k", b"W"))
    world.note()
    of_b += stored(world.originals[-1:])
    world.oracle.expired.check(KEY, world.written, of_b, 0, world.history.end_offset)


def test_a_member_holds_data_whose_marker_is_gone(world: World) -> None:
    world.history.write((b"k", b"V"), pid=8, is_transactional=True)
    world.history.end(8, is_commit=True)
    world.note()
    data, marker = stored(world.originals)
    expired = ExpiredIsSafe()
    expired.check(KEY, world.written, [data, marker], 0, 2)
    expired.check(KEY, world.written, [data], 0, 1)  # it has not come yet
    with bites("expired_is_safe"):
        expired.check(KEY, world.written, [data, *stored([filler_over(marker[0])])], 0, 2)


# -- 4: bounds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("high", "low"),
    [
        (Bounds(KEY, mtro=8), Bounds(KEY, mtro=7)),
        (Bounds(KEY, mxro=8), Bounds(KEY, mxro=7)),
        (Bounds(KEY, mcco=8), Bounds(KEY, mcco=7)),
        (Bounds(KEY, mxfo=8), Bounds(KEY, mxfo=7)),
    ],
)
def test_a_bound_that_falls(high: Bounds, low: Bounds) -> None:
    invariant = BoundsNeverFall()
    invariant.check(KEY, IDENTITY, low, 9, lambda: None)
    invariant.check(KEY, IDENTITY, high, 9, lambda: low)
    invariant.check(KEY, IDENTITY, low, 9, lambda: low)  # the higher one was in memory only
    invariant.check(KEY, IDENTITY, high, 9, lambda: high)
    invariant.check(KEY, IDENTITY._replace(incarnation=1), UNSET, 9, lambda: None)
    with bites("bounds_never_fall"):
        invariant.check(KEY, IDENTITY, low, 9, lambda: low)


def test_a_bound_above_what_is_committed() -> None:
    with bites("bounds_never_fall"):
        BoundsNeverFall().check(KEY, IDENTITY, UNSET._replace(mcco=10), 9, lambda: None)


# -- 7: one record per key -------------------------------------------------------------------------------------


def test_two_records_of_a_key_in_the_clean_part(world: World) -> None:
    world.history.write((b"a", b"1"), (b"b", b"1"))
    world.history.write((b"a", b"2"))
    world.note()
    batches = stored(world.originals)
    check_clean(KEY, batches, 0, 2, 2)
    check_clean(KEY, batches, 1, 3, 3)  # the first one is deleted
    with bites("one_record_per_key"):
        check_clean(KEY, batches, 0, 3, 3)


def test_transactional_data_in_the_part_without(world: World) -> None:
    world.history.write((b"a", b"1"), pid=8, is_transactional=True)
    world.history.end(8, is_commit=True)
    world.note()
    check_clean(KEY, stored(world.originals), 0, 2, 0)
    with bites("one_record_per_key"):
        check_clean(KEY, stored(world.originals), 0, 0, 2)


# -- 3 and 1: what readers get ---------------------------------------------------------------------------------


def test_a_last_stable_offset_that_is_stuck_or_too_high(world: World) -> None:
    history = world.history
    history.write((b"a", b"1"))
    history.write((b"a", b"2"), pid=8, is_transactional=True)
    world.note()
    check_stable(KEY, world.written, 0, 2, 1)
    with bites("stable_without_open"):
        check_stable(KEY, world.written, 0, 2, 2)
    history.end(8, is_commit=True)
    world.note()
    check_stable(KEY, world.written, 0, 3, 3)
    with bites("stable_without_open"):
        check_stable(KEY, world.written, 0, 3, 1)


def test_a_view_that_is_not_what_was_committed(world: World) -> None:
    history = world.history
    history.write((b"a", b"1"), (b"b", b"1"))
    history.write((b"a", b"2"))
    history.write((b"b", None))
    world.note()
    written = world.written
    of = [counted(written, [batch], 0) for batch in stored(world.originals)]
    check_view(KEY, written, [*of[0], *of[1], *of[2]], 0, "all")
    check_view(KEY, written, of[1], 0, "without the tombstone")
    check_view(KEY, written, [], 4, "nothing, and nothing is left")
    check_view(KEY, written, [*of[0], *of[1]], 0, "slow", misses_tombstones=True)
    with bites("same_view"):
        check_view(KEY, written, [*of[0], *of[2]], 0, "slow, with an old value", misses_tombstones=True)
    for wrong in ([], of[0], [*of[0], *of[1]], of[2]):
        with bites("same_view"):
            check_view(KEY, written, wrong, 0, "wrong")


def test_a_sequence_whose_records_are_gone_stands_again_elsewhere(world: World) -> None:
    world.history.write((b"a", b"1"), (b"b", b"1"), pid=7)
    world.note()
    duplicates = NoDuplicate()
    header = parse_header(world.originals[0])
    duplicates.seen(KEY, header._replace(count=0))
    duplicates.seen(KEY, header)
    with bites("no_duplicate"):
        duplicates.seen(KEY, header._replace(base_offset=10))
