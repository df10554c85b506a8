"""Partitions that move (replication.md sections 3 and 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from broker.metadata.decisions.reassignments import ReassignmentDecisions
from broker.metadata.records import ReplicaIdentity, TopicRecord
from broker.partitions.publisher import Publisher
from broker.replication.heartbeat import Heartbeat
from broker.replication.log_opener import LogOpener
from broker.replication.replica import Replica
from protocol.controller.replicas import ReassignedPartition, ReassignPartitions
from protocol.errors import ErrorCode
from raft.types import Configuration
from storage.errors import CorruptLogError
from storage.log_types import GroupKey
from storage.segment_files import segment_path
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import ELECTION_TIMEOUT_S, LATEST, Stage
from tests.simulator.mutations.switch import off

MOVES = ("move partition", "empty node", "fill node")


def _forgotten(give_up: Callable[[Publisher, GroupKey], None]) -> object:
    """With the log goes what the journal knows, so that the node begins as the replica that it was."""

    def forget_too(publisher: Publisher, key: GroupKey) -> None:
        give_up(publisher, key)
        topic = publisher._metadata.image.topics.get(key.topic_id)
        if topic is not None and not publisher._is_assigned(topic, key.partition):
            publisher._replicas.forget_group(key)

    return forget_too


def _target_only(_: object) -> object:
    """A node that the target does not name has nothing, whether its removal is committed or not."""

    def is_mine(publisher: Publisher, topic: TopicRecord, partition: int) -> bool:
        return publisher._me.node_id in topic.partitions[partition].replicas

    return is_mine


def _move(stage: Stage, via: int, *targets: list[int]) -> None:
    """Reassign to these nodes, or one list after the other; the last target is committed when this returns."""
    request = ReassignPartitions(
        partitions=[ReassignedPartition(topic=stage.topic, partition=0, node_ids=nodes) for nodes in targets]
    )
    answer = stage.ask_controller(via, request)
    assert not any(item.error_code for item in answer.partitions), answer


def _voters(stage: Stage) -> list[int]:
    leader = stage.leader_now()
    if leader is None:
        return []
    return sorted(voter.node_id for voter in stage.replica(leader).group.configuration.voters)


def _two_that_do_not_lead_metadata(stage: Stage) -> tuple[int, int, int]:
    """(controller, one, another)."""
    controller = stage.cluster.nodes[1].leaders.controller_id()
    one, another = stage.rng.sample([x for x in stage.cluster.node_ids if x != controller], 2)
    return controller, one, another


# -- what is said of a reassignment is said of one target --------------------------------------------------------


def _whenever_it_was_said(finish: Callable[..., Any]) -> object:
    def finish_whenever(
        decisions: ReassignmentDecisions,
        topic_id: UUID,
        partition: int,
        voters: Sequence[ReplicaIdentity],
        image_end: int,
    ) -> object:
        return finish(decisions, topic_id, partition, voters, 1 << 60)

    return finish_whenever


def a_leader_says_late_that_its_move_is_over(stage: Stage) -> None:
    """a says that its members are the target, and is not heard. The target changes, the members follow, the target
    changes again; now a is heard. It is b that has the log."""
    if len(stage.cluster.node_ids) < 5:
        return
    controller, a, b = _two_that_do_not_lead_metadata(stage)
    stage.create_topic(replicas=(a,))
    stage.write()
    key = stage.replica(a).key
    _move(stage, controller, [b], [a])
    stage.cut(a, controller)
    reconciler = stage.cluster.nodes[a].reconciler
    if not stage.waited(lambda: key in reconciler._reporting, 3 * ELECTION_TIMEOUT_S):
        return  # it was heard before
    stage.cut(b, controller)
    _move(stage, controller, [b])
    # Who does not answer may not be sent what comes next.
    if not stage.waited(lambda: _voters(stage) == [b], 3 * ELECTION_TIMEOUT_S):
        return
    stage.write()
    stage.cut(a, b)
    stage.cut(b, a)
    _move(stage, controller, [a])
    stage.run_for(stage.rng.uniform(0.1, 0.5))
    stage.join(a, controller)
    stage.run_for(stage.rng.uniform(3, 5) * ELECTION_TIMEOUT_S)
    stage.heal()
    is_led = stage.waited(lambda: stage.leader_now() is not None, 10 * ELECTION_TIMEOUT_S)
    assert is_led, "nobody has the log any more"


# -- who goes is not needed --------------------------------------------------------------------------------------


def _whoever_is_there(_: object) -> object:
    """Only the log start counts."""

    def may_become(replica: Replica, configuration: Configuration) -> bool:
        log_start = replica.log_start
        return (
            log_start.establish_committed()
            and replica.group.majority_log_start(configuration.voters) >= log_start.committed
        )

    return may_become


def the_first_that_came_dies_before_the_last_comes(stage: Stage) -> None:
    """From 1 and 2 to 3 and 4: 3 votes already and is dead when 4 has caught up. 1, 2 and 4 are there."""
    if len(stage.cluster.node_ids) < 4:
        return
    stage.create_topic(replicas=(1, 2))
    stage.write()
    stage.cluster.kill(4)
    _move(stage, stage.leader(), [3, 4])
    stage.wait(lambda: _voters(stage) == [1, 2, 3])
    stage.cluster.kill(3)
    stage.run_for(stage.rng.uniform(2, 3) * ELECTION_TIMEOUT_S)
    stage.start(4)
    stage.run_for(stage.rng.uniform(5, 8) * ELECTION_TIMEOUT_S)
    assert stage.leader_now() is not None, "1, 2 and 4 are there, and nobody leads"
    stage.write()
    stage.cluster.start(3)


# -- an only copy is kept --------------------------------------------------------------------------------------


def an_only_log_is_corrupted_while_it_moves(stage: Stage) -> None:
    """From a to b, which has nothing yet."""
    if len(stage.cluster.node_ids) < 3:
        return
    controller, a, b = _two_that_do_not_lead_metadata(stage)
    stage.create_topic(replicas=(a,))
    for _ in range(stage.rng.randint(3, 6)):
        stage.write()
    stage.run_for(0.5)  # until the flushed end is recorded: below it a bad batch is corruption
    stage.cut(a, b)
    stage.cut(b, a)
    _move(stage, controller, [b])
    stage.run_for(0.3)
    log = stage.replica(a).log
    path = segment_path(log.directory, log.first_stored_offset)
    size_bytes = stage.cluster.disks[a].open(path).size
    stage.cluster.kill(a)
    stage.cluster.disks[a].open(path).write_at(stage.rng.randrange(61, 70), b"\xff\x00\xff")
    stage.start(a)
    stage.run_for(2 * ELECTION_TIMEOUT_S)
    disk = stage.cluster.disks[a]
    assert disk.exists(path) and disk.open(path).size == size_bytes, "the only copy was discarded"
    stage.heal()
    stage.delete_topic()


# -- what was promised outlives the replica ----------------------------------------------------------------------


def _forgotten_when_closed(group_closed: Callable[[Heartbeat, GroupKey], None]) -> object:
    """Once the replica is closed, nobody here knows the term of its last promise."""

    def forget_too(heartbeat: Heartbeat, key: GroupKey) -> None:
        group_closed(heartbeat, key)
        heartbeat._liveness.group_deleted(key)

    return forget_too


def a_deposed_leader_asks_one_that_has_no_replica_any_more(stage: Stage) -> None:
    """It reaches only a node that has helped to depose it. That one gave its replica up since, or begins it anew."""
    if len(stage.cluster.node_ids) < 4 or stage.rng.random() < 0.5:
        a_deposed_leader_asks_one_that_was_quarantined(stage)
    else:
        a_deposed_leader_asks_one_that_gave_its_replica_up(stage)


def a_deposed_leader_asks_one_that_gave_its_replica_up(stage: Stage) -> None:
    """X is deposed, Y has promised something to its successor, and the partition moves from Y to V."""
    controller = stage.cluster.nodes[1].leaders.controller_id()
    x, other, v = stage.rng.sample(
        [node_id for node_id in stage.cluster.node_ids if node_id != controller], 3
    )
    successor, connect = _depose(stage, x, (controller, other))
    y = other if successor == controller else controller
    _move(stage, controller, [x, successor, v])
    stage.wait(lambda: stage.cluster.replica(y, stage.topic) is None)
    _asks_only(stage, x, y, connect)


def a_deposed_leader_asks_one_that_was_quarantined(stage: Stage) -> None:
    """X is deposed. Y has promised something to its successor, and finds its log corrupt. Its disk has no room for a
    new one."""
    x, one, other = stage.rng.sample(stage.cluster.node_ids[:3], 3)
    successor, connect = _depose(stage, x, (one, other))
    y = other if successor == one else one
    stage.cluster.disks[y].faults.capacity_bytes = 0
    replica = stage.replica(y)
    stage.cluster.damage.note(y, replica.key)
    error = CorruptLogError(replica.log.directory, 0, "found by a read")
    stage.call(y, stage.cluster.nodes[y].replicas.log_corrupt, replica, error)
    stage.wait(lambda: stage.cluster.replica(y, stage.topic) is None)
    _asks_only(stage, x, y, connect)


def _depose(stage: Stage, x: int, others: tuple[int, int]) -> tuple[int, Callable[[int], None]]:
    """X leads, all others lose it at once, and one of them is elected. Returns that one, and what connects X with a
    node again. X still believes that it leads: CheckQuorum has not ended that yet."""
    stage.create_topic(replicas=(x, *others))
    stage.lead(x)
    stage.write()
    stage.everybody_has_all()
    connect = stage.disconnect(x)
    stage.wait(lambda: stage.leader_now() not in (None, x))
    successor = stage.leader()
    stage.write()
    return successor, connect


def _asks_only(stage: Stage, x: int, y: int, connect: Callable[[int], None]) -> None:
    """A consumer that is at the end of the log asks X, which reaches Y and nobody else."""
    end = stage.replica(stage.leader()).high_watermark
    connect(y)
    stage.run_for(stage.rng.uniform(0.5, 2.5) * ELECTION_TIMEOUT_S)
    error, latest = stage.offset_of(x, LATEST)
    assert error is not ErrorCode.NONE or latest >= end, (
        f"a deposed leader says that {latest} is the latest offset, and it is {end}"
    )
    assert stage.fetch(x, end).error is not ErrorCode.OFFSET_OUT_OF_RANGE, (
        f"a deposed leader sends a consumer away that is at the end of the log, {end}"
    )


MUTATIONS = (
    Mutation(
        "removed-is-somebody-else",
        "A replica that was removed, with its log, comes back under another identity (section 3)",
        off((Publisher, "_give_up_replica", _forgotten)),
        MOVES,
    ),
    Mutation(
        "deleted-when-removed",
        "A replica's log is deleted only on a committed removal (section 4)",
        off((Publisher, "_is_assigned", _target_only)),
        MOVES,
    ),
    Mutation(
        "a-move-is-over-as-of",
        "That a reassignment is over counts only while the target is the one of which it was said (partitions/README)",
        off((ReassignmentDecisions, "finish", _whenever_it_was_said)),
        bound=200,
        story=a_leader_says_late_that_its_move_is_over,
        note="needs five nodes; with fewer the story is empty",
    ),
    Mutation(
        "who-stays-is-a-majority-that-is-there",
        "Nobody is taken out while the rest has no majority that is there (broker/README)",
        off((Replica, "may_become", _whoever_is_there)),
        story=the_first_that_came_dies_before_the_last_comes,
        note="needs four nodes; with fewer the story is empty",
    ),
    Mutation(
        "an-only-copy-is-kept",
        "Nothing but an operator discards an only copy, also while it moves (broker/README)",
        off((LogOpener, "_was_only_voter", lambda _: lambda opener, directory: False)),
        story=an_only_log_is_corrupted_while_it_moves,
    ),
    Mutation(
        "promise-outlives-the-replica",
        "What a node has promised in a group contradicts older leaders while its journal knows the group (section 5)",
        off((Heartbeat, "group_closed", _forgotten_when_closed)),
        story=a_deposed_leader_asks_one_that_has_no_replica_any_more,
    ),
)
