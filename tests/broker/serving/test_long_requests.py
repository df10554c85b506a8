"""A small request that asks for much work does not block other clients, and stays in the order of its own client."""

from __future__ import annotations

import asyncio
import struct

import pytest

from broker.handlers.list_offsets import MAX_TIMESTAMP
from broker.network.connection import ClientConnection
from broker.node import Node
from broker.scheduling import background
from broker.serving.long_requests import MAX_CONCURRENT
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batch import Compression
from protocol.records.builder import NewRecord, build_batch
from tests.broker.asking import ask, begin_ask, connect
from tests.broker.world import World, running
from tests.simulator.client import Connection
from tests.simulator.clock import LOOK_S, SimulatedClock

#: More than one piece has, where a piece takes no time (`short_pieces`).
STEPS = 30
#: So many records of this size are a block of zstd when they are decompressed (128 KiB), which is one step.
RECORDS_PER_STEP = 500
VALUE = bytes(270)
MANY = build_batch([NewRecord(b"key", VALUE, 1)] * (STEPS * RECORDS_PER_STEP), compression=Compression.ZSTD)
ONE = build_batch([NewRecord(b"key", b"one", 1)])
LAST = STEPS * RECORDS_PER_STEP - 1
#: Each record's timestamp is its offset.
RISING = build_batch([NewRecord(None, VALUE, i) for i in range(LAST + 1)], compression=Compression.ZSTD)
KEYLESS = build_batch(
    [NewRecord(b"key", VALUE, 1)] * (2 * RECORDS_PER_STEP) + [NewRecord(None, VALUE, 1)],
    compression=Compression.ZSTD,
)


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece has some five steps, and each loop iteration one piece of each request."""
    monkeypatch.setattr(background, "PIECE_S", 4 * LOOK_S)


def _produce(batch: bytearray) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=memoryview(batch))
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=3000,
        topic_data=[TopicProduceData(name="foo", partition_data=[data])],
    )


def _send(world: World, connection: Connection, body: ProduceRequest) -> asyncio.Task[ProduceResponse]:
    return world.loop.create_task(connection.request(ApiKey.PRODUCE, 9, body, ProduceResponse))


def _the_answer(task: asyncio.Task[ProduceResponse]) -> PartitionProduceResponse:
    return task.result().responses[0].partition_responses[0]


def _is_at_work(node: Node) -> bool:
    return node.context.long_requests.count > 0


def _only_connection(node: Node) -> ClientConnection:
    (connection,) = node.connections._open
    assert isinstance(connection, ClientConnection)
    return connection


def _compacted(world: World) -> int:
    """Creates the topic, and returns its leader."""
    world.create_topic("foo", configs={"cleanup.policy": "compact"})
    return world.leader("foo")


def test_later_requests_of_the_same_client_wait() -> None:
    with running() as world:
        leader = _compacted(world)
        connection = world.loop.run_until_complete(connect(world, leader))
        tasks = [_send(world, connection, _produce(batch)) for batch in (ONE, MANY, ONE, MANY, ONE)]
        world.wait(lambda: all(task.done() for task in tasks))
        answers = [_the_answer(task) for task in tasks]
        assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 5
        many = STEPS * RECORDS_PER_STEP
        assert [answer.base_offset for answer in answers] == [0, 1, 1 + many, 2 + many, 2 + 2 * many]


def test_a_client_with_two_long_requests_waits_for_both() -> None:
    """A look-up of a timestamp waits for a liveness round. So a client can have two long requests at a time."""
    with running() as world:
        leader = _compacted(world)
        node = world.nodes[leader]
        connection = world.loop.run_until_complete(connect(world, leader))
        tasks = [_send(world, connection, _produce(batch)) for batch in (MANY, ONE)]
        world.wait(lambda: _is_at_work(node))
        first = _only_connection(node)._requests[0]
        world.processes[leader].call(node.context.long_requests.serve, first, iter([None] * 3))
        world.wait(lambda: all(task.done() for task in tasks))
        assert [_the_answer(task).base_offset for task in tasks] == [0, STEPS * RECORDS_PER_STEP]


def test_log_append_time_is_taken_when_the_checks_are_over() -> None:
    """Otherwise a record that is appended meanwhile would have a lower offset and a later timestamp."""
    with running() as world:
        configs = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
        world.create_topic("foo", configs=configs)
        leader = world.leader("foo")
        node = world.nodes[leader]
        connection = world.loop.run_until_complete(connect(world, leader))
        task = _send(world, connection, _produce(MANY))
        world.wait(lambda: _is_at_work(node))
        assert isinstance(node.clock, SimulatedClock)
        node.clock.jump(5000)
        later_ms = node.clock.now_ms()
        world.wait(task.done)
        assert _the_answer(task).log_append_time_ms >= later_ms


def test_many_clients_take_turns() -> None:
    with running() as world:
        leader = _compacted(world)
        clients = [world.loop.run_until_complete(connect(world, leader)) for _ in range(3 * MAX_CONCURRENT)]
        tasks = [_send(world, client, _produce(MANY)) for client in clients]
        world.wait(lambda: all(task.done() for task in tasks))
        many = STEPS * RECORDS_PER_STEP
        offsets = sorted(_the_answer(task).base_offset for task in tasks)
        assert offsets == [number * many for number in range(len(clients))]


def test_each_piece_has_a_loop_iteration_of_its_own() -> None:
    """The request comes in the shared receive buffer, which other requests overwrite between two pieces."""
    with running() as world:
        leader = _compacted(world)
        node, process = world.nodes[leader], world.processes[leader]
        connection = process.call(node._client_factory("PLAINTEXT"))
        assert isinstance(connection, ClientConnection)
        shared = memoryview(connection.get_buffer(-1))
        turns = 0

        def count() -> None:
            nonlocal turns
            turns += 1
            shared[:] = bytes(len(shared))
            if _is_at_work(node):
                world.loop.call_soon(count)

        def bytes_came() -> None:
            frame = encode_request_header(RequestHeader(ApiKey.PRODUCE, 9, 1, None)) + encode(
                _produce(MANY), 9
            )
            received = struct.pack(">i", len(frame)) + frame
            shared[: len(received)] = received
            connection.buffer_updated(len(received))
            count()

        assert len(MANY) < len(shared)
        process.call(bytes_came)
        world.wait(lambda: connection._requests[0].parts is not None)
        assert turns >= STEPS // 6
        assert world.replica(leader, "foo").high_watermark == STEPS * RECORDS_PER_STEP


def test_a_bad_record_far_behind_the_first_is_named_in_the_error() -> None:
    with running() as world:
        leader = _compacted(world)
        connection = world.loop.run_until_complete(connect(world, leader))
        task = _send(world, connection, _produce(KEYLESS))
        world.wait(task.done)
        answer = _the_answer(task)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [2 * RECORDS_PER_STEP]
        following = _send(world, connection, _produce(ONE))
        world.wait(following.done)
        assert _the_answer(following).base_offset == 0


def test_a_request_to_a_topic_that_is_deleted_meanwhile_is_refused() -> None:
    with running() as world:
        leader = _compacted(world)
        connection = world.loop.run_until_complete(connect(world, leader))
        replica = world.replica(leader, "foo")
        node = world.nodes[leader]
        task = _send(world, connection, _produce(MANY))
        world.wait(lambda: _is_at_work(node))
        world.processes[leader].call(lambda: node.replicas.close(replica, is_clean=False))
        world.wait(task.done)
        assert _the_answer(task).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def _look_up(timestamp: int) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="foo", partitions=[wanted])]
    )


@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, LAST])
def test_a_timestamp_is_looked_up_in_pieces(timestamp: int) -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        node = world.nodes[leader]
        ask(world, leader, ApiKey.PRODUCE, 9, _produce(RISING), ProduceResponse)
        assert not _is_at_work(node)

        body = _look_up(timestamp)
        task = begin_ask(world, leader, ApiKey.LIST_OFFSETS, 7, body, ListOffsetsResponse)
        world.wait(lambda: _is_at_work(node))
        world.wait(task.done)
        answer = task.result().topics[0].partitions[0]
        assert (answer.offset, answer.timestamp) == (LAST, LAST)

        task = begin_ask(world, leader, ApiKey.LIST_OFFSETS, 7, body, ListOffsetsResponse)
        world.wait(lambda: _is_at_work(node))
        replica = world.replica(leader, "foo")
        world.processes[leader].call(lambda: node.replicas.close(replica, is_clean=False))
        world.wait(task.done)
        assert task.result().topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_client_that_goes_away_leaves_nothing_behind() -> None:
    with running() as world:
        leader = _compacted(world)
        node = world.nodes[leader]
        connection = world.loop.run_until_complete(connect(world, leader))
        task = _send(world, connection, _produce(MANY))
        world.wait(lambda: _is_at_work(node))
        world.processes[leader].call(_only_connection(node).abort)
        world.wait(lambda: not _is_at_work(node))
        task.cancel()
        assert world.replica(leader, "foo").next_offset == 0


def test_many_partitions_are_appended_to_in_pieces() -> None:
    """The receive buffer is overwritten between two pieces."""
    with running() as world:
        count = 80
        world.create_topic("foo", partitions=count, replication_factor=1)
        leaders = [world.leader("foo", partition) for partition in range(count)]
        leader = leaders[0]
        node, process = world.nodes[leader], world.processes[leader]
        connection = process.call(node._client_factory("PLAINTEXT"))
        assert isinstance(connection, ClientConnection)
        shared = memoryview(connection.get_buffer(-1))
        batches = [build_batch([NewRecord(b"key", b"%d" % index, 1)]) for index in range(count)]
        data = [
            PartitionProduceData(index=index, records=memoryview(batch))
            for index, batch in enumerate(batches)
        ]
        body = ProduceRequest(
            acks=-1, timeout_ms=3000, topic_data=[TopicProduceData(name="foo", partition_data=data)]
        )
        frame = encode_request_header(RequestHeader(ApiKey.PRODUCE, 9, 1, None)) + encode(body, 9)

        def bytes_came() -> None:
            received = struct.pack(">i", len(frame)) + frame
            shared[: len(received)] = received
            connection.buffer_updated(len(received))
            assert _is_at_work(node)
            shared[:] = bytes(len(shared))

        process.call(bytes_came)
        world.wait(lambda: connection._requests[0].parts is not None)
        for index in range(count):
            if leaders[index] == leader:
                assert b"%d" % index in world.content(leader, "foo", index)
