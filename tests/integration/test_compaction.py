"""Compacted topics, as clients see them, with the processes that compact them."""

from __future__ import annotations

import random

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually

TOPIC = "table"
SETTINGS = {
    "cleanup_policy": "compact",
    "segment_ms": "300",
    "segment_bytes": "100000",
    "min_cleanable_dirty_ratio": "0",
    "delete_retention_ms": "500",
    "max_compaction_lag_ms": "1000",
}
NODE = {
    "varve__compaction__initial__delay__ms": "200",
    "varve__compaction__interval__ms": "300",
    "producer__id__expiration__ms": "1000",
    "log__retention__check__interval__ms": "300",
}
LIMIT_S = 60.0


def cluster_with_table(make_cluster: ClusterFactory, **settings: str) -> BrokerCluster:
    cluster = make_cluster(3, **NODE)
    with cluster.wire() as wire:
        assert wire.create(TOPIC, 1, 3, **{**SETTINGS, **settings}).error_code == 0
    return cluster


def write(cluster: BrokerCluster, *pairs: tuple[bytes, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for key, value in pairs:
        producer.produce(TOPIC, value, key, partition=0)
    assert producer.flush(LIMIT_S) == 0


def read_table(cluster: BrokerCluster) -> tuple[dict[bytes, bytes], int, int]:
    """The last value of each key, how many records there are, and how many of them are deletions."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: dict[bytes, bytes] = {}
    records = deletions = 0
    while (message := consumer.poll(LIMIT_S)) is not None and message.error() is None:
        records += 1
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        if value is None:
            deletions += 1
            values.pop(key, None)
        else:
            assert isinstance(value, bytes)
            values[key] = value
    consumer.close()
    assert message is not None, "the end was not reached"
    return values, records, deletions


class Filler:
    """Writes something new each time it is called, so that segments are sealed."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._cluster = cluster
        self._count = 0

    def __call__(self) -> None:
        self._count += 1
        write(self._cluster, (b"filler", b"%d" % self._count))


def test_of_each_key_the_last_record_is_left_and_deletions_go(make_cluster: ClusterFactory) -> None:
    cluster = cluster_with_table(make_cluster)
    rng = random.Random(1)
    pairs = [(b"k%d" % rng.randrange(50), rng.choice([None, b"v%d" % number * 30])) for number in range(3000)]
    write(cluster, *pairs)
    table = {key: value for key, value in dict(pairs).items() if value is not None}
    fill = Filler(cluster)

    def is_compacted() -> bool | None:
        fill()
        values, records, deletions = read_table(cluster)
        assert values.pop(b"filler") is not None
        assert values == table
        return True if deletions == 0 and records < len(table) + 20 else None

    eventually(is_compacted, "only the last records are left", LIMIT_S)


def test_a_deletion_stays_while_a_replica_is_away_and_a_deleted_key_never_comes_back(
    make_cluster: ClusterFactory,
) -> None:
    """The first divergence of coordinated-compaction.md: on Apache Kafka 4.3.1 the key is back."""
    cluster = cluster_with_table(make_cluster)
    write(cluster, (b"k", b"V"))
    away = 1 if cluster.leader_of(TOPIC) != 1 else 2
    cluster.kill(away)
    write(cluster, (b"k", None))
    fill = Filler(cluster)
    passes = 0

    def has_churned() -> bool | None:
        """Long after delete.retention.ms, and some passes."""
        nonlocal passes
        fill()
        present = [broker for broker in cluster.brokers.values() if broker.is_running]
        passes = min(broker.log_text().count("compacted") for broker in present)
        return True if passes >= 12 else None

    eventually(has_churned, "a dozen passes", LIMIT_S)
    values, _, deletions = read_table(cluster)
    assert (b"k" in values, deletions) == (False, 1)
    cluster.start(away)

    def is_gone() -> bool | None:
        fill()
        values, _, deletions = read_table(cluster)
        assert b"k" not in values
        return True if deletions == 0 else None

    eventually(is_gone, "the deletion goes once every replica is clean", LIMIT_S)
    for node_id in cluster.brokers:
        if node_id != away:
            cluster.kill(node_id)
            break
    assert b"k" not in read_table(cluster)[0]


def test_after_a_restart_a_deletion_goes_although_nobody_writes(make_cluster: ClusterFactory) -> None:
    cluster = cluster_with_table(make_cluster, delete_retention_ms="5000")
    write(cluster, (b"other", b"V"), (b"k", b"V"), (b"k", None))

    def has_horizon() -> bool | None:
        """Each replica has the two records that a first pass leaves, and nothing is dirty."""
        logs = [broker.log_text() for broker in cluster.brokers.values()]
        return True if all("records_after=2" in log for log in logs) else None

    eventually(has_horizon, "the first pass", LIMIT_S)
    cluster.kill(*cluster.brokers)
    cluster.start(*cluster.brokers)
    cluster.wait_ready()
    assert read_table(cluster) == ({b"other": b"V"}, 2, 1)
    eventually(lambda: read_table(cluster)[1:] == (1, 0) or None, "the deletion goes", LIMIT_S)
