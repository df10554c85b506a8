"""Reassigned partitions: the members follow the target, and a log goes only when its removal is committed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.node import Node
from protocol.api_keys import ApiKey
from protocol.controller.replicas import ReassignedPartition, ReassignPartitions
from protocol.controller.topics import CreateTopics, NewTopic, ReplicaAssignment
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.broker.asking import ask
from tests.broker.world import World, running


def reassign(world: World, name: str, *replicas: int) -> None:
    """Ask for it; the target is committed when this returns."""
    assert alter(world, (name, 0, replicas)) == [(ErrorCode.NONE, None)]


def alter(
    world: World, *targets: tuple[str, int, Sequence[int] | None], may_change_count: bool = True
) -> list[tuple[int, str | None]]:
    """AlterPartitionReassignments: code and message of each."""
    body = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_change_count,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(
                        partition_index=number, replicas=None if replicas is None else list(replicas)
                    )
                ],
            )
            for name, number, replicas in targets
        ],
    )
    key, node_id = ApiKey.ALTER_PARTITION_REASSIGNMENTS, next(iter(world.nodes))
    answer = ask(world, node_id, key, 1, body, AlterPartitionReassignmentsResponse)
    assert answer.error_code == ErrorCode.NONE, answer
    assert [topic.name for topic in answer.responses] == [name for name, _, _ in targets]
    return [(x.error_code, x.error_message) for topic in answer.responses for x in topic.partitions]


def ongoing(world: World, *named: tuple[str, int]) -> dict[tuple[str, int], tuple[list[int], ...]]:
    """ListPartitionReassignments of these, or of all: replicas, those that come, those that go."""
    topics = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=[number]) for name, number in named
    ]
    body = ListPartitionReassignmentsRequest(topics=topics or None)
    key, node_id = ApiKey.LIST_PARTITION_REASSIGNMENTS, next(reversed(world.nodes))
    answer = ask(world, node_id, key, 0, body, ListPartitionReassignmentsResponse)
    assert answer.error_code == ErrorCode.NONE, answer
    return {
        (topic.name, x.partition_index): (x.replicas, x.adding_replicas, x.removing_replicas)
        for topic in answer.topics
        for x in topic.partitions
    }


def nodes_of(world: World, name: str) -> list[int]:
    return [node_id for node_id, _, _ in world.voters(name)]


def is_moving(node: Node, name: str) -> bool:
    topic = node.metadata.image.topic_named(name)
    return topic is None or topic.partitions[0].is_reassigning


def wait_moved(world: World, name: str, *replicas: int) -> None:
    """The members are the target, the controller has recorded that, and nobody else has a log."""
    world.wait(lambda: nodes_of(world, name) == sorted(replicas))
    world.wait(
        lambda: all(
            (node_id in replicas) == (f"{name}-0" in world.folders(node_id, name)) for node_id in world.nodes
        )
    )
    world.wait(lambda: not any(is_moving(node, name) for node in world.nodes.values()))


def create(world: World, name: str, replicas: list[int]) -> None:
    topic = NewTopic(name=name, assignments=[ReplicaAssignment(partition=0, node_ids=replicas)])
    answer = world.ask(1, CreateTopics(topics=[topic]))
    assert answer.topics[0].error_code == 0, answer
    world.produce(name, b"before")


def contents(world: World, name: str, replicas: tuple[int, ...]) -> list[bytes]:
    world.wait(lambda: len({world.replica(x, name).high_watermark for x in replicas}) == 1)
    return [world.content(node_id, name) for node_id in replicas]


def test_a_partition_moves_to_other_nodes_with_all_that_it_holds() -> None:
    with running(size=5) as world:
        create(world, "foo", [1, 2, 3])
        reassign(world, "foo", 4, 5, 3)
        wait_moved(world, "foo", 3, 4, 5)
        assert world.produce("foo", b"after") == 1
        one, *others = contents(world, "foo", (3, 4, 5))
        assert one and others == [one, one]
        world.wait(lambda: world.folders(1, "foo-0") == [])


def test_a_partition_grows_and_shrinks() -> None:
    with running(size=4) as world:
        create(world, "foo", [1, 2])
        reassign(world, "foo", 1, 2, 3, 4)
        wait_moved(world, "foo", 1, 2, 3, 4)
        world.produce("foo", b"four")
        reassign(world, "foo", 4)
        wait_moved(world, "foo", 4)
        assert world.produce("foo", b"one") == 2


def test_a_node_that_comes_back_to_a_partition_has_another_identity() -> None:
    """Its log went, and with it what it had promised: it must not vote as who it was (replication.md section 3)."""
    with running(size=4) as world:
        create(world, "foo", [1, 2, 3])
        reassign(world, "foo", 2, 3, 4)
        wait_moved(world, "foo", 2, 3, 4)
        reassign(world, "foo", 1, 2, 3)
        wait_moved(world, "foo", 1, 2, 3)
        assert [(node_id, life) for node_id, _, life in world.voters("foo")] == [(1, 1), (2, 0), (3, 0)]
        one, *others = contents(world, "foo", (1, 2, 3))
        assert one and others == [one, one]


def test_the_only_copy_moves_away_and_back() -> None:
    with running(size=3) as world:
        create(world, "foo", [1])
        for there in (2, 1, 3, 1):
            reassign(world, "foo", there)
            wait_moved(world, "foo", there)
        assert world.produce("foo", b"after") == 1


def test_a_node_that_goes_and_restarts_is_needed_until_its_removal_is_committed() -> None:
    """Its log holds the only whole copy: the new nodes have nothing yet."""
    with running(size=3) as world:
        create(world, "foo", [1])
        for node_id in (2, 3):
            world.network.partition(["n1"], [f"n{node_id}"])
        target = ReassignedPartition(topic="foo", partition=0, node_ids=[2])
        world.ask(2, ReassignPartitions(partitions=[target]))
        world.kill(1)
        world.network.heal_all()
        world.start(1)
        world.wait_ready(1)
        wait_moved(world, "foo", 2)
        assert world.produce("foo", b"after") == 1


def test_a_node_that_was_away_while_it_was_removed_gives_its_log_up() -> None:
    with running(size=4) as world:
        create(world, "foo", [1, 2, 3])
        world.kill(1)
        reassign(world, "foo", 2, 3, 4)
        wait_moved(world, "foo", 2, 3, 4)
        assert world.disks[1].exists("/n1/foo-0")
        world.start(1)
        world.wait_ready(1)
        world.wait(lambda: not world.folders(1, "foo-0."))
        assert not world.disks[1].exists("/n1/foo-0")
        world.delete_topic("foo")
        assert all(key.topic_id.int == 1 for key in world.nodes[1].journal.groups()), (
            "and nothing is remembered"
        )


def test_a_target_that_is_changed_before_it_is_reached() -> None:
    with running(size=5) as world:
        create(world, "foo", [1, 2, 3])
        reassign(world, "foo", 4, 5)
        reassign(world, "foo", 1, 5, 2)
        wait_moved(world, "foo", 1, 2, 5)
        assert world.produce("foo", b"after") == 1


def test_a_deleted_topic_goes_from_where_it_was_moving_to_and_from() -> None:
    with running(size=4) as world:
        create(world, "foo", [1, 2])
        reassign(world, "foo", 3, 4)
        world.delete_topic("foo")
        world.wait(lambda: not any(world.folders(node_id, "foo-0") for node_id in world.nodes))


def test_what_is_under_way_is_told_by_every_broker_until_it_is_done() -> None:
    with running(size=4) as world:
        create(world, "foo", [1, 2])
        create(world, "bar", [1, 2])
        world.kill(4)
        reassign(world, "foo", 2, 3, 4)
        assert ongoing(world) == {("foo", 0): ([2, 3, 4, 1], [3, 4], [1])}
        assert ongoing(world, ("foo", 0), ("foo", 7), ("bar", 0), ("nope", 0)) == ongoing(world)
        assert ongoing(world, ("bar", 0)) == {}
        world.start(4)
        wait_moved(world, "foo", 2, 3, 4)
        assert ongoing(world) == {}


def test_a_cancelled_move_is_over_at_once_and_leaves_nothing_behind() -> None:
    with running(size=5) as world:
        create(world, "foo", [2, 1, 3])
        world.kill(5)
        reassign(world, "foo", 4, 5, 3)
        reassign(world, "foo", 1, 4, 5)
        assert ongoing(world) == {("foo", 0): ([1, 4, 5, 2, 3], [4, 5], [2, 3])}
        assert alter(world, ("foo", 0, None)) == [(ErrorCode.NONE, None)]
        assert ongoing(world) == {}
        assert alter(world, ("foo", 0, None))[0][0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        wait_moved(world, "foo", 1, 2, 3)
        topic = world.nodes[1].metadata.image.topic_named("foo")
        assert topic is not None and topic.partitions[0].replicas == (2, 1, 3), "in the order of before"
        world.start(5)
        world.wait_ready(5)
        assert not world.folders(5, "foo")
        assert world.produce("foo", b"after") == 1


def test_another_order_of_the_same_replicas_is_no_move() -> None:
    with running(size=3) as world:
        create(world, "foo", [1, 2, 3])
        reassign(world, "foo", 3, 1, 2)
        assert ongoing(world) == {}


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_apache_kafka_refuses_is_refused(replicas: list[int] | None, code: ErrorCode) -> None:
    with running(size=2) as world:
        create(world, "foo", [1, 2])
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answers = alter(world, ("foo", 0, replicas), ("foo", 7, [1]), ("nope", 0, None), ("foo", 0, [2, 1]))
        assert [answer[0] for answer in answers] == [code, unknown, unknown, ErrorCode.NONE]
        assert ongoing(world) == {}


def test_another_number_of_replicas_can_be_forbidden() -> None:
    with running(size=3) as world:
        create(world, "foo", [1, 2])
        refused = alter(world, ("foo", 0, [1, 2, 3]), ("foo", 0, [2, 3]), may_change_count=False)
        assert [code for code, _ in refused] == [ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE]
        assert alter(world, ("foo", 0, [3]), may_change_count=False)[0][0] == (
            ErrorCode.INVALID_REPLICATION_FACTOR
        ), "counted from what was there before"


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_folder_that_a_full_disk_left_unfinished_goes_with_its_partition(is_deleted: bool) -> None:
    """The move here is cancelled, or the topic deleted, before the disk had room for the replica."""
    with running(size=3) as world:
        create(world, "foo", [1, 2])
        faults = world.disks[3].faults
        faults.capacity_bytes = world.disks[3].used_bytes
        reassign(world, "foo", 1, 2, 3)
        world.wait(lambda: world.folders(3, "foo-0") != [])
        assert not world.nodes[3].replicas.by_name, "its partition.metadata did not fit"
        if is_deleted:
            world.delete_topic("foo")
        else:
            reassign(world, "foo", 1, 2)
            world.wait(lambda: nodes_of(world, "foo") == [1, 2])
        faults.make_room()
        world.wait(lambda: world.folders(3, "foo-0") == [])
        if not is_deleted:
            reassign(world, "foo", 1, 2, 3)
            wait_moved(world, "foo", 1, 2, 3)
