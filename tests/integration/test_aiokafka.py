"""aiokafka 0.14: old request versions (ApiVersions 0, Produce 7, Fetch 11, Metadata 5), its own codecs."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.integration.harness import BrokerCluster


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
async def test_produce_and_consume(
    cluster: BrokerCluster, topic: str, codec: str | None, idempotent: bool
) -> None:
    base = int(time.time() * 1000) - 100_000
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        compression_type=codec,
        enable_idempotence=idempotent,
        linger_ms=20,
    )
    await producer.start()
    try:
        sent = [
            await producer.send(
                topic,
                value=None if number == 7 else b"value %d " % number * 10,
                key=None if number == 8 else b"key %d" % number,
                timestamp_ms=base + number,
                headers=[("h", b"%d" % number), ("h", b"")],
            )
            for number in range(300)
        ]
        offsets = [(await report).offset for report in sent]
    finally:
        await producer.stop()
    assert offsets == list(range(300))

    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, isolation_level="read_committed")
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        for number in range(300):
            record = await consumer.getone()
            assert record.offset == number
            assert record.value == (None if number == 7 else b"value %d " % number * 10)
            assert record.key == (None if number == 8 else b"key %d" % number)
            assert record.timestamp == base + number
            assert list(record.headers) == [("h", b"%d" % number), ("h", b"")]
        assert await consumer.end_offsets([partition]) == {partition: 300}
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        found = await consumer.offsets_for_times({partition: base + 100})
        assert (found[partition].offset, found[partition].timestamp) == (100, base + 100)
        assert await consumer.offsets_for_times({partition: base + 1000}) == {partition: None}
    finally:
        await consumer.stop()


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_acks(cluster: BrokerCluster, topic: str, acks: int | str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks=acks)
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap)
    await producer.start()
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        values = [b"%d" % number for number in range(10)]
        for value in values:
            await producer.send_and_wait(topic, value)
        if acks == 0:
            # Nobody promises that they are there, and on a busy machine a leader may have refused them.
            async with asyncio.timeout(60):
                while not await consumer.getmany(timeout_ms=2000):
                    await producer.send_and_wait(topic, b"again")
        else:
            assert [(await consumer.getone()).value for _ in values] == values
    finally:
        await producer.stop()
        await consumer.stop()


async def test_a_topic_is_created_on_demand_and_large_messages_refused(cluster: BrokerCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, max_request_size=3_000_000)
    await producer.start()
    try:
        assert (await producer.send_and_wait("aio-on-demand", b"x" * 1_000_000)).offset == 0
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait("aio-on-demand", b"x" * 1_100_000)
    finally:
        await producer.stop()


async def eventually(admin: AIOKafkaAdminClient, topic: str) -> None:
    """The client asks whichever broker it likes; one that is not the controller hears of a topic a little later."""
    async with asyncio.timeout(5):
        while topic not in await admin.list_topics():
            pass


async def test_administration(cluster: BrokerCluster) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        response = await admin.create_topics([NewTopic("aio-made", 2, 3)])
        assert [error[1] for error in response.topic_errors] == [0]
        response = await admin.create_topics([NewTopic("aio-made", 2, 3)])
        assert [error[1] for error in response.topic_errors] == [TopicAlreadyExistsError.errno]
        await eventually(admin, "aio-made")
        described = await admin.describe_cluster()
        assert {broker["node_id"] for broker in described["brokers"]} == set(cluster.brokers)
        response = await admin.delete_topics(["aio-made", "aio-never"])
        assert dict(response.topic_error_codes) == {
            "aio-made": 0,
            "aio-never": UnknownTopicOrPartitionError.errno,
        }
    finally:
        await admin.close()
