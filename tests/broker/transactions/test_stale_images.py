"""Transactions whose coordinator has not heard that a topic was created, or deleted and created again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.controller.server import TIMEOUT_S
from broker.coordinator.internal_topic import partition_of
from broker.metadata.image import Change
from broker.scheduling.background import PAUSE, Steps
from protocol.api_keys import ApiKey
from protocol.controller.topics import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitionNodes,
    NewPartitions,
    NewTopic,
    ReplicaAssignment,
)
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.builder import NewRecord, build_batch
from tests.broker.groups.world import pass_time
from tests.broker.transactions.client import FEW, Client, Producer
from tests.broker.world import World, running

NONE = ErrorCode.NONE


def _create_alone(world: World, via: int, on: int) -> None:
    """The topic t, on one node."""
    assignment = ReplicaAssignment(partition=0, node_ids=[on])
    answer = world.ask(via, CreateTopics(topics=[NewTopic(name="t", assignments=[assignment])]))
    assert answer.topics[0].error_code == NONE
    world.wait(lambda: _serves(world, on))


def _serves(world: World, node_id: int) -> bool:
    replica = world.nodes[node_id].replicas.by_name.get(("t", 0))
    return replica is not None and replica.is_serving


def _delete_and_create_on(world: World, node_id: int) -> None:
    """Ask for both by this node, which alone has the new topic t."""
    answer = world.ask(node_id, DeleteTopics(topic_ids=[world.topic_id(node_id, "t")]))
    assert answer.topics[0].error_code == NONE
    _create_alone(world, node_id, node_id)


def _recreate(world: World, behind: int, on: int) -> Callable[[], None]:
    """Create t on a node, delete it and create it on another one, of which the first does not hear. Returns what has it
    hear."""
    _create_alone(world, on, behind)
    mend = world.network.partition([f"n{behind}"], [f"n{_controller(world)}"])
    _delete_and_create_on(world, on)
    assert world.topic_id(behind, "t") != world.topic_id(on, "t")
    return mend


def _controller(world: World) -> int:
    return world.nodes[1].leaders.controller_id()


def _coordinated_elsewhere(world: World, version: int) -> tuple[Client, Producer, int]:
    """A client whose coordinator is not the controller, its producer and its coordinator."""
    for name in "abcdef":
        client = Client(world, name, version=version)
        producer = client.new_producer()
        node_id = client.coordinator()
        if node_id != _controller(world):
            return client, producer, node_id
    raise AssertionError("the controller coordinates all of them")


def _add(client: Client, producer: Producer, node_id: int) -> int:
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=client.transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    answer = client.ask(node_id, ApiKey.ADD_PARTITIONS_TO_TXN, 3, body, AddPartitionsToTxnResponse)
    return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code


def _produce(client: Client, producer: Producer, node_id: int, partition: int = 0) -> int:
    batch = build_batch(
        [NewRecord(None, b"x", 0)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        is_transactional=True,
    )
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    body = ProduceRequest(
        transactional_id=client.transactional_id,
        acks=-1,
        timeout_ms=3000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
    version = 12 if client.is_second_version else 11
    answer = client.ask(node_id, ApiKey.PRODUCE, version, body, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def _end(client: Client, producer: Producer, node_id: int) -> int:
    body = EndTxnRequest(
        transactional_id=client.transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=True,
    )
    version = 5 if client.is_second_version else 4
    return client.ask(node_id, ApiKey.END_TXN, version, body, EndTxnResponse).error_code


@pytest.mark.parametrize("version", [1, 2])
def test_a_coordinator_that_knows_another_topic_of_that_name_does_not_consent(version: int) -> None:
    """Its marker would go to that other topic, and the transaction would stay open in this one."""
    with running(settings=FEW) as world:
        client, producer, coordinator = _coordinated_elsewhere(world, version)
        leader = ({*world.ids} - {coordinator, _controller(world)}).pop()
        mend = _recreate(world, coordinator, leader)
        if version == 1:
            assert _add(client, producer, coordinator) == NONE
        assert _produce(client, producer, leader) == ErrorCode.NOT_ENOUGH_REPLICAS
        mend()
        world.wait(lambda: world.topic_id(coordinator, "t") == world.topic_id(leader, "t"))
        assert _produce(client, producer, leader) == NONE
        assert _end(client, producer, coordinator) == NONE
        replica = world.replica(leader, "t")
        assert replica.last_stable_offset == replica.high_watermark == 2


def _hold_image(world: World, node_id: int) -> Callable[[], None]:
    """Its image shows one more topic, and then stands still, as on a node with much to do. Returns what ends that."""
    held = [True]

    def hold(change: Change) -> Steps:
        while held:
            yield PAUSE

    world.nodes[node_id].metadata.on_change.append(hold)
    world.create_topic("last")
    return held.clear


def _coordinate(world: World, client: Client, old: int, new: int) -> None:
    """Hand the transactional id over to another node, which loads it."""
    place = "__transaction_state", partition_of(client.transactional_id, 3)
    replica, target = world.replica(old, *place), world.replica(new, *place)
    world.wait(lambda: target.group.self_id in replica.group.in_sync(world.loop.time(), 1.0))
    world.processes[old].call(replica.driver.transfer_leadership, target.group.self_id)
    world.wait(lambda: target.is_serving)
    while client.described(new).error_code != NONE:
        pass_time(world, 0.05)


def test_a_marker_is_not_skipped_because_the_image_lacks_its_topic_and_stands_still() -> None:
    """The controller has answered, and this node has not replayed what the answer rests on."""
    with running(settings=FEW) as world:
        client, producer, first = _coordinated_elsewhere(world, 2)
        second = ({*world.ids} - {first, _controller(world)}).pop()
        release = _hold_image(world, second)
        _create_alone(world, first, first)
        assert _produce(client, producer, first) == NONE
        _coordinate(world, client, first, second)
        assert _end(client, producer, second) == NONE, "the end is decided, whatever markers are missing"
        pass_time(world, TIMEOUT_S)
        release()
        replica = world.replica(first, "t")
        world.wait(lambda: replica.last_stable_offset == replica.high_watermark == 2)


def test_the_next_coordinator_does_not_write_markers_to_an_old_topic_of_the_same_name() -> None:
    """The one before knew the new topic, and the next one has not heard of it."""
    with running(settings=FEW) as world:
        client, producer, first = _coordinated_elsewhere(world, 2)
        second = ({*world.ids} - {first, _controller(world)}).pop()
        _create_alone(world, first, second)
        release = _hold_image(world, second)
        _delete_and_create_on(world, first)
        assert _produce(client, producer, first) == NONE
        _coordinate(world, client, first, second)
        assert world.topic_id(first, "t") != world.topic_id(second, "t")
        assert _end(client, producer, second) == NONE, "the end is decided, whatever markers are missing"
        release()
        replica = world.replica(first, "t")
        world.wait(lambda: replica.last_stable_offset == replica.high_watermark == 2)


def test_a_coordinator_that_has_not_heard_of_a_partition_does_not_consent() -> None:
    """What its image lacks when it sends the markers would pass for deleted."""
    with running(settings=FEW) as world:
        client, producer, coordinator = _coordinated_elsewhere(world, 2)
        leader = ({*world.ids} - {coordinator, _controller(world)}).pop()
        _create_alone(world, leader, leader)
        release = _hold_image(world, coordinator)
        more = NewPartitions(name="t", count=2, assignments=[NewPartitionNodes(node_ids=[leader])])
        assert world.ask(leader, CreatePartitions(topics=[more])).topics[0].error_code == NONE
        world.wait(lambda: ("t", 1) in world.nodes[leader].replicas.by_name)
        world.wait(lambda: world.replica(leader, "t", 1).is_serving)
        assert _produce(client, producer, leader, 1) == ErrorCode.NOT_ENOUGH_REPLICAS
        release()
        pass_time(world, 1)
        assert _produce(client, producer, leader, 1) == NONE
        assert _end(client, producer, coordinator) == NONE
        replica = world.replica(leader, "t", 1)
        world.wait(lambda: replica.last_stable_offset == replica.high_watermark == 2)
