"""OUT_OF_ORDER_SEQUENCE_NUMBER and INVALID_TXN_STATE end a producer. Only a confirmed leader may answer them."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.replica import Replica
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from protocol.records.control import Marker
from tests.broker.world import World, running
from tests.simulator.client import Connection


def _batch(sequence: int, epoch: int = 0, *, is_transactional: bool = False) -> bytearray:
    """One record of producer 7."""
    records = [NewRecord(None, b"a", 1)]
    return build_batch(
        records,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def _append(replica: Replica, batch: bytearray) -> None:
    replica.append(next(iter_batches(memoryview(batch)))[1], batch)


def _send(
    world: World, node_id: int, acks: int, sequence: int, epoch: int = 0
) -> asyncio.Task[PartitionProduceResponse]:
    async def question() -> PartitionProduceResponse:
        connection = Connection()
        await world.network.of("client").connect(f"n{node_id}", 9092, lambda: connection)
        data = [PartitionProduceData(index=0, records=memoryview(_batch(sequence, epoch)))]
        body = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=3000,
            topic_data=[TopicProduceData(name="foo", partition_data=data)],
        )
        answer = await connection.request(ApiKey.PRODUCE, 9, body, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    return world.loop.create_task(question())


@pytest.mark.parametrize("acks", [1, -1])
def test_a_missing_batch_that_comes_before_the_confirmation_is_counted(acks: int) -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        node, replica = world.nodes[leader], world.replica(leader, "foo")
        world.processes[leader].call(_append, replica, _batch(0))
        refused = _send(world, leader, acks, 2)
        world.wait(refused.done)
        assert refused.result().error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "once, see sequence_gaps"
        answer = _send(world, leader, acks, 2)
        world.wait(lambda: bool(node.context.pending))
        assert replica.next_offset == 1, "sequence 2 after 0 is not appended"
        world.processes[leader].call(_append, replica, _batch(1))
        world.wait(answer.done)
        assert (answer.result().error_code, answer.result().base_offset) == (ErrorCode.NONE, 2)
        assert answer.result().error_message is None


def test_a_marker_that_comes_before_the_confirmation_is_counted() -> None:
    """A leader that does not know of its successor lacks the marker, and has the transaction open."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        node, replica = world.nodes[leader], world.replica(leader, "foo")
        world.processes[leader].call(_append, replica, _batch(0, is_transactional=True))
        answer = _send(world, leader, -1, 0, epoch=1)
        world.wait(lambda: bool(node.context.pending))
        assert replica.next_offset == 1, "a batch of the next epoch is not appended to an open transaction"
        marker = Marker(is_commit=False, coordinator_epoch=0)
        world.processes[leader].call(replica.append_marker, 7, 1, marker)
        world.wait(answer.done)
        assert (answer.result().error_code, answer.result().base_offset) == (ErrorCode.NONE, 2)


def test_a_transaction_that_remains_open_is_refused() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        world.processes[leader].call(_append, world.replica(leader, "foo"), _batch(0, is_transactional=True))
        answer = _send(world, leader, -1, 0, epoch=1)
        world.wait(answer.done)
        assert answer.result().error_code == ErrorCode.INVALID_TXN_STATE


def test_a_gap_that_remains_is_refused() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        first = _send(world, leader, -1, 0)
        world.wait(first.done)
        world.wait(_send(world, leader, -1, 2).done)
        answer = _send(world, leader, -1, 2)
        world.wait(answer.done)
        assert answer.result().error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert "expected 1" in (answer.result().error_message or "")
        assert world.replica(leader, "foo").log.end_offset == 1


def test_a_producer_that_is_dropped_before_the_confirmation_is_told_where_the_log_starts() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        node, replica = world.nodes[leader], world.replica(leader, "foo")
        world.wait(_send(world, leader, -1, 0).done)
        world.wait(_send(world, leader, -1, 2).done)
        answer = _send(world, leader, -1, 2)
        world.wait(lambda: bool(node.context.pending))
        world.processes[leader].call(replica.drop_producers, replica.producer_count)
        world.wait(answer.done)
        assert answer.result().error_code == ErrorCode.UNKNOWN_PRODUCER_ID
        assert answer.result().log_start_offset == 0
