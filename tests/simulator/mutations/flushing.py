"""What has to be durable before somebody is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from broker.replication.replicas import Replicas
from broker.replication.waits import ReplicaWaits
from broker.scheduling.commit_delay import CommitDelay
from storage.disk import DiskError
from storage.group_commit import FlushRounds
from storage.log import Log
from storage.log_types import FlushTicket
from storage.segment import Segment
from tests.simulator.disk import MemoryDisk
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.nemesis import blackouts, new_leaders_lose_their_voters
from tests.simulator.mutations.switch import off, without_call


def _durable_when_asked_for(begin: Callable[[FlushRounds], None]) -> Any:
    def _begin_round(self: FlushRounds) -> None:
        begin(self)
        for log, ticket in list(self._in_flight.items()):
            self._on_durable(log, ticket.end)

    return _begin_round


def _sent_when_prepared(prepare_replies: Callable[[FlushRounds], None]) -> Any:
    def _prepare_replies(self: FlushRounds) -> None:
        prepare_replies(self)
        while self._prepared:
            self._prepared.pop(0)()

    return _prepare_replies


def _without_rows(begin_flush: Callable[[Log], FlushTicket]) -> Any:
    def begin_rows_forgotten(self: Log) -> FlushTicket:
        ticket, rows = begin_flush(self), self.lineage.dirty_file()
        return ticket._replace(files=tuple(file for file in ticket.files if file is not rows))

    return begin_rows_forgotten


def _without_data(begin_flush: Callable[[Log], FlushTicket]) -> Any:
    def begin_data_forgotten(self: Log) -> FlushTicket:
        ticket, rows = begin_flush(self), self.lineage.dirty_file()
        return ticket._replace(files=tuple(file for file in ticket.files if file is rows))

    return begin_data_forgotten


def _at_once(_: Callable[..., None]) -> Any:
    def at_once(self: Replicas, action: Callable[[], None]) -> None:
        self._loop.call_soon(action)
        self._turn.schedule()

    return at_once


def _index_files_only(_: Callable[..., None]) -> Any:
    def _seal(self: Log, segment: Segment) -> None:
        segment.write_index_files(is_sealed=True)

    return _seal


def _unheard(start_writeback: Callable[[Log], None]) -> Any:
    def start_unheard(self: Log) -> None:
        with suppress(DiskError):
            start_writeback(self)

    return start_unheard


def _when_committed(_: Callable[[ReplicaWaits], int]) -> Any:
    return lambda self: self._replica.high_watermark


def _as_long_as_anybody_is_expected(_: Callable[[CommitDelay], bool]) -> Any:
    def must_wait(self: CommitDelay) -> bool:
        self._now()
        return bool(self._expected)

    return must_wait


MUTATIONS = (
    Mutation(
        "flush-before-acknowledgement",
        "An entry counts when the flush that covers it is over (replication.md section 6)",
        off((FlushRounds, "_begin_round", _durable_when_asked_for)),
        ("kill",),
        blackouts,
    ),
    Mutation(
        "flush-before-prepared-reply",
        "A reply that is prepared before the flush that covers it leaves after that (replication.md section 6)",
        off((FlushRounds, "_prepare_replies", _sent_when_prepared)),
        ("kill",),
        blackouts,
    ),
    Mutation(
        "flush-of-the-lineage",
        "A flush covers every dirty file of a partition, the lineage too (replication.md section 1)",
        off((Log, "begin_flush", _without_rows)),
        ("kill",),
        blackouts,
    ),
    Mutation(
        "flush-of-the-data",
        "A flush covers every dirty file of a partition, the data too (replication.md section 1)",
        off((Log, "begin_flush", _without_data)),
        ("kill",),
        blackouts,
    ),
    Mutation(
        "vote-durable-before-sent",
        "Term and vote are durable before a vote, or a request for one, leaves (replication.md section 2)",
        off((Replicas, "after_flush", _at_once)),
        (),
        new_leaders_lose_their_voters,
    ),
    Mutation(
        "segment-name-durable",
        "A new segment's name is durable before anything is written into it (replication.md section 1)",
        without_call(MemoryDisk, "flush_directory", Log, "_add_segment"),
        ("kill",),
        blackouts,
    ),
    Mutation(
        "flush-before-roll",
        "A segment is flushed before its descriptor is given up (replication.md section 2)",
        off((Log, "_seal", _index_files_only)),
        ("kill",),
        blackouts,
    ),
    Mutation(
        "write-back-error-is-final",
        "An error of an early write-back ends the process: no flush need report it again (replication.md section 2)",
        off((Log, "start_writeback", _unheard)),
        ("write-back errors", "kill"),
    ),
    Mutation(
        "in-sync-before-answer",
        "acks=all is answered when min.insync.replicas voters, and a majority, hold it durably (section 6)",
        off((ReplicaWaits, "acknowledged_offset", _when_committed)),
        ("slow disk", "pause"),
    ),
    Mutation(
        "commit-delay-ends",
        "A write waits for expected clients no longer than the commit delay (broker.scheduling.commit_delay)",
        off((CommitDelay, "must_wait", _as_long_as_anybody_is_expected)),
        ("pause",),
        is_slow=True,
        note="a property: a client that does not come back must not hold others up",
    ),
)
