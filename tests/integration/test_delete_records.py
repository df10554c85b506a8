"""Records are deleted by real clients from real disks: all of them shrink, and no death brings anything back."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.test_confluent import QUIET, produce

SEGMENT_BYTES = 64 * 1024


def delete_below(cluster: BrokerCluster, topic: str, offset: int) -> int:
    """Returns the low watermark."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    place = TopicPartition(topic, 0, offset)
    future = admin.delete_records([place], request_timeout=20, operation_timeout=20)[place]
    return int(future.result().low_watermark)


def first_record(cluster: BrokerCluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", **QUIET})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    message = eventually(lambda: consumer.poll(1), "a record")
    consumer.close()
    offset = message.offset()
    assert message.error() is None and offset is not None
    return offset


def earliest(cluster: BrokerCluster, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    place = TopicPartition(topic, 0)
    return int(admin.list_offsets({place: OffsetSpec.earliest()}, request_timeout=20)[place].result().offset)


def segment_bytes(cluster: BrokerCluster, topic: str) -> list[int]:
    """On each node's disk."""
    return [
        sum(path.stat().st_size for path in (broker.data / f"{topic}-0").glob("*.log"))
        for broker in cluster.brokers.values()
    ]


def test_disks_shrink_and_nothing_comes_back(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(3, log__retention__check__interval__ms="500")
    with cluster.wire() as wire:
        assert wire.create("purged", segment_bytes=str(SEGMENT_BYTES)).error_code == 0
    for _ in range(12):  # what is written at once goes into one segment
        produce(cluster.bootstrap, "purged", [{"value": b"x" * 1000} for _ in range(50)])
    before = eventually(
        lambda: sizes if (sizes := segment_bytes(cluster, "purged")) and min(sizes) > 500_000 else None,
        "every replica to have the records",
    )
    assert max(before) < 800_000
    assert delete_below(cluster, "purged", 500) == 500
    assert first_record(cluster, "purged") == 500
    eventually(
        lambda: max(segment_bytes(cluster, "purged")) < 100_000 + 2 * SEGMENT_BYTES, "the disks to shrink"
    )
    dead = cluster.leader_of("purged")
    cluster.kill(dead)
    assert first_record(cluster, "purged") == 500
    cluster.leader_of("purged")
    assert delete_below(cluster, "purged", OFFSET_END) == 600
    cluster.start(dead)
    cluster.wait_ready()
    eventually(lambda: max(segment_bytes(cluster, "purged")) == 0, "the disks to be empty")
    cluster.kill(*cluster.brokers)
    cluster.start(*cluster.brokers)
    cluster.wait_ready()
    cluster.leader_of("purged")
    assert earliest(cluster, "purged") == 600
    (report,) = produce(cluster.bootstrap, "purged", [{"value": b"after"}])
    assert report.offset() == first_record(cluster, "purged") == 600
