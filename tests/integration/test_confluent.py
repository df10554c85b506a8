"""confluent-kafka (librdkafka of today) produces and consumes with assigned partitions, and administers topics."""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.integration.harness import BrokerCluster
from tests.integration.load import read_all

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
QUIET = {"log_level": 2, "topic.metadata.refresh.interval.ms": 1000}


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **settings: object) -> list[Message]:
    """Produce and wait; returns the reports in order. Fails where one reports an error."""
    reports: list[Message] = []

    def reported(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        reports.append(message)

    producer = Producer({"bootstrap.servers": bootstrap, **QUIET, **settings})
    for record in records:
        producer.produce(topic, **record, on_delivery=reported)
    assert producer.flush(30) == 0
    assert len(reports) == len(records)
    return reports


def result(future: Future[Any]) -> Any:
    return future.result(timeout=30)


def error_code(future: Future[Any]) -> int:
    with pytest.raises(KafkaException) as raised:
        future.result(timeout=30)
    return int(raised.value.args[0].code())


@pytest.fixture
def admin(cluster: BrokerCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_every_part_of_a_record_comes_back(
    cluster: BrokerCluster, topic: str, codec: str, idempotent: bool
) -> None:
    """Keys, values, headers (repeated, empty, null), timestamps, null keys, tombstones."""
    base = int(time.time() * 1000) - 100_000
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", b""), ("b", None)]
    records: list[dict[str, Any]] = [
        {
            "key": b"k%d" % number,
            "value": b"value %d " % number * 20,
            "timestamp": base + number,
            "headers": headers,
        }
        for number in range(500)
    ]
    records += [
        {"key": b"gone", "value": None, "timestamp": base},
        {"key": None, "value": b"no key", "timestamp": base + 1},
        {"key": b"", "value": b"", "timestamp": base + 2},
    ]
    settings = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 50}
    reports = produce(cluster.bootstrap, topic, records, **settings)
    assert [report.offset() for report in reports] == list(range(len(records)))

    found = read_all(cluster.bootstrap, topic, **{"check.crcs": True})
    assert [message.offset() for message in found] == list(range(len(records)))
    for message, record in zip(found, records, strict=True):
        assert message.key() == record["key"]
        assert message.value() == record["value"]
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, record["timestamp"])
        assert message.headers() == record.get("headers")
        epoch = message.leader_epoch()
        assert epoch is not None and epoch >= 0


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(cluster: BrokerCluster, topic: str, acks: str) -> None:
    records = [{"key": b"%d" % number, "value": b"x" * 100} for number in range(100)]
    reports = produce(cluster.bootstrap, topic, records, acks=acks)
    if acks != "0":
        assert [report.offset() for report in reports] == list(range(100))
    found: list[Message] = []
    deadline = time.monotonic() + 10
    while len(found) < 100 and time.monotonic() < deadline:  # acks=0 and 1 do not wait for the commit
        found = read_all(cluster.bootstrap, topic)
    assert [message.key() for message in found] == [b"%d" % number for number in range(100)]


def test_a_topic_is_created_for_whoever_produces_to_it(cluster: BrokerCluster, admin: AdminClient) -> None:
    produce(cluster.bootstrap, "made-on-demand", [{"value": b"first"}])
    assert [message.value() for message in read_all(cluster.bootstrap, "made-on-demand")] == [b"first"]
    described = admin.list_topics("made-on-demand", timeout=10).topics["made-on-demand"]
    assert len(described.partitions) == 1
    assert len(described.partitions[0].replicas) == 3


def test_a_consumer_does_not_create_a_topic(cluster: BrokerCluster, admin: AdminClient) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", **QUIET})
    with pytest.raises(KafkaException) as raised:
        consumer.get_watermark_offsets(TopicPartition("nobody-made-this", 0), timeout=2)
    consumer.close()
    assert raised.value.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
    assert "nobody-made-this" not in admin.list_topics(timeout=10).topics


def test_create_topics_and_its_errors(cluster: BrokerCluster, admin: AdminClient) -> None:
    wanted = NewTopic("admin-made", 3, 2, config={"retention.ms": "1000000", "cleanup.policy": "compact"})
    result(admin.create_topics([wanted])["admin-made"])

    def refusal(name: str, *arguments: Any, **keywords: Any) -> int:
        return error_code(admin.create_topics([NewTopic(name, *arguments, **keywords)])[name])

    assert refusal("admin-made", 1, 1) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refusal("too-many", 1, 4) == KafkaError.INVALID_REPLICATION_FACTOR
    assert refusal("too-few", 0, 1) == KafkaError.INVALID_PARTITIONS
    assert refusal("bad name", 1, 1) == KafkaError.TOPIC_EXCEPTION
    assert refusal("..", 1, 1) == KafkaError.TOPIC_EXCEPTION
    assert refusal("x" * 250, 1, 1) == KafkaError.TOPIC_EXCEPTION
    assert refusal("unknown-key", 1, 1, config={"no.such.key": "1"}) == KafkaError.INVALID_CONFIG
    assert refusal("bad-value", 1, 1, config={"retention.ms": "soon"}) == KafkaError.INVALID_CONFIG

    validated = admin.create_topics([NewTopic("only-asked", 1, 1)], validate_only=True)
    result(validated["only-asked"])
    listed = admin.list_topics(timeout=10).topics
    assert len(listed["admin-made"].partitions) == 3
    assert {len(partition.replicas) for partition in listed["admin-made"].partitions.values()} == {2}
    assert "only-asked" not in listed


def test_a_topic_made_again_is_another_topic(cluster: BrokerCluster, admin: AdminClient) -> None:
    ids = set()
    for content in (b"before", b"after"):
        result(admin.create_topics([NewTopic("phoenix", 1, 3)])["phoenix"])
        reports = produce(cluster.bootstrap, "phoenix", [{"value": content}] * 3)
        assert [report.offset() for report in reports] == [0, 1, 2]
        assert [message.value() for message in read_all(cluster.bootstrap, "phoenix")] == [content] * 3
        ids.add(str(result(admin.describe_topics(TopicCollection(["phoenix"]))["phoenix"]).topic_id))
        result(admin.delete_topics(["phoenix"])["phoenix"])
    assert len(ids) == 2
    assert error_code(admin.delete_topics(["phoenix"])["phoenix"]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_offsets_by_time(cluster: BrokerCluster, topic: str, admin: AdminClient) -> None:
    base = int(time.time() * 1000) - 10_000
    produce(
        cluster.bootstrap,
        topic,
        [{"value": b"x", "timestamp": base + 10 * number} for number in range(50)],
        **{"linger.ms": 50},
    )
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        return int(result(admin.list_offsets({partition: spec})[partition]).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 50
    assert offset(OffsetSpec.max_timestamp()) == 49
    assert offset(OffsetSpec.for_timestamp(base + 100)) == 10
    assert offset(OffsetSpec.for_timestamp(base + 101)) == 11
    assert offset(OffsetSpec.for_timestamp(base + 10_000)) == -1

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", **QUIET})
    found = consumer.offsets_for_times([TopicPartition(topic, 0, base + 5)], timeout=10)
    assert found[0].offset == 1
    consumer.close()


def test_describe_cluster(cluster: BrokerCluster, admin: AdminClient) -> None:
    described = result(admin.describe_cluster())
    assert sorted((node.id, node.port) for node in described.nodes) == [
        (broker.node_id, broker.port) for broker in cluster.brokers.values()
    ]
    assert described.controller.id in cluster.brokers
    assert described.cluster_id == admin.list_topics(timeout=10).cluster_id


def test_read_committed_reads_all_that_is_committed(cluster: BrokerCluster, topic: str) -> None:
    produce(cluster.bootstrap, topic, [{"value": b"%d" % number} for number in range(10)])
    found = read_all(cluster.bootstrap, topic, 60, **{"isolation.level": "read_committed"})
    assert [message.value() for message in found] == [b"%d" % number for number in range(10)]


def test_a_megabyte_goes_through_and_more_does_not(cluster: BrokerCluster, topic: str) -> None:
    large = bytes(range(256)) * 4064  # 1,040,384 bytes: with its framing just below message.max.bytes
    produce(cluster.bootstrap, topic, [{"value": large}] * 5, **{"message.max.bytes": 5_000_000})
    assert [message.value() for message in read_all(cluster.bootstrap, topic)] == [large] * 5

    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 5_000_000, **QUIET})
    producer.produce(topic, b"x" * 1_100_000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_log_append_time_is_the_brokers(cluster: BrokerCluster, admin: AdminClient) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    result(admin.create_topics([NewTopic("append-time", 1, 3, config=config)])["append-time"])
    before = int(time.time() * 1000)
    produce(cluster.bootstrap, "append-time", [{"value": b"x", "timestamp": 1_000}] * 3)
    after = int(time.time() * 1000)
    for message in read_all(cluster.bootstrap, "append-time"):
        kind, timestamp = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before <= timestamp <= after


def test_a_position_outside_the_log_is_reset(cluster: BrokerCluster, topic: str) -> None:
    produce(cluster.bootstrap, topic, [{"value": b"%d" % number} for number in range(5)])
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 1000)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert (message.error(), message.offset()) == (None, 0)
