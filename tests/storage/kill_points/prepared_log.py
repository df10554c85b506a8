"""The log whose pass is killed, and what it is after each segment that takes its place.

It was compacted once. So the pass meets what another one has left: horizons that are over, remnants, fillers. It
merges neighbours, writes more than one block into a segment, and its key map ends inside an aborted transaction.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from protocol.records.batch import Compression
from storage.aborted_index import AbortedTransaction
from storage.aborted_loading import load_aborted
from storage.aborted_transactions import AbortedIndexMissingError
from storage.batch_scan import BLOCK_BYTES
from storage.compaction.counts import PassCounts
from storage.journal import Journal
from storage.journal_records import Bounds, Flushed
from storage.log import Log
from storage.log_cleaning import PassOver, SegmentReady, clean
from storage.producer_snapshot import Snapshot, load_producers, write_snapshot
from storage.segment_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from tests.storage.compaction.logs import (
    append_new,
    log_of,
    run_pass,
    stored_in,
    task_of,
    write_something,
)
from tests.storage.compaction.model import History, Replica
from tests.storage.helpers import InlineDisk
from tests.storage.kill_points.journaled_log import (
    CONFIG,
    GROUP,
    data_directory,
    load_task,
    open_journaled,
    save_task,
)

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
#: Of a segment that neighbours become.
MERGED_BYTES = 1500


class LogState(NamedTuple):
    """All that readers and later passes see of a log."""

    bases: tuple[int, ...]
    batches: tuple[bytes, ...]
    aborted: tuple[AbortedTransaction, ...]
    index_files: tuple[tuple[str, bytes], ...]
    """Of the sealed segments: they could be built anew, but nothing in a pass takes them away."""


class Prepared(NamedTuple):
    """A data directory before the pass, and what becomes of it."""

    folder: Path
    replica: Replica
    """The same log as a list of batches, before the pass."""
    bounds: Bounds
    """As the journal holds them before the pass."""
    states: Sequence[LogState]
    """Before the pass, and after each segment that took its place."""
    counts: PassCounts


def log_state(log: Log, last_stable_offset: int) -> LogState:
    while True:
        try:
            aborted = tuple(log.aborted_between(0, last_stable_offset))
            break
        except AbortedIndexMissingError as missing:
            for _ in load_aborted(log, missing.base_offset):
                pass
    bases = tuple(segment.base_offset for segment in log.segments())
    names = [f"{base_offset:020}{suffix}" for base_offset in bases[:-1] for suffix in INDEX_SUFFIXES]
    paths = [Path(log.directory, name) for name in names]
    index_files = tuple((path.name, path.read_bytes()) for path in paths if path.exists())
    return LogState(bases, tuple(stored_in(log)), aborted, index_files)


def prepare(folder: Path) -> Prepared:
    """Write the log, and let a pass over a copy of it come to its end."""
    history = History()
    replica = history.replica()
    rng = random.Random(4)
    folder.mkdir()
    _write_clean_part(history, rng)
    disk = InlineDisk(str(data_directory(folder)))
    log = log_of(disk, replica, CONFIG)
    run_pass(log, task_of(log, replica))
    replica.compact()
    # What got a horizon may go.
    history.now_ms += 2000
    snapshot = Snapshot.of(load_producers(log))
    write_snapshot(log, snapshot, log.end_offset)
    _write_dirty_part(history, rng)
    append_new(log, replica)
    # The worker writes another one, behind all records, before the pass.
    write_snapshot(log, Snapshot.of(load_producers(log)), log.end_offset)
    append_end(history)
    append_new(log, replica)
    journal = Journal.open(disk)
    journal.append(Flushed(GROUP, log.end))
    cleaned_end = replica.cleaned_end
    bounds = Bounds(GROUP, 0, cleaned_end, cleaned_end, cleaned_end, cleaned_end, cleaned_end)
    journal.append(bounds)
    journal.close()
    task = task_of(log, replica, _keys_up_to_an_aborted_transaction(replica))
    save_task(folder, task._replace(segment_bytes=MERGED_BYTES))
    log.close(is_clean=False)
    disk.close()
    states, counts = _states(folder, replica)
    return Prepared(folder, replica, bounds, states, counts)


def _states(folder: Path, replica: Replica) -> tuple[Sequence[LogState], PassCounts]:
    copy = folder.with_name(f"{folder.name}-whole-pass")
    shutil.copytree(folder, copy)
    disk = InlineDisk(str(data_directory(copy)))
    journal, log = open_journaled(disk)
    last_stable_offset = replica.history.last_stable_offset
    states = [log_state(log, last_stable_offset)]
    counts = PassCounts()
    for event in clean(disk, load_task(copy)):
        if isinstance(event, SegmentReady):
            log.swap(event.bases, event.aborted)
            states.append(log_state(log, last_stable_offset))
        elif isinstance(event, PassOver):
            counts = event.counts
    log.close(is_clean=False)
    journal.close()
    disk.close()
    return states, counts


def _write_clean_part(history: History, rng: random.Random) -> None:
    history.write((b"deleted", b"1"), pid=3)
    history.write((b"large", rng.randbytes(BLOCK_BYTES)))
    history.roll()
    history.write((b"deleted", None), pid=3)
    _write_segments(history, rng, 4)


def _write_dirty_part(history: History, rng: random.Random) -> None:
    history.write((b"large", rng.randbytes(BLOCK_BYTES)), (b"deleted later", None))
    history.roll()
    for compression in Compression:
        history.write((b"c%d" % compression, b"v" * 200), (b"a", b"v" * 200), compression=compression)
    _write_segments(history, rng, 5)
    for pid, producer in history.producers.items():
        if producer.transaction is not None:
            history.end(pid, is_commit=pid == 1)
    history.write((b"d", b"1"), pid=8, is_transactional=True)
    for number in range(4):
        history.write((b"u%d" % number, b"v"))
    history.write((b"d", b"2"), pid=8, is_transactional=True)
    history.end(8, is_commit=False)
    history.roll()


def append_end(history: History) -> None:
    """The active segment."""
    history.write((b"z", b"open"), pid=9, is_transactional=True)
    history.write((b"a", b"the newest"))


def _write_segments(history: History, rng: random.Random, count: int) -> None:
    for _ in range(count):
        for _ in range(rng.randint(3, 6)):
            write_something(history, rng)
        history.roll()


def _keys_up_to_an_aborted_transaction(replica: Replica) -> int:
    """So many keys fit into the map that it ends between records of the last transaction."""
    plan = replica.plan()
    aborted_from = next(w.record.offset for w in replica.history.written if w.record.key == b"u0")
    key_count = 4
    while (
        replica.key_map(plan.first_dirty_offset, plan.first_uncleanable_offset, key_count).end_offset
        <= aborted_from
    ):
        key_count += 1
    return key_count
