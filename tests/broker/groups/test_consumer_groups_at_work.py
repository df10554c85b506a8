"""Consumer groups (KIP-848) on simulated nodes, from the socket to the log and back."""

from __future__ import annotations

from uuid import UUID

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from tests.broker.asking import ask
from tests.broker.groups.world import FEW, commit, commit_request, committed, coordinator, pass_time
from tests.broker.transactions import client as transactions
from tests.broker.world import World, running


def heartbeat(
    world: World, node_id: int, member_id: str, epoch: int, version: int = 1, **said: object
) -> ConsumerGroupHeartbeatResponse:
    body = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **said)  # type: ignore[arg-type]
    return ask(world, node_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, version, body, ConsumerGroupHeartbeatResponse)


def join(
    world: World, node_id: int, member_id: str, topic: str = "foo", version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    return heartbeat(
        world,
        node_id,
        member_id,
        0,
        version,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )


def assigned(answer: ConsumerGroupHeartbeatResponse) -> dict[UUID, list[int]]:
    assert answer.error_code == ErrorCode.NONE
    assert answer.assignment is not None
    return {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}


def describe(world: World, node_id: int, version: int = 1) -> DescribedConsumerGroup:
    body = ConsumerGroupDescribeRequest(group_ids=["g"])
    answer = ask(world, node_id, ApiKey.CONSUMER_GROUP_DESCRIBE, version, body, ConsumerGroupDescribeResponse)
    return answer.groups[0]


def test_members_share_a_topic_and_survive_their_coordinator() -> None:
    with running() as world:
        topic_id = world.create_topic("foo", 4).topic_id
        node_id = coordinator(world, "g")
        assert describe(world, node_id).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert heartbeat(world, node_id, "a", 3).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        first = join(world, node_id, "a")
        assert (first.member_id, first.member_epoch, first.heartbeat_interval_ms) == ("a", 1, 5000)
        assert assigned(first) == {topic_id: [0, 1, 2, 3]}
        pass_time(world, 1.0)
        assert assigned(join(world, node_id, "b")) == {}
        told = assigned(heartbeat(world, node_id, "a", 1))
        assert told == {topic_id: [0, 1]}

        world.kill(node_id, power=True)
        successor = coordinator(world, "g")
        assert successor != node_id
        described = describe(world, successor)
        assert (described.group_state, described.group_epoch, described.assignor_name) == (
            "Reconciling",
            2,
            "uniform",
        )
        a, b = sorted(described.members, key=lambda member: member.member_id)
        assert (a.member_epoch, a.client_id, a.client_host, a.member_type) == (1, "sim", "/client", 1)
        assert [(x.topic_name, x.partitions) for x in a.assignment.topic_partitions] == [("foo", [0, 1])]
        assert [(x.topic_name, x.partitions) for x in b.target_assignment.topic_partitions] == [
            ("foo", [2, 3])
        ]
        # It still owns all partitions: assigned ones and revoked ones.
        owned = [OwnedTopicPartitions(topic_id=topic_id, partitions=part) for part in ([0, 1], [2, 3])]
        assert heartbeat(world, successor, "a", 1, topic_partitions=owned[::-1]).member_epoch == 1
        owned = [OwnedTopicPartitions(topic_id=topic_id, partitions=[0, 1])]
        assert heartbeat(world, successor, "a", 1, topic_partitions=owned).member_epoch == 2
        assert assigned(heartbeat(world, successor, "b", 2)) == {topic_id: [2, 3]}
        assert describe(world, successor, version=0).group_state == "Stable"


def test_a_node_that_does_not_coordinate_the_group_refuses() -> None:
    with running() as world:
        world.create_topic("foo")
        node_id = coordinator(world, "g")
        other = next(each for each in world.nodes if each != node_id)
        assert join(world, other, "a").error_code == ErrorCode.NOT_COORDINATOR
        assert describe(world, other).error_code == ErrorCode.NOT_COORDINATOR


def test_a_member_can_commit_only_in_its_epoch() -> None:
    with running() as world:
        topic_id = world.create_topic("foo", 2).topic_id
        node_id = coordinator(world, "g")
        epoch = join(world, node_id, "a").member_epoch

        def committing(epoch: int, offset: int) -> list[int]:
            body = commit_request(
                "g", "foo", {0: offset, 1: offset}, member_id="a", generation_id_or_member_epoch=epoch
            )
            return commit(world, node_id, body)

        stale = ErrorCode.STALE_MEMBER_EPOCH
        assert committing(epoch, 5) == [0, 0]
        assert committing(epoch + 1, 6) == [stale, stale]
        pass_time(world, 1.0)
        join(world, node_id, "b")
        told = heartbeat(world, node_id, "a", epoch)
        (kept,) = assigned(told).values()
        owned = [OwnedTopicPartitions(topic_id=topic_id, partitions=kept)]
        assert heartbeat(world, node_id, "a", epoch, topic_partitions=owned).member_epoch == epoch + 1
        assert committing(epoch, 7) == [0, stale], "it has owned the first partition since that epoch"
        assert committed(world, node_id, "g") == {("foo", 0): 7, ("foo", 1): 5}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_transaction_of_another_epoch_can_be_aborted(version: int) -> None:
    """STALE_MEMBER_EPOCH would end a Java producer, as every error does that it does not expect here."""
    with running(settings=transactions.FEW) as world:
        topic_id = world.create_topic("foo", 2).topic_id
        node_id = coordinator(world, "g")
        epoch = join(world, node_id, "a").member_epoch
        pass_time(world, 1.0)
        join(world, node_id, "b")
        (kept,) = assigned(heartbeat(world, node_id, "a", epoch)).values()
        owned = [OwnedTopicPartitions(topic_id=topic_id, partitions=kept)]
        assert heartbeat(world, node_id, "a", epoch, topic_partitions=owned).member_epoch == epoch + 1
        client = transactions.Client(world)
        producer = client.new_producer()
        assert client.add_offsets(producer, "g") == 0

        def committing(member_id: str, epoch: int, partition: int) -> int:
            return client.commit_offset(
                producer,
                "g",
                "foo",
                7,
                partition=partition,
                version=version,
                generation_id=epoch,
                member_id=member_id,
            )

        illegal = ErrorCode.ILLEGAL_GENERATION
        assert [committing("a", epoch, partition) for partition in (0, 1)] == [0, illegal]
        assert [committing("a", epoch + 2, partition) for partition in (0, 1)] == [illegal, illegal]
        assert committing("c", epoch, 0) == ErrorCode.UNKNOWN_MEMBER_ID
        assert client.end(producer, is_commit=False).error_code == 0


def test_a_member_can_commit_only_in_versions_with_member_epochs() -> None:
    """As in Kafka 4.3, the member is checked before the version, and the version before the epoch."""
    with running(1, settings=FEW) as world:
        world.create_topic("foo", replication_factor=1)
        node_id = coordinator(world, "g")
        epoch = join(world, node_id, "a").member_epoch

        def committing(version: int, member_id: str, epoch: int) -> list[int]:
            body = commit_request(
                "g", "foo", {0: 5}, member_id=member_id, generation_id_or_member_epoch=epoch
            )
            return commit(world, node_id, body, version)

        for version in (2, 8):
            assert committing(version, "a", epoch) == [ErrorCode.UNSUPPORTED_VERSION]
            assert committing(version, "a", epoch + 1) == [ErrorCode.UNSUPPORTED_VERSION]
            assert committing(version, "a", -1) == [ErrorCode.UNSUPPORTED_VERSION]
            assert committing(version, "x", epoch) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert committing(9, "a", epoch) == [0]
        heartbeat(world, node_id, "a", -1)
        assert committing(8, "", -1) == [0], "from outside, into an empty group"


def test_offsets_from_outside_stay_when_a_group_gets_members() -> None:
    with running() as world:
        world.create_topic("foo")
        node_id = coordinator(world, "g")
        assert commit(world, node_id, commit_request("g", "foo", {0: 7})) == [0]
        join(world, node_id, "a")
        assert committed(world, node_id, "g") == {("foo", 0): 7}
        assert commit(world, node_id, commit_request("g", "foo", {0: 8})) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_member_of_version_0_gets_its_id_from_the_broker() -> None:
    with running() as world:
        world.create_topic("foo")
        node_id = coordinator(world, "g")
        assert join(world, node_id, "").error_code == ErrorCode.INVALID_REQUEST
        answer = join(world, node_id, "", version=0)
        assert answer.member_id is not None and len(answer.member_id) == 22
        assert (
            heartbeat(world, node_id, answer.member_id, answer.member_epoch, 0).error_code == ErrorCode.NONE
        )


def test_a_silent_member_is_removed_without_any_request() -> None:
    settings = {"group.consumer.session.timeout.ms": "2000", "group.consumer.heartbeat.interval.ms": "500"}
    with running(settings=settings) as world:
        world.create_topic("foo")
        node_id = coordinator(world, "g")
        join(world, node_id, "a")
        world.wait(lambda: describe_state(world, node_id) == "Empty", limit_s=3)


def describe_state(world: World, node_id: int) -> str:
    (shard,) = (
        led.shard
        for led in world.nodes[node_id].coordinators.groups.loaded_partitions()
        if "g" in led.shard.groups
    )
    return shard.groups["g"].state


def test_the_protocol_can_be_switched_off() -> None:
    with running(settings={"group.coordinator.rebalance.protocols": "classic"}) as world:
        world.create_topic("foo")
        assert join(world, coordinator(world, "g"), "a").error_code == ErrorCode.UNSUPPORTED_VERSION
