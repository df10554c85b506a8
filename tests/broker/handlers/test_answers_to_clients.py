"""Requests that are expensive do not disturb other clients, and error codes make clients do the right thing."""

from __future__ import annotations

import time

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.asking import ask
from tests.broker.groups.world import coordinator
from tests.broker.world import World, running


def _list_offsets(world: World, node_id: int, name: str, *indexes: int, timestamp: int = -1) -> list[int]:
    """The error codes, in order."""
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes]
    body = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=partitions)])
    answer = ask(world, node_id, ApiKey.LIST_OFFSETS, 7, body, ListOffsetsResponse)
    return [partition.error_code for partition in answer.topics[0].partitions]


def _metadata(world: World, *names: str) -> MetadataResponse:
    body = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    return ask(world, 1, ApiKey.METADATA, 9, body, MetadataResponse)


def test_list_offsets_refuses_a_partition_that_is_named_twice_and_no_other() -> None:
    with running(size=1) as world:
        world.create_topic("foo", partitions=2, replication_factor=1)
        world.leader("foo", 0)
        world.leader("foo", 1)
        invalid = ErrorCode.INVALID_REQUEST
        assert _list_offsets(world, 1, "foo", 0, 1, 0) == [invalid, ErrorCode.NONE, invalid]


def test_list_offsets_of_many_partitions_does_not_stall_the_node() -> None:
    """A request may name 20,000 things: the work must not grow with the square of that."""
    with running(size=1) as world:
        begun_s = time.process_time()
        _list_offsets(world, 1, "foo", *range(19_000))
        assert time.process_time() - begun_s < 3


def test_a_log_that_list_offsets_finds_corrupt_is_quarantined_and_the_node_goes_on() -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a" * 500)
        world.wait_equal("foo")
        leader = world.leader("foo")
        directory_id = world.nodes[leader].me.directory_id.bytes
        log = f"/n{leader}/foo-0/00000000000000000000.log"
        world.disks[leader].flip_bits(log, 8, 4, count=8)  # the first batch's length
        assert _list_offsets(world, leader, "foo", 0, timestamp=0) == [ErrorCode.KAFKA_STORAGE_ERROR]
        world.wait(lambda: (leader, directory_id, 1) in world.voters("foo"))
        world.wait_equal("foo")


def test_a_topic_that_is_named_often_is_described_once() -> None:
    """Naming a topic takes three bytes of the request. Describing it each time would cost a thousand partitions."""
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        answer = _metadata(world, *["foo", "bar", "foo", "bar", "foo"])
        assert [topic.name for topic in answer.topics] == ["foo", "bar"]


def test_only_kafkas_own_topics_are_internal() -> None:
    """Consumers that subscribe to a pattern ignore internal topics. A user's topic "__x" is not internal."""
    with running(size=1) as world:
        world.create_topic("__mine", replication_factor=1)
        coordinator(world, "any")  # asking for a coordinator creates its topic
        found = {
            topic.name: topic.is_internal for topic in _metadata(world, "__mine", "__consumer_offsets").topics
        }
        assert found == {"__mine": False, "__consumer_offsets": True}


def test_topics_are_not_deleted_if_delete_topic_enable_is_false() -> None:
    """delete.topic.enable=false: TOPIC_DELETION_DISABLED, which versions below 3 do not know."""
    with running(size=1, settings={"delete.topic.enable": "false"}) as world:
        world.create_topic("foo", replication_factor=1)
        body = DeleteTopicsRequest(topic_names=["foo"], timeout_ms=1000)
        codes = []
        for version in (2, 3):
            answer = ask(world, 1, ApiKey.DELETE_TOPICS, version, body, DeleteTopicsResponse)
            codes.append([(topic.name, topic.error_code) for topic in answer.responses])
        assert codes == [[("foo", ErrorCode.INVALID_REQUEST)], [("foo", ErrorCode.TOPIC_DELETION_DISABLED)]]
        assert world.nodes[1].metadata.image.topic_named("foo") is not None
