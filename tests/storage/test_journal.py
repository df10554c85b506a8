from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.disk import DiskFullError
from storage.errors import JournalCorruptError
from storage.journal import REWRITE_MIN_BYTES, SPARE_BYTES, Journal
from storage.journal_records import Bounds, Flushed, Forget, Incarnation, Quarantine, Vote, VotedFor
from storage.log_types import FlushedEnd, GroupKey
from tests.simulator.disk import MemoryDisk
from tests.simulator.loop import new_loop
from tests.storage.helpers import (
    GROUP,
    SECTOR_BYTES,
    InlineDisk,
    StopError,
    StoppingDisk,
    flip_a_bit,
    fresh_disk,
    tear,
)

VOTER = VotedFor(3, b"d" * 16, 2)


def states(journal: Journal) -> dict[GroupKey, object]:
    return {group: journal.state(group) for group in journal.groups()}


def test_every_kind_of_record_survives_a_restart(disk: InlineDisk) -> None:
    journal = Journal.open(disk)
    other = GroupKey(UUID(int=9), 4)
    for record in (
        Vote(GROUP, 5, VOTER),
        Incarnation(GROUP, 2),
        Flushed(GROUP, FlushedEnd(70, 3)),
        Bounds(GROUP, 1, 2, 3, 4, 5),
        Quarantine(GROUP, True),
        Vote(other, 1, None),
        Vote(GroupKey(UUID(int=1), 0), 1, VOTER),
        Forget(GroupKey(UUID(int=1), 0)),
    ):
        journal.append(record)
    journal.close()
    again = Journal.open(disk)
    state = again.state(GROUP)
    assert state is not None
    assert (state.term, state.voted_for, state.has_vote) == (5, VOTER, True)
    assert (state.flushed_end, state.incarnation) == (FlushedEnd(70, 3), 2)
    assert state.bounds == Bounds(GROUP, 1, 2, 3, 4, 5)
    assert state.is_quarantined
    assert again.state(GroupKey(UUID(int=1), 0)) is None
    assert states(again) == states(journal)


def test_a_group_without_a_vote_has_none_even_if_other_things_are_known(disk: InlineDisk) -> None:
    journal = Journal.open(disk)
    journal.append(Flushed(GROUP, FlushedEnd(3, 1)))
    journal.close()
    state = Journal.open(disk).state(GROUP)
    assert state is not None and not state.has_vote


def test_a_new_incarnation_forgets_the_old_log_but_not_the_vote(disk: InlineDisk) -> None:
    journal = Journal.open(disk)
    journal.append(Vote(GROUP, 5, VOTER))
    journal.append(Flushed(GROUP, FlushedEnd(70, 3)))
    journal.append(Bounds(GROUP, 1, 2, 3, 4, 5))
    journal.append(Incarnation(GROUP, 1))
    journal.append(Flushed(GROUP, FlushedEnd(4, 1)))
    state = journal.state(GROUP)
    assert state is not None
    assert (state.term, state.flushed_end, state.bounds) == (5, FlushedEnd(4, 1), None)
    journal._rewrite_at_bytes = 0
    journal.finish_flush(journal.begin_flush())
    assert Journal.open(disk).state(GROUP) == state


def test_a_term_never_falls(disk: InlineDisk) -> None:
    journal = Journal.open(disk)
    journal.append(Vote(GROUP, 5, VOTER))
    with pytest.raises(AssertionError):
        journal.append(Vote(GROUP, 4, None))


@pytest.mark.parametrize("lower", [(4, 6, 7, 8, 9), (5, -1, 7, 8, 9), (6, 7, 8, 9, 8)])
def test_no_bound_falls(disk: InlineDisk, lower: tuple[int, int, int, int, int]) -> None:
    """A record that says less of one bound than the one before was made without looking at that."""
    journal = Journal.open(disk)
    journal.append(Bounds(GROUP, 5, 6, 7, 8, 9))
    journal.append(Bounds(GROUP, 5, 6, 7, 8, 9))
    with pytest.raises(AssertionError):
        journal.append(Bounds(GROUP, *lower))


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32))
def test_a_torn_group_of_records_is_no_rot_and_loses_nothing_durable(seed: int) -> None:
    """Any subset of un-flushed sectors survives: whole later records may stand behind a torn one."""
    rng = random.Random(seed)
    with fresh_disk() as disk:
        journal = Journal.open(disk)
        term = 0
        for _ in range(rng.randrange(20)):
            term += 1
            journal.append(Vote(GROUP, term, VOTER))
            if rng.random() < 0.5:
                journal.flush()
        journal.flush()
        durable, start = term, journal._end
        for _ in range(rng.randint(1, 40)):
            term += 1
            journal.append(Vote(GROUP, term, None))
        journal.begin_flush()
        path = Path(disk.root, "journal")
        path.write_bytes(tear(path, start, rng, 0.4))
        again = Journal.open(disk)
        state = again.state(GROUP)
        found = state.term if state is not None else 0
        assert durable <= found <= term
        again.append(Vote(GROUP, term + 1, VOTER))
        again.close()
        state = Journal.open(disk).state(GROUP)
        assert state is not None and state.term == term + 1


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_a_durable_record_that_rotted_is_refused(seed: int) -> None:
    rng = random.Random(seed)
    with fresh_disk() as disk:
        journal = Journal.open(disk)
        for term in range(1, rng.randint(2, 10)):
            journal.append(Vote(GROUP, term, VOTER))
            journal.flush()
        corrupt_below = journal._end
        journal.append(Vote(GROUP, 50, VOTER))
        journal.close()
        flip_a_bit(Path(disk.root, "journal"), corrupt_below, rng)
        try:
            again = Journal.open(disk)
        except JournalCorruptError:
            pass
        else:  # the flip hit padding
            state = again.state(GROUP)
            assert state is not None and state.term == 50


def zeroed(size_bytes: int | None) -> Callable[[Path], None]:
    """Damage: zeros in place of the first bytes of a file, or of all of it."""

    def damage(path: Path) -> None:
        data = path.read_bytes()
        zeros = bytes(len(data) if size_bytes is None else min(size_bytes, len(data)))
        path.write_bytes(zeros + data[len(zeros) :])

    return damage


@pytest.mark.parametrize("is_rewritten", [False, True])
@pytest.mark.parametrize("vote_count", [0, 1, 2, 300])
@pytest.mark.parametrize(
    "damage",
    [zeroed(None), zeroed(SECTOR_BYTES), zeroed(1), lambda path: path.write_bytes(b"")],
    ids=["zeros", "first sector", "first byte", "empty"],
)
def test_a_journal_without_its_first_record_is_corrupt(
    disk: InlineDisk, damage: Callable[[Path], None], vote_count: int, is_rewritten: bool
) -> None:
    """A journal has a record from its first moment, also where nobody ever voted: one that has none lost it."""
    journal = Journal.open(disk)
    for term in range(1, vote_count + 1):
        journal.append(Vote(GROUP, term, VOTER))
    if is_rewritten:
        journal._rewrite_at_bytes = 0
        journal.finish_flush(journal.begin_flush())
    journal.close()
    damage(Path(disk.root, "journal"))
    with pytest.raises(JournalCorruptError):
        Journal.open(disk)


def test_rot_anywhere_in_a_rewritten_journal_is_refused(disk: InlineDisk) -> None:
    journal = Journal.open(disk)
    while journal.last_sequence < 100 + REWRITE_MIN_BYTES // 80:
        journal.append(Vote(GROUP, journal.last_sequence, VOTER))
        if journal.last_sequence % 500 == 0:
            journal.finish_flush(journal.begin_flush())
    journal.finish_flush(journal.begin_flush())
    path = Path(disk.root, "journal")
    assert path.stat().st_size < REWRITE_MIN_BYTES
    path_data = path.read_bytes()
    assert Journal.open(disk).state(GROUP) == journal.state(GROUP)
    data = bytearray(path_data)
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(JournalCorruptError):
        Journal.open(disk)


def test_a_rewrite_survives_a_crash_at_every_step(tmp_path: Path) -> None:
    step, finished = 0, False
    while not finished:
        root = str(tmp_path / str(step))
        disk = StoppingDisk(root)
        journal = Journal.open(disk)
        for number in range(300):
            journal.append(Vote(GroupKey(UUID(int=number % 7), 0), number, VOTER))
        journal.append(Vote(GROUP, 1, VOTER))
        journal.flush()
        journal._rewrite_at_bytes = 0
        journal.append(Vote(GROUP, 999, VOTER))
        disk.calls_left = step
        try:
            ticket = journal.begin_flush()
            ticket.file.flush()
            finished = True
        except StopError:
            pass
        disk.close()
        disk = StoppingDisk(root)
        again = Journal.open(disk)
        state = again.state(GROUP)
        assert state is not None
        assert state.term == 999 or not finished
        for number in range(294, 300):
            other = again.state(GroupKey(UUID(int=number % 7), 0))
            assert other is not None and other.term >= number
        again.append(Vote(GROUP, 1000, None))
        again.close()
        state = Journal.open(disk).state(GROUP)
        assert state is not None and state.term == 1000
        disk.close()
        step += 1
    assert step > 4


def test_a_full_disk_stops_neither_a_rewrite_nor_votes_for_which_the_file_has_room() -> None:
    loop = new_loop()
    disk = MemoryDisk("/data", loop, random.Random(1))
    journal = Journal.open(disk)
    file = journal.begin_flush().file
    disk.faults.capacity_bytes -= disk.free_bytes()
    journal._rewrite_at_bytes = 0
    votes = 0
    while journal._end + 100 <= file.size:
        journal.append(Vote(GROUP, votes, VOTER))
        ticket = journal.begin_flush()
        votes += 1
    assert votes > SPARE_BYTES // 100 and ticket.file is file
    assert not disk.exists(f"{disk.root}/journal.tmp")
    with pytest.raises(DiskFullError):
        for _ in range(3):
            journal.append(Vote(GROUP, votes, VOTER))
            journal.begin_flush()
    disk.faults.capacity_bytes += 1 << 20
    journal.begin_flush()
    journal.close()
    again = Journal.open(disk)
    assert states(again) == states(journal)
    assert again.state(GROUP).term == votes  # type: ignore[union-attr]


def test_it_grows_while_there_is_room() -> None:
    disk = MemoryDisk("/data", new_loop(), random.Random(1))
    journal = Journal.open(disk)
    for term in range(5000):
        journal.append(Vote(GROUP, term, VOTER))
        file = journal.begin_flush().file
        assert file.size - journal._end >= SPARE_BYTES
