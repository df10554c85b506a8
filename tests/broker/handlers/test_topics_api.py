"""CreateTopics, DeleteTopics, CreatePartitions, DescribeTopicPartitions and Metadata, over the wire of whole nodes.
Codes are those that Apache Kafka 4.3.1 answered to the same requests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pytest

from broker.metadata.ids import MAX_TOPIC_NAME_LENGTH
from protocol.api_keys import ApiKey
from protocol.controller import topics as controller
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from protocol.messages.metadata import (
    OPERATIONS_NOT_REQUESTED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from protocol.schema import NIL_UUID
from tests.broker.asking import ask, begin_ask
from tests.broker.world import World, running

NONE = ErrorCode.NONE
PARTITIONS, REPLICAS = ErrorCode.INVALID_PARTITIONS, ErrorCode.INVALID_REPLICATION_FACTOR
ASSIGNMENT, REQUEST = ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.INVALID_REQUEST
CONFIG, NAME = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_TOPIC_EXCEPTION
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def world() -> Iterator[World]:
    with running() as made:
        made.create_topic("t", 2)
        yield made


# -- CreateTopics -----------------------------------------------------------------------------------------------


def create(
    world: World,
    name: str = "new",
    count: int = 1,
    replicas: int = 1,
    *,
    assigned: Sequence[tuple[int, list[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
    version: int = 7,
    validate_only: bool = True,
) -> CreatableTopicResult:
    topic = CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(partition_index=p, broker_ids=ids) for p, ids in assigned],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )
    body = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    (result,) = ask(world, 1, ApiKey.CREATE_TOPICS, version, body, CreateTopicsResponse).topics
    return result


@pytest.mark.parametrize(
    ("name", "count", "replicas", "code"),
    [
        ("t", 1, 1, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("new", 1, 9, REPLICAS),
        ("new", 1, 0, REPLICAS),
        ("new", 1, -2, REPLICAS),
        ("new", 0, 1, PARTITIONS),
        ("new", -2, 1, PARTITIONS),
        ("new", 10_001, 1, ErrorCode.POLICY_VIOLATION),
        ("a b", 1, 1, NAME),
        ("", 1, 1, NAME),
        (".", 1, 1, NAME),
        ("x" * 250, 1, 1, NAME),
        ("__cluster_metadata", 1, 1, REQUEST),
        ("__consumer_offsets", 1, 1, REQUEST),  # Kafka accepts it; here only the coordinator creates it
    ],
)
def test_topics_that_are_refused(world: World, name: str, count: int, replicas: int, code: ErrorCode) -> None:
    result = create(world, name, count, replicas)
    assert (result.error_code, result.error_message is None) == (code, code is NONE)
    if code is not NONE:
        assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])


@pytest.mark.parametrize(
    ("assigned", "code"),
    [
        ([(0, [1]), (1, [2])], NONE),
        ([(0, [1]), (2, [2])], ASSIGNMENT),
        ([(1, [1])], ASSIGNMENT),
        ([(0, [1]), (0, [2])], ASSIGNMENT),
        ([(0, [1, 1])], ASSIGNMENT),
        ([(0, [99])], ASSIGNMENT),
        ([(0, [1]), (1, [1, 2])], ASSIGNMENT),
        ([(0, [])], ASSIGNMENT),
    ],
)
def test_assignments(world: World, assigned: list[tuple[int, list[int]]], code: ErrorCode) -> None:
    assert create(world, count=-1, replicas=-1, assigned=assigned).error_code == code
    assert create(world, count=1, replicas=-1, assigned=assigned).error_code == REQUEST


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([("unknown", "1")], CONFIG),
        ([("retention.ms", None)], CONFIG),
        ([("retention.ms", "x")], CONFIG),
        ([("retention.ms", "-2")], CONFIG),
        ([("retention.ms", "1"), ("retention.ms", "2")], NONE),
        ([("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")], CONFIG),
        ([("cleanup.policy", "")], NONE),
        ([("cleanup.policy", "delete,delete")], NONE),
        ([("remote.storage.enable", "true")], CONFIG),
        ([("min.insync.replicas", "3")], NONE),
    ],
)
def test_settings_of_new_topics(world: World, configs: list[tuple[str, str | None]], code: ErrorCode) -> None:
    assert create(world, configs=configs).error_code == code


def test_the_answer_about_a_created_topic_depends_on_the_version(world: World) -> None:
    result = create(world, count=-1, replicas=-1, configs=[("retention.ms", "1000")], validate_only=False)
    assert (result.num_partitions, result.replication_factor) == (1, 3)
    assert result.topic_id != NIL_UUID
    assert result.configs is not None and len(result.configs) == 33
    sources = {row.name: (row.value, row.config_source) for row in result.configs}
    assert sources["retention.ms"] == ("1000", 1)
    assert sources["segment.bytes"] == ("1073741824", 5)
    old = create(world, "older", version=4)
    assert (old.error_code, old.num_partitions, old.configs) == (NONE, -1, [])


def test_a_name_that_is_requested_twice_is_answered_once(world: World) -> None:
    topics = [CreatableTopic(name="twice", num_partitions=1, replication_factor=1) for _ in range(2)]
    answer = ask(world, 1, ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics), CreateTopicsResponse)
    assert [(x.name, x.error_code) for x in answer.topics] == [("twice", REQUEST)]


# -- DeleteTopics -----------------------------------------------------------------------------------------------


def delete(world: World, *topics: DeleteTopicState) -> list[tuple[str | None, bool, int]]:
    body = DeleteTopicsRequest(topics=list(topics), timeout_ms=1000)
    answer = ask(world, 1, ApiKey.DELETE_TOPICS, 6, body, DeleteTopicsResponse)
    return [(x.name, x.topic_id != NIL_UUID, x.error_code) for x in answer.responses]


def test_topics_that_cannot_be_deleted(world: World) -> None:
    strange = uuid.UUID(int=77)
    assert delete(world) == []
    assert delete(world, DeleteTopicState(name="missing")) == [("missing", False, UNKNOWN)]
    assert delete(world, DeleteTopicState(name="a b")) == [("a b", False, UNKNOWN)]
    assert delete(world, DeleteTopicState(name="__cluster_metadata")) == [
        ("__cluster_metadata", False, UNKNOWN)
    ]
    assert delete(world, DeleteTopicState(topic_id=strange)) == [(None, True, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert delete(world, DeleteTopicState()) == [(None, False, REQUEST)]
    assert delete(world, DeleteTopicState(name="t", topic_id=strange)) == [("t", True, REQUEST)]
    assert delete(world, *[DeleteTopicState(name="t")] * 2) == [("t", True, REQUEST)]
    assert world.nodes[1].metadata.image.topic_named("t") is not None


def test_topics_that_are_named_in_different_ways(world: World) -> None:
    world.create_topic("u", 1)
    topic_id = world.topic_id(1, "t")
    by_name, by_id = DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic_id)
    answers = delete(world, by_name, by_id, DeleteTopicState(name="missing"), DeleteTopicState(name="u"))
    assert answers == [
        ("t", True, NONE),
        ("t", True, REQUEST),
        ("missing", False, UNKNOWN),
        ("u", True, NONE),
    ]
    assert delete(world, by_name, by_id) == [("t", False, UNKNOWN), (None, True, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_a_deletion_that_is_repeated_spares_a_topic_that_was_created_meanwhile(world: World) -> None:
    """The controller deletes the topic, and its answer is lost. Before this node asks again, a client creates a topic
    of the same name."""
    controller_id = world.nodes[1].leaders.controller_id()
    asker, other = sorted({*world.ids} - {controller_id})
    old = world.topic_id(asker, "t")
    body = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    question = begin_ask(world, asker, ApiKey.DELETE_TOPICS, 5, body, DeleteTopicsResponse)
    pending = world.nodes[asker].controller._pending
    world.wait(lambda: any(isinstance(x.request, controller.DeleteTopics) for x in pending.values()))
    world.network.cut(f"n{controller_id}", f"n{asker}")
    world.wait(lambda: world.nodes[other].metadata.image.topic_named("t") is None)
    created = controller.CreateTopics(topics=[controller.NewTopic(name="t", num_partitions=1)])
    assert world.ask(other, created).topics[0].error_code == NONE
    world.loop.run_for(1)
    assert not question.done()
    world.network.heal_all()
    world.wait(question.done)
    assert [(x.name, x.error_code) for x in question.result().responses] == [("t", NONE)]
    world.loop.run_for(1)
    assert world.topic_id(other, "t") != old


def test_a_topic_with_the_longest_name_is_deleted(world: World) -> None:
    """The folder gets another name before its files are removed. With a suffix that would be too long for a file."""
    name = "x" * MAX_TOPIC_NAME_LENGTH
    world.create_topic(name, 1)
    assert delete(world, DeleteTopicState(name=name)) == [(name, True, NONE)]
    world.loop.run_for(10)
    assert all(world.folders(node_id, "x") == [] for node_id in world.ids)
    assert all(process.alive for process in world.processes.values())


# -- CreatePartitions -------------------------------------------------------------------------------------------


def add(
    world: World,
    name: str,
    count: int,
    assigned: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
    version: int = 3,
) -> ErrorCode:
    nodes = None if assigned is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
    body = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=nodes)], validate_only=validate_only
    )
    answer = ask(world, 2, ApiKey.CREATE_PARTITIONS, version, body, CreatePartitionsResponse)
    (result,) = answer.results
    assert result.name == name
    return ErrorCode(result.error_code)


@pytest.mark.parametrize(
    ("name", "count", "assigned", "code"),
    [
        ("t", 2, None, PARTITIONS),
        ("t", 1, None, PARTITIONS),
        ("t", -1, None, PARTITIONS),
        ("t", 20_000, None, ErrorCode.POLICY_VIOLATION),
        ("missing", 3, None, UNKNOWN),
        ("a b", 3, None, UNKNOWN),
        ("__cluster_metadata", 3, None, UNKNOWN),
        ("t", 4, [[1, 2, 3]], ASSIGNMENT),
        ("t", 3, [[1, 2, 99]], ASSIGNMENT),
        ("t", 3, [[1, 2, 2]], ASSIGNMENT),
        ("t", 3, [[1, 2]], ASSIGNMENT),
        ("t", 3, [[]], ASSIGNMENT),
        ("t", 3, [], ASSIGNMENT),
        ("t", 2, [], PARTITIONS),
    ],
)
def test_partitions_that_cannot_be_added(
    world: World, name: str, count: int, assigned: list[list[int]] | None, code: ErrorCode
) -> None:
    assert add(world, name, count, assigned) == code
    topic = world.nodes[2].metadata.image.topic_named("t")
    assert topic is not None and len(topic.partitions) == 2


def test_added_partitions_are_led_and_written_to_and_the_old_ones_stay(world: World) -> None:
    world.produce("t", b"before")
    assert add(world, "t", 5, validate_only=True) == NONE
    assert add(world, "t", 3, [[3, 1, 2]]) == NONE
    assert add(world, "t", 5, version=0) == NONE
    assert world.leader("t", 2) == 3
    for partition in range(5):
        world.produce("t", b"after", partition=partition)
        world.wait_equal("t", partition)
    assert world.produce("t", b"last", partition=0) == 2
    topic = world.nodes[1].metadata.image.topic_named("t")
    assert topic is not None
    assert [len(partition.replicas) for partition in topic.partitions] == [3] * 5


def test_partitions_are_added_while_a_node_is_down(world: World) -> None:
    world.kill(3)
    world.wait(lambda: not world.nodes[1].cluster.is_connected(3))
    assert add(world, "t", 6) == NONE
    for partition in range(6):
        world.produce("t", b"x", partition=partition)
    world.start(3)
    world.wait_ready(3)
    for partition in range(6):
        world.wait_equal("t", partition)


def create_internal(world: World) -> None:
    topic = controller.NewTopic(name="__consumer_offsets", num_partitions=2, replication_factor=3)
    answer = world.ask(1, controller.CreateTopics(topics=[topic], is_internal=True))
    assert answer.topics[0].error_code == NONE


def test_the_coordinators_topic_keeps_its_partitions(world: World) -> None:
    """Kafka allows more partitions, and cannot find the groups' offsets afterwards."""
    create_internal(world)
    assert add(world, "__consumer_offsets", 3) == REQUEST


def test_a_topic_that_is_named_twice_gets_no_partitions(world: World) -> None:
    body = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=7)] * 2)
    answer = ask(world, 1, ApiKey.CREATE_PARTITIONS, 3, body, CreatePartitionsResponse)
    assert [(x.name, x.error_code) for x in answer.results] == [("t", REQUEST)]


# -- DescribeTopicPartitions ------------------------------------------------------------------------------------

Page = tuple[list[tuple[str | None, int, list[int]]], tuple[str, int] | None]


def page(world: World, names: Sequence[str], limit: int, cursor: tuple[str, int] | None = None) -> Page:
    body = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = ask(world, 1, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body, DescribeTopicPartitionsResponse)
    topics = [(x.name, x.error_code, [p.partition_index for p in x.partitions]) for x in answer.topics]
    behind = answer.next_cursor
    return topics, None if behind is None else (behind.topic_name, behind.partition_index)


def test_pages_of_partitions(world: World) -> None:
    world.create_topic("u", 3, 1)
    whole = [("t", 0, [0, 1]), ("u", 0, [0, 1, 2])]
    assert page(world, [], 5) == (whole, None)
    assert page(world, ["u", "t", "u"], 100_000) == (whole, None)
    assert page(world, [], 3) == ([("t", 0, [0, 1]), ("u", 0, [0])], ("u", 1))
    assert page(world, [], 3, ("u", 1)) == ([("u", 0, [1, 2])], None)
    assert page(world, [], 2) == ([("t", 0, [0, 1])], ("u", 0))
    assert page(world, [], 2, ("u", 0)) == ([("u", 0, [0, 1])], ("u", 2))
    assert page(world, [], 0) == ([("t", 0, [0])], ("t", 1))
    assert page(world, [], -1) == ([("t", 0, [0])], ("t", 1))
    assert page(world, ["t"], 2) == ([("t", 0, [0, 1])], None)
    assert page(world, ["t", "zzz"], 2) == ([("t", 0, [0, 1])], ("zzz", 0))
    assert page(world, ["t", "u"], 9, ("t", 99)) == ([("t", 0, []), ("u", 0, [0, 1, 2])], None)


def test_pages_with_missing_topics(world: World) -> None:
    assert page(world, ["t", "a b", "missing"], 9) == (
        [("a b", NAME, []), ("missing", UNKNOWN, []), ("t", 0, [0, 1])],
        None,
    )
    assert page(world, ["t"], 9, ("s", 0)) == ([("t", REQUEST, [])], None)
    assert page(world, ["t"], 9, ("t", -1)) == ([("t", REQUEST, [])], None)
    assert page(world, [], 9, ("s", 5)) == ([("t", 0, [0, 1])], None), "a topic was deleted between two pages"


def test_the_description_of_a_partition(world: World) -> None:
    leader = world.leader("t")
    body = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    answer = ask(world, leader, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body, DescribeTopicPartitionsResponse)
    topic = answer.topics[0]
    assert topic.topic_authorized_operations == 3576, "as Kafka without an authorizer"
    first = topic.partitions[0]
    assert (first.leader_id, first.leader_epoch >= 0, first.error_code) == (leader, True, 0)
    assert sorted(first.replica_nodes) == [1, 2, 3]
    assert (first.eligible_leader_replicas, first.last_known_elr, first.offline_replicas) == ([], [], [])


# -- Metadata ---------------------------------------------------------------------------------------------------


def test_authorized_operations_are_shown_if_requested(world: World) -> None:
    def operations(version: int, *, topic: bool, cluster: bool) -> tuple[list[int], int]:
        body = MetadataRequest(
            topics=[MetadataRequestTopic(name="t"), MetadataRequestTopic(name="missing")],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=topic,
            include_cluster_authorized_operations=cluster,
        )
        answer = ask(world, 1, ApiKey.METADATA, version, body, MetadataResponse)
        return [x.topic_authorized_operations for x in answer.topics], answer.cluster_authorized_operations

    absent = OPERATIONS_NOT_REQUESTED
    assert operations(8, topic=True, cluster=True) == ([3576, 3576], 8096)
    assert operations(12, topic=True, cluster=False) == ([3576, 3576], absent)
    assert operations(8, topic=False, cluster=False) == ([absent, absent], absent)


def test_internal_topics_are_marked(world: World) -> None:
    create_internal(world)
    answer = ask(world, 1, ApiKey.METADATA, 12, MetadataRequest(topics=None), MetadataResponse)
    assert {x.name: x.is_internal for x in answer.topics} == {"__consumer_offsets": True, "t": False}
