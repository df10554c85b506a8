"""DescribeProducers: the producer state of the node that is asked. The answers are those of Apache Kafka 4.3."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from tests.broker.asking import ask
from tests.broker.world import World, running

PRODUCER_ID, EPOCH, TIME_MS = 7, 3, 1_700_000_000_000


def describe(world: World, node_id: int, topic: str, partition: int = 0) -> PartitionResponse:
    body = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    answer = ask(world, node_id, ApiKey.DESCRIBE_PRODUCERS, 0, body, DescribeProducersResponse)
    return answer.topics[0].partitions[0]


def test_every_replica_describes_its_producers() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        batch = build_batch(
            [NewRecord(None, b"x", TIME_MS), NewRecord(None, b"y", TIME_MS + 5)],
            producer_id=PRODUCER_ID,
            producer_epoch=EPOCH,
            base_sequence=0,
        )
        header = next(iter_batches(memoryview(batch)))[1]
        world.processes[leader].call(replica.append, header, batch)
        world.produce("foo", b"of nobody in particular")
        world.wait_equal("foo")
        for node_id in world.ids:
            answer = describe(world, node_id, "foo")
            assert answer.error_code == ErrorCode.NONE
            (producer,) = answer.active_producers
            assert (producer.producer_id, producer.producer_epoch) == (PRODUCER_ID, EPOCH)
            assert (producer.last_sequence, producer.last_timestamp) == (1, TIME_MS + 5)
            assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)


def test_unknown_partitions() -> None:
    with running() as world:
        world.create_topic("foo")
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert describe(world, 1, "bar").error_code == unknown
        assert describe(world, 1, "foo", 9).error_code == describe(world, 1, "foo", -1).error_code == unknown
        refused = describe(world, 1, "a/b")
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert refused.error_message is not None and "a/b" in refused.error_message
