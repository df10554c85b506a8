"""Where a log starts, for clients and for producers (replication.md sections 6 to 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.replication import snapshot_install
from broker.replication.producer_state_maintenance import ProducerStateMaintenance
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.replication.waits import Acknowledged
from broker.replication.watermarks import log_start
from broker.replication.watermarks.log_start import LogStart
from protocol.controller.replicas import ReassignedPartition, ReassignPartitions
from protocol.errors import ErrorCode
from raft.leader import Leader
from raft.types import Watermarks
from storage.log import Log
from storage.producer_snapshot import Snapshot, write_snapshot
from storage.producer_state import ProducerStates
from tests.simulator.disk import MemoryDisk
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import CARELESS, EARLIEST, ELECTION_TIMEOUT_S, Stage
from tests.simulator.mutations.switch import off, without_call

#: Producers that are not the stage's usual one.
RETRYING, LATE = 3_000_000, 4_000_000


def _some_records(stage: Stage) -> int:
    """Enough for some segments. Returns the end offset."""
    for _ in range(stage.rng.randint(20, 30)):
        end_offset = stage.write(size_bytes=600) + 1
    return end_offset


def _earliest(stage: Stage) -> int:
    """As the leader shows it, once there is one that knows."""
    while True:
        error, offset = stage.offset_of(stage.leader(), EARLIEST)
        if error is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            assert error is ErrorCode.NONE, error
            return offset


# -- log start in vote grants --------------------------------------------------------------------------------


@contextmanager
def _persists_no_log_start(stage: Stage, node_id: int) -> Iterator[None]:
    """Within the block a node's raised log starts do not reach its journal. They do afterwards."""
    replicas = stage.cluster.nodes[node_id].replicas
    persist, late = replicas.persist_log_start, list[tuple[Replica, int]]()
    replicas.persist_log_start = lambda replica, offset: late.append((replica, offset))  # type: ignore[method-assign]
    try:
        yield
    finally:
        replicas.persist_log_start = persist  # type: ignore[method-assign]
    for replica, offset in late:
        stage.call(node_id, persist, replica, offset)


def _ask_for_start(stage: Stage, start: int, times: int) -> None:
    """Whoever leads refuses to answer, or says that the records below `start` are deleted."""
    for _ in range(times):
        error, found = stage.offset_of(stage.leader(), EARLIEST)
        assert error is ErrorCode.NOT_LEADER_OR_FOLLOWER or found >= start, (
            f"records below {start} were deleted; now the log starts at {found}"
        )
        stage.run_for(0.1)


def the_one_that_did_not_hear_of_a_deletion_leads(stage: Stage) -> None:
    """A and B have deleted. C was cut off meanwhile and has everything. A dies, and C is elected by B's vote. What was
    deleted must not be back."""
    stage.create_topic()
    end_offset = _some_records(stage)
    stage.everybody_has_all()
    a = stage.leader()
    c = stage.followers()[0]
    stage.isolate(c)
    start = stage.rng.randint(1, end_offset)
    stage.delete_below(start)
    stage.wait(lambda: stage.replica(a).log_start_offset == start)
    assert _earliest(stage) == start
    stage.cluster.kill(a)
    # C hears of B's log start in other messages, too. That must not reach C's journal before readers ask: what keeps C
    # from a wrong answer then is B's vote alone.
    with _persists_no_log_start(stage, c):
        stage.heal()
        stage.lead(c)
        _ask_for_start(stage, start, 5)
    assert _earliest(stage) == start
    stage.cluster.start(a)


# -- shown only when a majority has it -----------------------------------------------------------------------


def a_deletion_is_shown_too_early(stage: Stage) -> None:
    """Only the leader has deleted, and is cut off; a reader asks it, and then the next one."""
    stage.create_topic()
    end_offset = _some_records(stage)
    stage.everybody_has_all()
    old = stage.leader()
    stage.isolate(old)
    start = stage.rng.randint(1, end_offset)
    stage.delete_below(start)
    shown = stage.fetch(old, start).log_start
    stage.wait(lambda: stage.leader_now() not in (None, old))
    found = _earliest(stage)
    assert found >= shown, f"a reader was shown the log start {shown}, and later {found}"
    stage.delete_below(start)


def _when_durable_here(_: object) -> object:
    def wait(self: LogStart, offset: int, waiter: Acknowledged, slot: int) -> None:
        replica = self._replica
        if offset <= replica.log.start_offset:
            waiter.partition_done(slot, ErrorCode.NONE)
        else:
            replica.host.after_flush_of(replica, lambda: wait(self, offset, waiter, slot))

    return wait


def _told_at_once(_: object) -> object:
    def persist(self: Replicas, replica: Replica, offset: int) -> None:
        self._bounds.raise_log_start(replica.key, offset)
        self._log_start_persisted(replica, offset)

    return persist


class _Answer:
    """To one deletion."""

    error: ErrorCode | None = None

    def partition_done(self, slot: int, error: ErrorCode) -> None:
        self.error = error


def a_deletion_is_answered_and_its_leader_dies(stage: Stage) -> None:
    """The leader is cut off when it is asked to delete. If it says that it has, whoever leads next has, too."""
    stage.create_topic()
    end_offset = _some_records(stage)
    stage.everybody_has_all()
    a = stage.leader()
    replica, answer = stage.replica(a), _Answer()
    stage.isolate(a)
    start = stage.rng.randint(1, end_offset)
    stage.delete_below(start)
    stage.call(a, replica.log_start.wait_committed, start, answer, 0)
    stage.run_for(stage.rng.uniform(0.1, 0.5))
    stage.cluster.kill(a)
    stage.heal()
    found = _earliest(stage)
    assert answer.error is not ErrorCode.NONE or found >= start, (
        f"records below {start} were deleted, a client was told; now the log starts at {found}"
    )
    stage.cluster.start(a)


def all_lose_power_before_a_deletion_is_flushed(stage: Stage) -> None:
    """What was shown before is there afterwards."""
    stage.create_topic()
    end_offset = _some_records(stage)
    stage.everybody_has_all()
    replica = stage.replica(stage.leader())
    disks = stage.cluster.disks
    for disk in disks.values():
        disk.faults.slow_factor = 500.0
    start = stage.rng.randint(1, end_offset)
    stage.cluster.oracle.deletions.asked(replica.key, start)
    stage.call(replica.group.self_id.node_id, replica.log_start.delete_records, start)
    stage.run_for(stage.rng.uniform(0.01, 0.05))
    shown = replica.log_start_offset
    for node_id, disk in disks.items():
        stage.cluster.cut_power(node_id)
        disk.faults.slow_factor = 1.0
    stage.start(*disks)
    found = _earliest(stage)
    assert found >= shown, f"a reader was shown the log start {shown}, and after the power cut {found}"


def the_one_that_did_not_hear_of_a_deletion_is_left(stage: Stage) -> None:
    """A and B of three have deleted, C hears of it and is slow to persist it. The partition is moved to C alone; what C
    shows then must have been deleted, too."""
    stage.create_topic()
    end_offset = _some_records(stage)
    stage.everybody_has_all()
    a = stage.leader()
    c = stage.followers()[0]
    with _persists_no_log_start(stage, c):
        start = stage.rng.randint(1, end_offset)
        stage.delete_below(start)
        stage.wait(lambda: stage.replica(a).log_start_offset == start)
        target = ReassignedPartition(topic=stage.topic, partition=0, node_ids=[c])
        stage.ask_controller(c, ReassignPartitions(partitions=[target]))
        stage.run_for(0.1)
        _ask_for_start(stage, start, 20)
    stage.wait(lambda: stage.leader_now() == c)
    assert _earliest(stage) == start


# -- producer snapshots --------------------------------------------------------------------------------------


def _of_no_producers(_: object) -> object:
    def ensure(log: Log, end_offset: int, high_watermark: int) -> None:
        states = ProducerStates()
        states.end_offset = end_offset
        write_snapshot(log, Snapshot.of(states), high_watermark)

    return ensure


def _of_nobody(encode: Callable[[ProducerStates], bytes]) -> object:
    return lambda states: encode(ProducerStates())


def a_retry_comes_to_the_one_that_was_installed(stage: Stage) -> None:
    """Retention removes a producer's only batch, a follower begins anew at the log start and leads; the batch is sent
    again, because its answer was lost."""
    stage.create_topic()
    stage.write(producer_id=RETRYING)
    away = stage.followers()[0]
    stage.cluster.kill(away)
    end_offset = _some_records(stage)
    stage.delete_below(stage.rng.randint(end_offset - 4, end_offset - 1))
    stage.everybody_has_all()
    stage.start(away)
    stage.everybody_has_all()
    stage.lead(away)
    stage.write(producer_id=RETRYING, sequence=0)
    stage.write()


def _written_at_once(capture_state: Callable[..., None]) -> object:
    def capture(self: ProducerStateMaintenance, log: Log, states: ProducerStates) -> None:
        capture_state(self, log, states)
        assert self.pending is not None
        self.write_snapshot(log, self.pending, self.pending.end_offset)

    return capture


def a_batch_was_truncated_and_comes_again(stage: Stage) -> None:
    """A leader that is cut off takes a producer's batch and begins new segments; all of that is truncated, and it
    starts again. Sent to it now, the batch is new."""
    stage.create_topic()
    stage.write()
    stage.everybody_has_all()
    old = stage.leader()
    stage.isolate(old)
    stage.append(old, producer_id=LATE)
    for _ in range(12):
        stage.append(old, producer_id=CARELESS, size_bytes=600)
        stage.run_for(0.02)
    stage.wait(lambda: stage.leader_now() not in (None, old))
    for _ in range(20):
        stage.write()  # small, so that they begin no segment
    stage.heal()
    stage.everybody_has_all()
    stage.cluster.kill(old)
    stage.start(old)
    stage.everybody_has_all()
    stage.lead(old)
    stage.write(producer_id=LATE, sequence=0)
    stage.write()


# -- install -------------------------------------------------------------------------------------------------


def an_installed_follower_loses_power(stage: Stage) -> None:
    """C is installed and acknowledges a record with A, while B is cut off. C loses power, A dies: whoever leads
    then, the record is there."""
    stage.create_topic()
    a = stage.leader()
    b, c = stage.followers()
    stage.cluster.kill(c)
    end_offset = _some_records(stage)
    stage.delete_below(stage.rng.randint(end_offset - 4, end_offset - 1))
    stage.everybody_has_all()
    stage.start(c)
    stage.wait(lambda: stage.replica(c).log.start_offset > 0)
    stage.isolate(b)
    stage.write()
    stage.run_for(stage.rng.uniform(0, 0.05))
    stage.cluster.cut_power(c)
    stage.cluster.kill(a)
    stage.heal()
    stage.cluster.start(c)
    stage.run_for(4 * ELECTION_TIMEOUT_S)
    stage.cluster.start(a)
    stage.write()


MUTATIONS = (
    Mutation(
        "log-start-in-votes",
        "Vote grants carry the voter's log start; the winner takes the maximum before it serves (section 6)",
        off((Watermarks, "maximum", lambda _: lambda self, other: self)),
        story=the_one_that_did_not_hear_of_a_deletion_leads,
    ),
    Mutation(
        "log-start-committed-by-majority",
        "Clients are shown a log start only once a majority has persisted it (section 6)",
        off((Leader, "majority_log_start", lambda _: lambda self, voters: self._state.watermarks.log_start)),
        story=a_deletion_is_shown_too_early,
    ),
    Mutation(
        "deletion-answered-by-majority",
        "DeleteRecords is answered once a majority has persisted the log start (section 6)",
        off((LogStart, "wait_committed", _when_durable_here)),
        story=a_deletion_is_answered_and_its_leader_dies,
    ),
    Mutation(
        "log-start-durable",
        "A log start is durable before it is told, shown, or deletes anything (section 6)",
        off((Replicas, "persist_log_start", _told_at_once)),
        story=all_lose_power_before_a_deletion_is_flushed,
    ),
    Mutation(
        "members-have-the-log-start",
        "Members change only while a majority of the new ones has the log start that was shown (section 6)",
        off((Replica, "may_become", lambda _: lambda self, configuration: True)),
        story=the_one_that_did_not_hear_of_a_deletion_is_left,
    ),
    Mutation(
        "snapshot-before-deletion",
        "A producer snapshot at or below the log start is durable before the bytes below it go (section 8)",
        off((log_start, "ensure_snapshot", _of_no_producers)),
        story=a_retry_comes_to_the_one_that_was_installed,
    ),
    Mutation(
        "snapshot-travels-with-install",
        "The producer snapshot travels with an install (section 8)",
        off((snapshot_install, "encode_snapshot", _of_nobody)),
        story=a_retry_comes_to_the_one_that_was_installed,
    ),
    Mutation(
        "snapshot-of-committed",
        "Producer snapshots are of committed state only, and truncation removes those above the cut (section 8)",
        off(
            (ProducerStateMaintenance, "capture_state", _written_at_once),
            (Log, "remove_snapshots_above", lambda _: lambda self, offset: None),
        ),
        story=a_batch_was_truncated_and_comes_again,
        note="two rules, either is enough: what is committed is never cut, and what is removed is never read",
    ),
    Mutation(
        "install-durable",
        "An install is acknowledged only when the folder of the new log is durable by name (section 7)",
        without_call(MemoryDisk, "flush_directory", snapshot_install, "install_log"),
        story=an_installed_follower_loses_power,
    ),
)
