"""A topic that is compacted, for stories: who writes what to it, who compacts it when, and who knows what of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from broker.compaction.standing import LogCompaction
from broker.compaction.worker import CompactionWorker
from broker.replication.replica import Replica
from protocol.controller.topics import TopicSetting
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import parse_header
from protocol.records.builder import NewRecord, build_batch
from raft.types import ReplicaId
from storage.compaction.plan import Plan
from storage.journal_records import Bounds
from storage.log_types import GroupKey
from tests.simulator.mutations.stage import Stage
from tests.simulator.mutations.switch import replaced
from tests.simulator.written import records_of

KEY = b"k"
#: Everything is sealed, compacted and expired within some virtual seconds.
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1024",
    "segment.ms": "200",
    "delete.retention.ms": "300",
    "min.cleanable.dirty.ratio": "0",
    "min.insync.replicas": "1",
}


class CompactedTopic:
    """The stage's topic."""

    def __init__(self, stage: Stage, *, replicas: tuple[int, ...] = (1, 2, 3), **settings: str) -> None:
        """`settings`: in place of those above, with underscores for dots."""
        changed = {name.replace("_", "."): value for name, value in settings.items()}
        stage.settings = [
            TopicSetting(name=name, value=value) for name, value in (SETTINGS | changed).items()
        ]
        stage.create_topic(replicas=replicas)
        self.stage = stage
        self.key: GroupKey = stage.replica(stage.leader()).key
        #: Nodes on which no pass begins (`passes_held`).
        self.held: dict[int, None] = {}

    # -- clients

    def put(self, value: bytes | None, key: bytes = KEY) -> int:
        """As a producer that is not idempotent: sent again until it is acknowledged. None: the key is deleted. Returns
        the offset."""
        stage, error = self.stage, None
        while error is not ErrorCode.NONE:
            leader = stage.leader()
            replica = stage.replica(leader)
            batch = build_batch([NewRecord(key, value, 1)])
            try:
                offset, end_offset = stage.call(leader, replica.append, parse_header(bytes(batch)), batch)
            except KafkaError:
                stage.run_for(0.05)
                continue
            answer = _Answer()
            stage.call(leader, replica.waits.add_commit, end_offset, answer, 0)
            # Its leader may be dead by now.
            stage.waited(lambda answer=answer: answer.error is not None, 1.0)  # type: ignore[misc]
            error = answer.error
        return offset

    # -- passes

    @contextmanager
    def passes_held(self, *node_ids: int) -> Iterator[dict[int, None]]:
        """No pass begins on these nodes. Whoever takes one out of the dict lets it go on."""
        self.held.update(dict.fromkeys(node_ids))

        def hold(plan: Callable[..., Plan | None]) -> Any:
            def planned(worker: CompactionWorker, replica: Replica, state: LogCompaction) -> Plan | None:
                return None if replica.group.self_id.node_id in self.held else plan(worker, replica, state)

            return planned

        with replaced(CompactionWorker, "_due_plan", hold):
            yield self.held

    def bounds(self, node_id: int) -> Bounds:
        """As this node has them durably."""
        return self.stage.replica(node_id).bounds.durable

    def wait_cleaned(self, *node_ids: int, above: int) -> None:
        """Until passes on these nodes have got beyond an offset."""
        self.stage.wait(lambda: self.is_cleaned(*node_ids, above=above))

    def is_cleaned(self, *node_ids: int, above: int) -> bool:
        found = [self.stage.cluster.replica(node_id, self.stage.topic) for node_id in node_ids]
        return all(replica is not None and replica.bounds.durable.mcco > above for replica in found)

    def wait_gone(self, offset: int, *node_ids: int) -> None:
        """Until these nodes have dropped the record at an offset."""
        self.stage.wait(lambda: not any(self.holds(node_id, offset) for node_id in node_ids))

    def holds(self, node_id: int, offset: int) -> bool:
        for stored in self.stage.replica(node_id).log.batches(offset, offset + 1):
            if any(record.offset == offset for record in records_of(stored.view())):
                return True
        return False

    def wait_reported(self, leader: int, *node_ids: int, above: int) -> None:
        """Until this leader has heard that they are cleaned beyond an offset."""
        group, bounds = self.stage.replica(leader).group, self.stage.replica(leader).bounds

        def have_reported() -> bool:
            reports = [bounds.report_of(each) for each in group.members if each.node_id in node_ids]
            return all(report is not None and report.mcco > above for report in reports)

        self.stage.wait(have_reported)

    # -- members

    def leader_and_followers(self) -> tuple[int, ...]:
        """... in an order of the seed's. The leader stays, unless something happens to it."""
        # It is the preferred one soon.
        self.stage.wait(lambda: self.stage.leader_now() == 1)
        return 1, *self.stage.followers()

    def identities(self, *node_ids: int) -> tuple[ReplicaId, ...]:
        return tuple(self.stage.replica(node_id).group.self_id for node_id in node_ids)

    def wait_identity(self, node_id: int, incarnation: int) -> None:
        """Until its replica has this incarnation, and votes."""

        def is_voter() -> bool:
            leader, replica = self.stage.leader_now(), self.stage.cluster.replica(node_id, self.stage.topic)
            if leader is None or replica is None or replica.group.self_id.incarnation != incarnation:
                return False
            return replica.group.self_id in self.stage.replica(leader).group.committed_configuration.voters

        self.stage.wait(is_voter)

    def reassign(self, *node_ids: int) -> None:
        """... and wait until these are the voters, by a committed configuration."""
        self.stage.begin_reassigning(*node_ids)
        self.wait_voters(node_ids)

    def wait_voters(self, node_ids: Sequence[int]) -> None:
        self.stage.wait(lambda: self.voters() == sorted(node_ids))

    def voters(self) -> list[int]:
        leader = self.stage.leader_now()
        if leader is None or self.stage.replica(leader).group.configuration.learners:
            return []
        voters = self.stage.replica(leader).group.committed_configuration.voters
        return sorted(voter.node_id for voter in voters)


class _Answer:
    """Implements `broker.replication.waits.Acknowledged`."""

    def __init__(self) -> None:
        self.error: ErrorCode | None = None

    def partition_done(self, slot: int, error_code: ErrorCode) -> None:
        self.error = ErrorCode(error_code)
