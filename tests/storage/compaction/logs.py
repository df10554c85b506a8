"""A history as a log on a disk, and passes over it: what the tests of passes over files share."""

from __future__ import annotations

import random

from protocol.records.batch import Compression, parse_header
from storage.compaction.plan import SegmentFacts
from storage.disk import Disk
from storage.log import Log
from storage.log_cleaning import CleaningEvent, CleaningTask, SegmentReady, clean
from storage.log_types import LogConfig
from tests.storage.compaction.model import (
    SEGMENT_BYTES,
    History,
    Replica,
    aborted_in,
    key_buffer,
    last_values,
    read_committed,
)
from tests.storage.helpers import new_log

CONFIG = LogConfig(1 << 20, 1 << 40, 128)


def write_history(rng: random.Random, rounds: int = 6) -> History:
    """A history with one replica that was never compacted, in segments of some batches."""
    history = History()
    history.replica()
    for _ in range(rounds):
        for _ in range(rng.randint(2, 6)):
            write_something(history, rng)
        history.roll()
    for pid, producer in history.producers.items():
        if producer.transaction is not None:
            history.end(pid, is_commit=rng.random() < 0.5)
    history.roll()
    history.write((b"z", b"the active segment"))
    return history


def write_something(history: History, rng: random.Random) -> None:
    pairs = [
        (rng.choice([b"a", b"b", b"a key of more than sixteen bytes"]), rng.choice([None, b"", b"v" * 60]))
        for _ in range(rng.randint(1, 3))
    ]
    pid = rng.choice([-1, 1, 2])
    producer = history.producers.get(pid)
    is_open = producer is not None and producer.transaction is not None
    if is_open and rng.random() < 0.4:
        history.end(pid, is_commit=rng.random() < 0.5)
    else:
        is_transactional = is_open or (pid > 0 and rng.random() < 0.5)
        compression = rng.choice([Compression.NONE, Compression.NONE, Compression.LZ4])
        history.write(*pairs, pid=pid, is_transactional=is_transactional, compression=compression)


def log_of(disk: Disk, replica: Replica, config: LogConfig = CONFIG) -> Log:
    """The same batches in the same segments, durable."""
    log = new_log(disk, config, term=3)
    append_new(log, replica)
    return log


def append_new(log: Log, replica: Replica) -> None:
    """What the replica has and the log has not, durably. The log keeps its last segment."""
    aborted = {each.last_offset: each for each in aborted_in(replica.batches)}
    for base_offset, segment in zip(replica.bases, replica.segments, strict=True):
        if base_offset and base_offset >= log.end_offset:
            log.roll()
        for batch in segment:
            header = parse_header(batch)
            if header.base_offset >= log.end_offset:
                log.append_batches([batch], [header])
                if header.last_offset in aborted:
                    log.note_aborted([aborted[header.last_offset]])
    log.flush()


def facts_of(log: Log) -> list[SegmentFacts]:
    return [SegmentFacts(*stored[:3], stored.max_timestamp_ms, -1) for stored in log.segments()]


def task_of(log: Log, replica: Replica, key_count: int = 1000) -> CleaningTask:
    plan = replica.plan()
    rules = replica.new_filter(replica.key_map(0, 0))._rules
    rows = [(row.offset, row.term) for row in log.lineage.rows]
    return CleaningTask(
        log.directory,
        facts_of(log),
        rows,
        plan.first_dirty_offset,
        plan.first_uncleanable_offset,
        rules,
        aborted_in(replica.batches),
        key_buffer(key_count),
        SEGMENT_BYTES,
        CONFIG.index_interval_bytes,
    )


def run_pass(log: Log, task: CleaningTask) -> list[CleaningEvent]:
    events = []
    for event in clean(log.disk, task):
        events.append(event)
        if isinstance(event, SegmentReady):
            log.swap(event.bases, event.aborted)
    return events


def stored_in(log: Log) -> list[bytes]:
    return [bytes(batch) for _, batch in log.checked_batches(0)]


def check_view(log: Log, replica: Replica) -> None:
    """What readers of the log see is what was written, by definition."""
    history = replica.history
    seen = read_committed(stored_in(log), history.last_stable_offset)
    assert last_values(seen) == history.view()
    everything = {written.record.offset: written for written in history.written}
    assert all(everything[record.offset].record == record for record in seen)
