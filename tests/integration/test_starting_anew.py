"""A node that cannot go on with its metadata log starts anew in the same process, and needs no supervisor for it."""

from __future__ import annotations

from itertools import count

from protocol.records.batch import HEADER_BYTES
from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually


def test_a_node_whose_metadata_log_is_damaged_goes_on_as_the_same_process(
    make_cluster: ClusterFactory,
) -> None:
    cluster = make_cluster(
        3,
        metadata__log__segment__ms="200",
        # After the damage is done: a pass puts new files in place of those that it has read.
        varve__compaction__initial__delay__ms="3000",
        varve__compaction__interval__ms="300",
    )
    create(cluster, "first")
    broker = cluster[2]
    damage(cluster, 2)
    numbers = count()

    def has_started_anew() -> bool:
        create(cluster, f"topic-{next(numbers)}")  # so that there is something to be compacted
        return "node starts anew" in broker.log_text()

    eventually(has_started_anew, "a pass of compaction reads what is damaged")
    assert broker.is_running, "the process has not ended"
    eventually(lambda: broker.log_text().count(" started ") == 2, "it starts, and serves")
    cluster.wait_ready()
    create(cluster, "last")
    eventually(lambda: cluster.topic_as_seen_by(2, "last").error_code == 0, "it follows the metadata")
    assert cluster.topic_as_seen_by(2, "first").error_code == 0


def create(cluster: BrokerCluster, topic: str) -> None:
    with cluster.wire(1) as wire:
        assert wire.create(topic).error_code == 0


def damage(cluster: BrokerCluster, node_id: int) -> None:
    """Flip a bit in the records of the oldest batch."""
    segment = cluster.segments(node_id, "__cluster_metadata")[0]
    with segment.open("r+b") as file:
        file.seek(HEADER_BYTES)
        (byte,) = file.read(1)
        file.seek(HEADER_BYTES)
        file.write(bytes([byte ^ 1]))
