"""A data directory with a journal and one log, opened as a node opens it.

The process that is killed imports nothing else of the tests: under strace, each import costs.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from uuid import UUID

from storage.disk import Disk
from storage.journal import Journal
from storage.journal_records import Bounds
from storage.log import Log
from storage.log_cleaning import CleaningTask, MapReady, PassOver, SegmentReady, clean
from storage.log_recovery import open_log
from storage.log_types import GroupKey, LogConfig
from storage.producer_snapshot import remove_needless_snapshots

GROUP = GroupKey(UUID(int=7), 0)
CONFIG = LogConfig(1 << 30, 1 << 40, 128)
FOLDER = "topic-0"
#: Beside the data directory.
_TASK_NAME = "task.pickle"


def data_directory(folder: Path) -> Path:
    return folder / "data"


def save_task(folder: Path, task: CleaningTask) -> None:
    (folder / _TASK_NAME).write_bytes(pickle.dumps(task))


def load_task(folder: Path) -> CleaningTask:
    """For the log in this folder, which may be a copy."""
    task: CleaningTask = pickle.loads((folder / _TASK_NAME).read_bytes())
    return task._replace(directory=f"{data_directory(folder)}/{FOLDER}")


def open_journaled(disk: Disk) -> tuple[Journal, Log]:
    """After a process that was killed."""
    journal = Journal.open(disk)
    state = journal.state(GROUP)
    assert state is not None and state.bounds is not None
    log = open_log(
        disk,
        f"{disk.root}/{FOLDER}",
        GROUP,
        CONFIG,
        recorded=state.flushed_end,
        log_start=state.bounds.log_start,
        is_clean=False,
    )
    log.rewritten_end = state.bounds.rewritten_end
    return journal, log


def run_recorded_pass(log: Log, journal: Journal, task: CleaningTask) -> None:
    """What the worker of a node does with a pass (broker/compaction/worker.py), without an event loop: what goes is
    recorded before it goes, and the cleaned end when it is gone."""
    for event in clean(log.disk, task):
        match event:
            case MapReady(end_offset):
                log.rewritten_end = max(log.rewritten_end, end_offset)
                _record(journal, rewritten_end=end_offset)
            case SegmentReady(bases, aborted):
                log.swap(bases, aborted)
            case PassOver(end_offset, free_end, _):
                assert free_end == end_offset
                _record(journal, mcco=end_offset, mxfo=free_end)
                remove_needless_snapshots(log)


def recorded_bounds(journal: Journal) -> Bounds:
    state = journal.state(GROUP)
    assert state is not None and state.bounds is not None
    return state.bounds


def _record(journal: Journal, **raised: int) -> None:
    """None of the bounds ever falls."""
    bounds = recorded_bounds(journal)
    higher = {name: max(value, getattr(bounds, name)) for name, value in raised.items()}
    journal.append(bounds._replace(**higher))
    journal.flush()
