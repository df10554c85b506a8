"""What a killed process may leave: the log before the pass, after it, or after some of its segments."""

from __future__ import annotations

from operator import eq, ne
from pathlib import Path
from typing import NamedTuple

from protocol.records.batch import parse_header
from storage.journal import Journal
from storage.log import Log
from storage.producer_snapshot import load_producers
from storage.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX
from tests.storage.compaction.logs import check_view, facts_of
from tests.storage.compaction.model import data_of, is_filler, key_buffer, read_committed
from tests.storage.helpers import InlineDisk
from tests.storage.kill_points.journaled_log import (
    FOLDER,
    data_directory,
    load_task,
    open_journaled,
    recorded_bounds,
    run_recorded_pass,
)
from tests.storage.kill_points.prepared_log import INDEX_SUFFIXES, LogState, Prepared, log_state


class Found(NamedTuple):
    """What the start after a death has found."""

    swapped_count: int
    """So many segments of the pass are in place."""
    is_recorded: bool
    """The journal calls the log cleaned up to the end of the pass."""


class RemovingDisk(InlineDisk):
    """What is to be removed later goes at once: nothing has to be waited for."""

    def remove_later(self, path: str) -> None:
        self.unlink(path)


def judge(folder: Path, prepared: Prepared) -> Found:
    """Open the log as a node does and judge it. Then the pass is repeated, another one compares the whole log, and both
    results are judged, the second one after one more start. Raises AssertionError, and what an opening raises."""
    disk = RemovingDisk(str(data_directory(folder)))
    try:
        journal, log = open_journaled(disk)
        state = _judged(log, prepared)
        found = _found(state, journal, prepared)
        if not found.is_recorded:
            _repeat_pass(log, journal, folder, state)
            again = _judged(log, prepared)
            assert _without_fillers(again) == _without_fillers(prepared.states[-1]), "not what the pass gives"
        _compare_all(log, journal, folder)
        compared = _judged(log, prepared)
        keys = [seen.key for seen in data_of(compared.batches) if seen.offset < load_task(folder).end_offset]
        assert len(set(keys)) == len(keys), "a key has two records"
        log.close(is_clean=False)
        journal.close()
        journal, log = open_journaled(disk)
        assert _judged(log, prepared) == compared
        log.close(is_clean=False)
        journal.close()
    finally:
        disk.close()
    return found


def _found(state: LogState, journal: Journal, prepared: Prepared) -> Found:
    # Byte for byte: fillers are where the pass has put them.
    if state not in prepared.states:
        closest = max(prepared.states, key=lambda each: sum(map(eq, each, state)))
        fields = [name for name, *pair in zip(LogState._fields, closest, state, strict=True) if ne(*pair)]
        raise AssertionError(f"neither before nor after the pass, nor between two of its segments: {fields}")
    found = Found(prepared.states.index(state), recorded_bounds(journal).mcco > prepared.bounds.mcco)
    is_begun = recorded_bounds(journal).rewritten_end > prepared.bounds.rewritten_end
    assert is_begun or not found.swapped_count, "batches have gone, and the journal does not know it"
    is_whole = state == prepared.states[-1]
    assert is_whole or not found.is_recorded, "the journal calls a log cleaned that is not"
    return found


def _repeat_pass(log: Log, journal: Journal, folder: Path, state: LogState) -> None:
    """As the worker would: with what the log knows now."""
    task = load_task(folder)
    aborted = [each for each in state.aborted if each.first_offset < task.end_offset]
    run_recorded_pass(log, journal, task._replace(segments=facts_of(log), aborted=aborted))


def _compare_all(log: Log, journal: Journal, folder: Path) -> None:
    """A pass over all of the log, whose map has room for all keys."""
    task = load_task(folder)
    rules = task.rules._replace(cleaned_end_offset=recorded_bounds(journal).mcco)
    task = task._replace(
        segments=facts_of(log), first_dirty_offset=0, map_bytes=key_buffer(1000), rules=rules
    )
    run_recorded_pass(log, journal, task)


def _judged(log: Log, prepared: Prepared) -> LogState:
    replica = prepared.replica
    history = replica.history
    state = log_state(log, history.last_stable_offset)
    check_view(log, replica)
    seen = read_committed(state.batches, history.last_stable_offset)
    told = read_committed(state.batches, history.last_stable_offset, state.aborted)
    assert told == seen, "the index of aborted transactions is not that of the batches"
    states = load_producers(log)
    assert states.entries == history.states.entries
    assert states.last_stable_offset(log.end_offset) == history.last_stable_offset
    _check_reads(log)
    _check_files(log)
    return state


def _check_reads(log: Log) -> None:
    """Each offset is found by the index."""
    for offset in range(log.end_offset):
        piece = log.read(offset, 1, below_offset=log.end_offset)
        assert piece is not None
        header = parse_header(piece.view())
        assert header.base_offset <= offset <= header.last_offset


def _check_files(log: Log) -> None:
    """Nothing is left over, and no segment lies beside the one that took its place."""
    stems = [f"{segment.base_offset:020}" for segment in log.segments()]
    wanted = {stem + LOG_SUFFIX for stem in stems} | {stem + TRANSACTION_INDEX_SUFFIX for stem in stems[:-1]}
    wanted |= {"lineage", "partition.metadata"}
    allowed = {stem + suffix for stem in stems[:-1] for suffix in INDEX_SUFFIXES}
    names = {name for name in log.disk.list(log.directory) if not name.endswith(SNAPSHOT_SUFFIX)}
    assert wanted <= names <= wanted | allowed, names ^ wanted
    assert log.disk.list(log.disk.root) == ["journal", FOLDER]


def _without_fillers(state: LogState) -> list[bytes]:
    return [batch for batch in state.batches if not is_filler(batch)]
