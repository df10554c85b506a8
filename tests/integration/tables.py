"""A compacted topic of three brokers, with settings under which everything happens within a second."""

from __future__ import annotations

from collections.abc import Sequence
from operator import ge

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import Broker, BrokerCluster, eventually

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


def cluster_with_table(
    make_cluster: ClusterFactory, replicas: Sequence[int] = (1, 2, 3), **settings: str
) -> BrokerCluster:
    """`replicas`: the preferred leader first."""
    cluster = make_cluster(3, **NODE)
    config = {name.replace("_", "."): value for name, value in {**SETTINGS, **settings}.items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(TOPIC, 1, replica_assignment=[list(replicas)], config=config)
    admin.create_topics([new])[TOPIC].result(LIMIT_S)
    return cluster


def write(cluster: BrokerCluster, *pairs: tuple[bytes, bytes | None], acks: str = "all") -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks})
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


def churn(cluster: BrokerCluster, passes: int = 12) -> None:
    """Write until every broker that runs has compacted the table so often again: long after delete.retention.ms."""
    fill = Filler(cluster)
    running = [broker for broker in cluster.brokers.values() if broker.is_running]
    wanted = [_passes(broker) + passes for broker in running]

    def has_churned() -> bool | None:
        fill()
        return True if all(map(ge, map(_passes, running), wanted)) else None

    eventually(has_churned, f"{passes} passes", LIMIT_S)


def _passes(broker: Broker) -> int:
    lines = broker.log_text().splitlines()
    return sum("compacted" in line and f"topic={TOPIC}" in line for line in lines)
