"""Produce looks at the records before it acknowledges them: no batch stops the consumers of a plain topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.node import Node
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batch import Compression, TimestampType, iter_batches
from protocol.records.builder import NewRecord, build_batch
from protocol.records.record import iter_records
from tests.broker.asking import ask, connect
from tests.broker.world import World, running
from tests.protocol.defects import CODECS, DEFECTS, OK, STREAM_DEFECTS, raw_batch, record, zstd
from tests.simulator.client import Connection

SETTING = "varve.produce.validate.records"
_BROKERS = 4
_SET = 0


@pytest.fixture
def world() -> Iterator[World]:
    with running() as started:
        started.create_topic("plain")
        yield started


async def _produce(connection: Connection, topic: str, batch: bytearray) -> PartitionProduceResponse:
    data = PartitionProduceData(index=0, records=memoryview(batch))
    body = ProduceRequest(
        acks=-1, timeout_ms=3000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = await connection.request(ApiKey.PRODUCE, 9, body, ProduceResponse)
    return answer.responses[0].partition_responses[0]


def produce(world: World, batch: bytearray, topic: str = "plain") -> PartitionProduceResponse:
    leader = world.leader(topic)

    async def question() -> PartitionProduceResponse:
        return await _produce(await connect(world, leader), topic, batch)

    task = world.loop.create_task(question())
    world.wait(task.done)
    return task.result()


def is_long(node: Node) -> bool:
    """A request is being served in pieces."""
    return bool(node.context.long_requests._running or node.context.long_requests._waiting)


def alter_brokers(world: World, key: str, value: str) -> None:
    change = AlterableConfig(name=key, config_operation=_SET, value=value)
    resource = AlterConfigsResource(resource_type=_BROKERS, resource_name="", configs=[change])
    answer = ask(
        world,
        1,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
        IncrementalAlterConfigsResponse,
    )
    assert answer.responses[0].error_code == 0, answer
    world.wait(
        lambda: all(
            node.config.produce_validate_records == (value == "true") for node in world.nodes.values()
        )
    )


def now_ms(world: World) -> int:
    return world.nodes[1].clock.now_ms()


def batches_with_defects(base_ms: int) -> Iterator[tuple[str, bytearray, int, ErrorCode]]:
    """(name, batch, number of records, expected error), each uncompressed or compressed in some way."""
    codecs = [(0, bytes), *CODECS.values()]
    for number, (name, defect) in enumerate(DEFECTS.items()):
        compression, compress = codecs[number % len(codecs)]
        times = {"base_timestamp": base_ms, "max_timestamp": base_ms} | defect.header
        yield (
            name,
            raw_batch(compress(defect.payload), defect.count, compression, **times),
            defect.count,
            defect.expected,
        )
    for name, (compression, payload, _, expected) in STREAM_DEFECTS.items():
        yield (
            name,
            raw_batch(payload, 2, compression, base_timestamp=base_ms, max_timestamp=base_ms),
            2,
            expected,
        )


def test_whatever_is_acknowledged_can_be_read(world: World) -> None:
    acknowledged = refused = 0
    for name, batch, count, expected in batches_with_defects(now_ms(world)):
        answer = produce(world, batch)
        assert answer.error_code == expected, name
        if expected == OK:
            assert answer.base_offset == acknowledged, name
            acknowledged += count
        else:
            assert answer.base_offset == -1 and answer.error_message, name
            refused += 1
    assert refused > 80
    leader = world.leader("plain")
    stored = memoryview(world.content(leader, "plain"))
    offsets = [
        each.offset
        for position, header in iter_batches(stored)
        for each in iter_records(stored[position : position + header.size_bytes])
    ]
    assert offsets == list(range(acknowledged))
    world.wait_equal("plain")


def test_the_largest_timestamp_in_the_header_is_corrected(world: World) -> None:
    """A producer that repeats the batch, as it made it, is recognised all the same."""
    base_ms = now_ms(world)

    def batch() -> bytearray:
        return raw_batch(
            record(time=5) + record(1, time=9),
            2,
            base_timestamp=base_ms,
            max_timestamp=base_ms + 10**9,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
        )

    assert [produce(world, batch()).base_offset for _ in range(2)] == [0, 0]
    (header,) = [header for _, header in iter_batches(world.content(world.leader("plain"), "plain"))]
    assert header.max_timestamp == base_ms + 9
    world.wait_equal("plain")


def test_log_append_time_counts_for_records_of_any_time(world: World) -> None:
    world.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    answer = produce(world, raw_batch(record(time=5), 1, base_timestamp=-(2**63)), "stamped")
    (header,) = [header for _, header in iter_batches(world.content(world.leader("stamped"), "stamped"))]
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == answer.log_append_time_ms


def test_a_node_can_be_told_not_to_look_at_records(world: World) -> None:
    alter_brokers(world, SETTING, "false")
    base_ms = now_ms(world)
    times = {"base_timestamp": base_ms, "max_timestamp": base_ms}
    assert produce(world, raw_batch(b"garbage" * 10, 5, **times)).error_code == OK
    assert produce(world, raw_batch(b"garbage" * 10, 5, Compression.ZSTD, **times)).error_code == OK

    # The count moves the end of the log: it stays bounded.
    large = raw_batch(zstd(record()), 2**31 - 1, Compression.ZSTD, **times)
    assert produce(world, large).error_code == ErrorCode.INVALID_RECORD
    # The rules of a topic hold.
    world.create_topic("compacted", configs={"cleanup.policy": "compact"})
    keyless = build_batch([NewRecord(b"k", b"v", base_ms), NewRecord(None, b"v", base_ms)])
    answer = produce(world, keyless, "compacted")
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.record_errors and [error.batch_index for error in answer.record_errors] == [1]
    late = build_batch([NewRecord(b"k", b"v", base_ms), NewRecord(b"k", b"v", base_ms + 2 * 3_600_000)])
    assert produce(world, late).error_code == ErrorCode.INVALID_TIMESTAMP
    assert world.replica(world.leader("plain"), "plain").next_offset == 10

    alter_brokers(world, SETTING, "true")
    assert produce(world, raw_batch(b"garbage" * 10, 5, **times)).error_code == ErrorCode.INVALID_RECORD


def test_a_node_that_does_not_lead_does_not_look_at_records(world: World) -> None:
    leader = world.leader("plain")
    other = next(node_id for node_id in world.ids if node_id != leader)

    async def question() -> PartitionProduceResponse:
        bad = raw_batch(b"garbage" * 10, 5)
        return await _produce(await connect(world, other), "plain", bad)

    task = world.loop.create_task(question())
    world.wait(task.done)
    assert task.result().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def _large(base_ms: int) -> bytearray:
    """8 MB when it is decompressed. A look at a clock takes 50 us in a world, so it takes several loop iterations."""
    return raw_batch(
        zstd(record(value=bytes(8_000_000))),
        1,
        Compression.ZSTD,
        base_timestamp=base_ms,
        max_timestamp=base_ms,
    )


def test_requests_of_a_client_keep_their_order_while_a_batch_is_looked_at(world: World) -> None:
    leader = world.leader("plain")
    connection = world.loop.run_until_complete(connect(world, leader))
    base_ms = now_ms(world)
    small = build_batch([NewRecord(b"k", b"v", base_ms)])
    tasks = [
        world.loop.create_task(_produce(connection, "plain", batch))
        for batch in (small, _large(base_ms), small, _large(base_ms), small)
    ]
    world.wait(lambda: is_long(world.nodes[leader]))
    world.wait(lambda: all(task.done() for task in tasks))
    assert [task.result().base_offset for task in tasks] == [0, 1, 2, 3, 4]


def test_a_batch_whose_leader_is_deposed_meanwhile_is_refused(world: World) -> None:
    leader = world.leader("plain")
    replica = world.replica(leader, "plain")
    connection = world.loop.run_until_complete(connect(world, leader))
    task = world.loop.create_task(_produce(connection, "plain", _large(now_ms(world))))
    world.wait(lambda: is_long(world.nodes[leader]))
    world.processes[leader].call(replica.driver.quorum_lost)
    assert not replica.is_leader
    world.wait(task.done)
    assert task.result().error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_one_bad_batch_does_not_spoil_the_others_of_its_request(world: World) -> None:
    world.create_topic("many", partitions=4)
    leaders = [world.leader("many", partition) for partition in range(4)]
    leader = next(node_id for node_id in leaders if leaders.count(node_id) > 1)
    bad, good = [partition for partition in range(4) if leaders[partition] == leader][:2]
    batches = {
        bad: raw_batch(b"garbage" * 10, 5),
        good: build_batch([NewRecord(b"k", b"v", now_ms(world))]),
    }
    data = [
        PartitionProduceData(index=partition, records=memoryview(batch))
        for partition, batch in batches.items()
    ]
    body = ProduceRequest(
        acks=-1, timeout_ms=3000, topic_data=[TopicProduceData(name="many", partition_data=data)]
    )
    answer = ask(world, leader, ApiKey.PRODUCE, 9, body, ProduceResponse)
    codes = {each.index: each.error_code for each in answer.responses[0].partition_responses}
    assert codes == {bad: ErrorCode.INVALID_RECORD, good: OK}
