"""Offsets are deleted with their topic, and when they were not used for long."""

from __future__ import annotations

import pytest

from broker.groups.commit import CommitRequest, OffsetToCommit
from broker.handlers import offset_fetch
from protocol.api_keys import ApiKey
from protocol.codec import at_once
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopic
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.builder import NewRecord, build_batch
from tests.broker.asking import ask
from tests.broker.groups.classic_client import GroupClient
from tests.broker.groups.consumers import Coordinator, Topics
from tests.broker.groups.test_fail_over import coordinator_among
from tests.broker.groups.tickets import decided, new_ticket
from tests.broker.groups.world import FEW, commit, commit_request, committed, coordinator, pass_time
from tests.broker.world import World, running

EXPIRING = {**FEW, "offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}


def wait_committed(world: World, node_id: int, group_id: str, wanted: dict[tuple[str, int], int]) -> None:
    for _ in range(100):
        if committed(world, node_id, group_id) == wanted:
            return
        pass_time(world, 0.1)
    assert committed(world, node_id, group_id) == wanted


def test_offsets_are_deleted_with_their_topic() -> None:
    with running(settings=FEW) as world:
        world.create_topic("foo", 2)
        world.create_topic("bar")
        node_id = coordinator(world, "g")
        assert commit(world, node_id, commit_request("g", "foo", {0: 7, 1: 8})) == [0, 0]
        assert commit(world, node_id, commit_request("g", "bar", {0: 9})) == [0]
        world.delete_topic("foo")
        world.create_topic("foo", 2)
        wait_committed(world, node_id, "g", {("bar", 0): 9})
        assert commit(world, node_id, commit_request("g", "foo", {0: 1})) == [0]
        world.kill(node_id)
        successor = coordinator(world, "g")
        assert committed(world, successor, "g") == {("bar", 0): 9, ("foo", 0): 1}


@pytest.mark.parametrize("is_made_again", [False, True])
def test_offsets_are_deleted_if_their_topic_was_deleted_without_a_coordinator(is_made_again: bool) -> None:
    with running(settings={**FEW, "offsets.topic.replication.factor": "1"}) as world:
        world.create_topic("foo")
        world.create_topic("bar")
        node_id = coordinator(world, "g")
        for topic in ("foo", "bar"):
            assert commit(world, node_id, commit_request("g", topic, {0: 7})) == [0]
        world.kill(node_id)
        world.leader("foo")
        world.delete_topic("foo")
        if is_made_again:
            world.create_topic("foo")
        world.start(node_id)
        world.wait_ready(node_id)
        coordinator_among(world, [node_id], "g")
        wait_committed(world, node_id, "g", {("bar", 0): 7})


def test_an_offset_with_a_retention_is_deleted_with_its_topic_after_a_fail_over() -> None:
    """That version of the record has no topic id."""
    with running(settings=FEW) as world:
        world.create_topic("foo")
        world.create_topic("bar")
        node_id = coordinator(world, "g")
        for topic in ("foo", "bar"):
            body = commit_request("g", topic, {0: 7}, retention_time_ms=86_400_000)
            assert commit(world, node_id, body, version=4) == [0]
        world.kill(node_id)
        successor = coordinator(world, "g")
        assert committed(world, successor, "g") == {("foo", 0): 7, ("bar", 0): 7}
        world.delete_topic("foo")
        world.create_topic("foo", 1, 1)
        wait_committed(world, successor, "g", {("bar", 0): 7})


def test_a_fetch_by_topic_id_does_not_see_offsets_of_a_deleted_topic_of_the_same_name() -> None:
    """The coordinator has not heard yet that the topic is deleted."""
    topics = Topics()
    old = topics.set("foo", 1)
    shard = Coordinator(topics).shard
    commit = CommitRequest("g", [OffsetToCommit("foo", old, 0, 1000)])
    for record in decided(shard.commit_offsets(new_ticket(), commit, 0.0, 0)).records:
        shard.replay(record)
    topics.delete("foo")
    new = topics.set("foo", 1)
    wanted = OffsetFetchRequestGroup(
        group_id="g",
        topics=[OffsetFetchRequestTopic(topic_id=each, partition_indexes=[0]) for each in (new, old)],
    )
    answer = at_once(offset_fetch._read_group(topics.image, 10, wanted, shard, frozenset()))
    found = [each for topic in answer.topics for each in topic.partitions]
    assert [(x.error_code, x.committed_offset) for x in found] == [
        (ErrorCode.NONE, -1),
        (ErrorCode.UNKNOWN_TOPIC_ID, -1),
    ]


def test_unused_offsets_expire() -> None:
    with running(size=1, settings=EXPIRING) as world:
        world.create_topic("foo", 2, replication_factor=1)
        coordinator(world, "g")
        assert commit(world, 1, commit_request("g", "foo", {0: 7, 1: 7})) == [0, 0]
        pass_time(world, 50)
        assert commit(world, 1, commit_request("g", "foo", {1: 8})) == [0]
        pass_time(world, 12)
        assert committed(world, 1, "g") == {("foo", 1): 8}
        pass_time(world, 50)
        assert committed(world, 1, "g") == {}
        node = world.nodes[1]
        assert all(led.shard.group_ids() == [] for led in node.coordinators.groups.loaded_partitions())


def test_offsets_expire_when_no_member_is_subscribed_and_a_group_with_its_last_offset() -> None:
    """KIP-211: while the group has members, offsets of topics without a subscription expire, from the time of the
    commit. When it is empty, all offsets expire, from the time when it became empty."""
    subscribed_to_foo = b"\0\0" + b"\0\0\0\1" + b"\0\3foo" + b"\xff\xff\xff\xff"
    with running(size=1, settings={**EXPIRING, "group.initial.rebalance.delay.ms": "0"}) as world:
        for topic in ("foo", "bar"):
            world.create_topic(topic, replication_factor=1)
        coordinator(world, "g")
        client = GroupClient(world, 1)
        protocols = (("range", subscribed_to_foo),)
        member = client.result(client.put_join(protocols=protocols)).member_id
        generation = client.result(client.put_join(member, protocols=protocols)).generation_id
        assert client.result(client.put_sync(member, generation, {member: b""})).error_code == 0
        by_member = {"member_id": member, "generation_id_or_member_epoch": generation}
        for topic in ("foo", "bar"):
            assert commit(world, 1, commit_request("g", topic, {0: 7}, **by_member)) == [0]
        for _ in range(13):
            pass_time(world, 5)
            assert client.heartbeat(member, generation) == 0
        assert committed(world, 1, "g") == {("foo", 0): 7}
        assert client.leave((member, None))[0] == 0
        pass_time(world, 50)
        assert committed(world, 1, "g") == {("foo", 0): 7}
        pass_time(world, 12)
        assert committed(world, 1, "g") == {}
        assert client.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_commit_may_have_a_retention_of_its_own() -> None:
    with running(size=1, settings=EXPIRING) as world:
        world.create_topic("foo", replication_factor=1)
        coordinator(world, "g")
        body = commit_request("g", "foo", {0: 7}, retention_time_ms=100_000)
        assert commit(world, 1, body, version=4) == [0]
        pass_time(world, 90)
        assert committed(world, 1, "g") == {("foo", 0): 7}
        pass_time(world, 15)
        assert committed(world, 1, "g") == {}


def test_clients_cannot_create_write_or_delete_the_offsets_topic() -> None:
    name = "__consumer_offsets"
    with running(settings=FEW) as world:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        creation = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        created = ask(world, 1, ApiKey.CREATE_TOPICS, 7, creation, CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.INVALID_REQUEST
        question = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        ask(world, 1, ApiKey.METADATA, 9, question, MetadataResponse)
        world.wait(lambda: world.nodes[1].metadata.image.topic_named(name) is not None)
        coordinator(world, "g")
        for partition in range(3):
            world.leader(name, partition)
        pass_time(
            world, 1
        )  # A topic that was created by the request is shown when this node knows its leaders.
        shown = ask(world, 1, ApiKey.METADATA, 9, question, MetadataResponse).topics[0]
        assert (shown.is_internal, len(shown.partitions)) == (True, 3)

        batch = memoryview(build_batch([NewRecord(b"k", b"v", 0)]))
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
        produce = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
        refused = ask(world, world.leader(name), ApiKey.PRODUCE, 9, produce, ProduceResponse)
        code = refused.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.INVALID_TOPIC_EXCEPTION

        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
        kept = ask(world, 1, ApiKey.DELETE_TOPICS, 6, deletion, DeleteTopicsResponse)
        assert kept.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
