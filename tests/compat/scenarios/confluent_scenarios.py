"""confluent-kafka: producer, consumer in both group protocols, admin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.scenarios.patience import WAIT_S

PARTITIONS = 4
RECORDS = 400
#: In the past, but not so far that retention takes it.
FIRST_TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000
Eventually = Callable[[Callable[[], object], str], None]


def fill(bootstrap: str, topic: str, *, first: int = 0, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    reports: list[object] = []
    for number in range(first, first + RECORDS):
        producer.produce(
            topic,
            f"value {number}",
            f"k{number}",
            number % PARTITIONS,
            timestamp=FIRST_TIMESTAMP_MS + number,
            headers={"number": str(number)},
            on_delivery=lambda error, message: reports.append(error),
        )
    assert producer.flush(WAIT_S) == 0
    assert reports == [None] * RECORDS


@contextmanager
def member(bootstrap: str, group: str, protocol: str = "classic", **settings: Any) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    with closing(consumer):
        yield consumer


def read(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(count - len(found), 0.5)
    assert [message.error() for message in found] == [None] * len(found)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_produce_and_read_back(bootstrap: str, topic: str, group: str, codec: str, idempotent: bool) -> None:
    settings: dict[str, Any] = {"compression.type": codec, "enable.idempotence": idempotent}
    fill(bootstrap, topic, **settings)
    with member(bootstrap, group) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        found = read(consumer, RECORDS)
        for message in found:
            offset, partition = message.offset(), message.partition()
            assert offset is not None and partition is not None
            number = offset * PARTITIONS + partition
            assert (message.value(), message.key()) == (b"value %d" % number, b"k%d" % number)
            assert message.headers() == [("number", b"%d" % number)]
            assert message.timestamp()[1] == FIRST_TIMESTAMP_MS + number
        assert len({(message.partition(), message.offset()) for message in found}) == RECORDS
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 100)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_commits_and_resumes(bootstrap: str, topic: str, group: str, protocol: str) -> None:
    fill(bootstrap, topic)
    with member(bootstrap, group, protocol) as consumer:
        consumer.subscribe([topic])
        assert len(read(consumer, RECORDS)) == RECORDS
        offsets = [
            TopicPartition(topic, partition, 100, f"part {partition}") for partition in range(PARTITIONS)
        ]
        consumer.commit(offsets=offsets, asynchronous=False)
    fill(bootstrap, topic, first=RECORDS)
    with member(bootstrap, group, protocol) as consumer:
        consumer.subscribe([topic])
        found = read(consumer, RECORDS)
        assert {message.offset() for message in found} == set(range(100, 200))
        kept = consumer.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], 10)
        assert [(each.offset, each.metadata) for each in kept] == [
            (100, f"part {index}") for index in range(PARTITIONS)
        ]


@pytest.mark.parametrize(
    ("protocol", "strategy"),
    [("classic", "range"), ("classic", "cooperative-sticky"), ("consumer", "uniform"), ("consumer", "range")],
)
def test_group_rebalances(bootstrap: str, topic: str, group: str, protocol: str, strategy: str) -> None:
    how = "partition.assignment.strategy" if protocol == "classic" else "group.remote.assignor"
    settings = {how: strategy}
    with member(bootstrap, group, protocol, **settings) as first:
        first.subscribe([topic])
        _wait_until_shared(first)
        with member(bootstrap, group, protocol, **settings) as second:
            second.subscribe([topic])
            _wait_until_shared(first, second)
        _wait_until_shared(first)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_transform_produce_in_transactions(
    bootstrap: str, topic: str, group: str, name: str, admin: AdminClient, protocol: str
) -> None:
    """The offsets go with the records. Every third transaction is aborted, and what it had is consumed again."""
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 3)]).values():
        future.result(WAIT_S)
    fill(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    attempts = done = 0
    with member(bootstrap, group, protocol) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + WAIT_S
        while done < RECORDS and time.monotonic() < deadline:
            found = [message for message in consumer.consume(50, 0.5) if message.error() is None]
            if not found:
                continue
            attempts += 1
            producer.begin_transaction()
            for message in found:
                producer.produce(name, message.value(), partition=message.partition() or 0)
            places = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)
            if attempts % 3:
                producer.commit_transaction(WAIT_S)
                done += len(found)
            else:
                producer.abort_transaction(WAIT_S)
                for place in consumer.committed(consumer.assignment(), WAIT_S):
                    place.offset = max(place.offset, 0)
                    consumer.seek(place)
    with member(bootstrap, f"{group}-readers") as reader:
        reader.subscribe([name])
        read_values = [message.value() for message in read(reader, RECORDS)]
        assert len(set(read_values)) == RECORDS
        assert reader.poll(1) is None, "each once"


def _wait_until_shared(*consumers: Consumer) -> None:
    """Poll them in turn until they have equal shares that together are all partitions."""
    deadline = time.monotonic() + WAIT_S
    while True:
        for consumer in consumers:
            consumer.poll(0.1)
        owned = [{part.partition for part in consumer.assignment()} for consumer in consumers]
        if (
            all(len(each) == PARTITIONS // len(consumers) for each in owned)
            and len(set().union(*owned)) == PARTITIONS
        ):
            return
        assert time.monotonic() < deadline, f"partitions are not shared: {owned}"


def test_admin_topics_and_settings(
    bootstrap: str, topic: str, admin: AdminClient, eventually: Eventually
) -> None:
    fill(bootstrap, topic)
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(WAIT_S)
    eventually(
        lambda: len(admin.list_topics(topic, 10).topics[topic].partitions) == PARTITIONS + 2, "new partitions"
    )

    wanted = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    (changed,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[wanted])]
    ).values()
    changed.result(WAIT_S)

    def retention() -> str:
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return str(described.result(WAIT_S)["retention.ms"].value)

    eventually(lambda: retention() == "60000", "the setting to hold")
    admin.delete_topics([topic])[topic].result(WAIT_S)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic to be gone")


def test_admin_records(bootstrap: str, topic: str, admin: AdminClient) -> None:
    fill(bootstrap, topic)
    partition = TopicPartition(topic, 0)
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 40)]).values()
    assert deleted.result(WAIT_S).low_watermark == 40

    def offset(spec: OffsetSpec) -> int:
        (listed,) = admin.list_offsets({partition: spec}).values()
        return int(listed.result(WAIT_S).offset)

    assert offset(OffsetSpec.earliest()) == 40
    assert offset(OffsetSpec.latest()) == 100
    assert offset(OffsetSpec.max_timestamp()) == 99
    assert offset(OffsetSpec.for_timestamp(FIRST_TIMESTAMP_MS + 50 * PARTITIONS)) == 50
    (refused,) = admin.delete_records([TopicPartition(topic, 0, 101)]).values()
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        refused.result(WAIT_S)


def test_admin_groups(
    bootstrap: str, topic: str, group: str, admin: AdminClient, eventually: Eventually
) -> None:
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 7)])

    def alter() -> bool:
        (answer,) = admin.alter_consumer_group_offsets([wanted])[group].result(WAIT_S).topic_partitions
        return answer.error is None

    eventually(alter, "the coordinator to know the new topic")
    (listed,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert [(each.partition, each.offset) for each in listed.result(WAIT_S).topic_partitions] == [(1, 7)]
    assert group in {each.group_id for each in admin.list_consumer_groups().result(WAIT_S).valid}
    described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    assert described.state.name == "EMPTY"
    with member(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        _wait_until_shared(consumer)
        described = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        assert (described.state.name, len(described.members)) == ("STABLE", 1)
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result(WAIT_S)
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups([group])[group].result(WAIT_S)


def test_admin_cluster(admin: AdminClient) -> None:
    described = admin.describe_cluster().result(WAIT_S)
    assert len(described.nodes) == 3
    assert described.controller is not None
