"""aiokafka: old request versions (client-behaviour.md A.1), groups written in Python, admin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import TopicAlreadyExistsError

from tests.compat.scenarios.patience import WAIT_S

PARTITIONS = 4
RECORDS = 400
#: In the past, but not so far that retention takes it.
FIRST_TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000


async def fill(bootstrap: str, topic: str, first: int = 0, **settings: Any) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, acks="all", **settings) as producer:
        sent = [
            await producer.send(
                topic,
                b"value %d" % number,
                b"k%d" % number,
                number % PARTITIONS,
                FIRST_TIMESTAMP_MS + number,
                [("number", b"%d" % number)],
            )
            for number in range(first, first + RECORDS)
        ]
        offsets = [(await report).offset for report in sent]
    assert offsets == [number // PARTITIONS for number in range(first, first + RECORDS)]


@asynccontextmanager
async def member(
    bootstrap: str, group: str, *topics: str, **settings: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    async with AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=1000,
        **settings,
    ) as consumer:
        yield consumer


async def read(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    return [await asyncio.wait_for(consumer.getone(), WAIT_S) for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
async def test_produce_and_consume(
    bootstrap: str, topic: str, group: str, codec: str | None, idempotent: bool
) -> None:
    await fill(bootstrap, topic, compression_type=codec, enable_idempotence=idempotent)
    async with member(bootstrap, group, topic) as consumer:
        found = await read(consumer, RECORDS)
    assert len({(record.partition, record.offset) for record in found}) == RECORDS
    for record in found:
        number = record.offset * PARTITIONS + record.partition
        assert (record.value, record.key) == (b"value %d" % number, b"k%d" % number)
        assert record.timestamp == FIRST_TIMESTAMP_MS + number
        assert list(record.headers) == [("number", b"%d" % number)]


async def test_group_commits_and_resumes(bootstrap: str, topic: str, group: str) -> None:
    await fill(bootstrap, topic)
    async with member(bootstrap, group, topic) as consumer:
        await read(consumer, RECORDS)
        await consumer.commit()
    await fill(bootstrap, topic, first=RECORDS)
    async with member(bootstrap, group, topic) as consumer:
        assert {record.offset for record in await read(consumer, RECORDS)} == set(range(100, 200))
        assert await consumer.committed(TopicPartition(topic, 2)) == 100


@pytest.mark.parametrize("assignor", [RoundRobinPartitionAssignor, StickyPartitionAssignor])
async def test_group_rebalances(bootstrap: str, topic: str, group: str, assignor: type) -> None:
    strategy = {"partition_assignment_strategy": [assignor], "heartbeat_interval_ms": 500}
    async with member(bootstrap, group, topic, **strategy) as first:
        await _wait_until_shared(first)
        async with member(bootstrap, group, topic, **strategy) as second:
            await _wait_until_shared(first, second)
        await _wait_until_shared(first)


async def test_consume_transform_produce_in_transactions(
    bootstrap: str, topic: str, group: str, name: str
) -> None:
    await fill(bootstrap, topic)
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, PARTITIONS, 3)])
    await admin.close()
    done = attempts = 0
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as producer,
        member(bootstrap, group, topic, isolation_level="read_committed") as consumer,
    ):
        while done < RECORDS:
            found = await asyncio.wait_for(consumer.getmany(timeout_ms=500, max_records=50), WAIT_S)
            if not found:
                continue
            attempts += 1
            await producer.begin_transaction()
            for place, records in found.items():
                for record in records:
                    await producer.send(name, record.value, partition=place.partition)
            offsets = {place: records[-1].offset + 1 for place, records in found.items()}
            await producer.send_offsets_to_transaction(offsets, group)
            if attempts % 3:
                await producer.commit_transaction()
                done += sum(map(len, found.values()))
            else:
                await producer.abort_transaction()
                await consumer.seek_to_committed(*found)
                for place in found:
                    if await consumer.committed(place) is None:
                        await consumer.seek_to_beginning(place)
    async with member(bootstrap, f"{group}-readers", name, isolation_level="read_committed") as reader:
        values = [record.value for record in await read(reader, RECORDS)]
    assert len(set(values)) == RECORDS


async def _wait_until_shared(*consumers: AIOKafkaConsumer) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            owned = [{part.partition for part in consumer.assignment()} for consumer in consumers]
            equal = all(len(each) == PARTITIONS // len(consumers) for each in owned)
            if equal and len(set().union(*owned)) == PARTITIONS:
                return
            await asyncio.sleep(0.05)


async def test_static_member_returns(bootstrap: str, topic: str, group: str) -> None:
    async with member(bootstrap, group, topic, group_instance_id="stays") as stays:
        async with member(bootstrap, group, topic, group_instance_id="returns") as returns:
            await _wait_until_shared(stays, returns)
            before = returns.assignment()
        async with member(bootstrap, group, topic, group_instance_id="returns") as again:
            await _wait_until_shared(stays, again)
            assert again.assignment() == before


async def test_offsets(bootstrap: str, topic: str) -> None:
    await fill(bootstrap, topic)
    partition = TopicPartition(topic, 1)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        assert await consumer.end_offsets([partition]) == {partition: 100}
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        found = await consumer.offsets_for_times({partition: FIRST_TIMESTAMP_MS + 10 * PARTITIONS})
        assert found[partition].offset == 10
        assert await consumer.offsets_for_times({partition: FIRST_TIMESTAMP_MS + RECORDS}) == {
            partition: None
        }


async def test_admin(bootstrap: str, name: str, group: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        created = await admin.create_topics([NewTopic(name, 2, 3)])
        assert [error[1] for error in created.topic_errors] == [0]
        again = await admin.create_topics([NewTopic(name, 2, 3)])
        assert [error[1] for error in again.topic_errors] == [TopicAlreadyExistsError.errno]
        await admin.create_partitions({name: NewPartitions(4)})
        async with asyncio.timeout(WAIT_S):
            while len((await admin.describe_topics([name]))[0]["partitions"]) != 4:
                pass  # each question is a round trip
        async with member(bootstrap, group, name) as consumer:
            await _wait_until_shared(consumer)
            assert (group, "consumer") in await admin.list_consumer_groups()
            await consumer.commit({TopicPartition(name, 0): 0})
        offsets = await admin.list_consumer_group_offsets(group)
        assert offsets[TopicPartition(name, 0)].offset == 0
        await admin.delete_topics([name])
    finally:
        await admin.close()
