"""A compacted topic of three brokers, with the settings of `varve demo divergence`: all happens within a second."""

from __future__ import annotations

from operator import ge

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.cli.divergence import table
from broker.cli.divergence.brokers import NODE_SETTINGS, passes_in
from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually

TOPIC = "table"
LIMIT_S = table.LIMIT_S
#: As `make_cluster` and `Wire.create` take them. Several segments, also of little data.
NODE = {
    name.replace(".", "__"): value for name, value in NODE_SETTINGS.items() if name != "varve.metrics.port"
}
SETTINGS = {name.replace(".", "_"): value for name, value in table.SETTINGS.items()} | {
    "segment_bytes": "100000"
}


def cluster_with_table(make_cluster: ClusterFactory, **settings: str) -> BrokerCluster:
    cluster = make_cluster(3, **NODE)
    config = {name.replace("_", "."): value for name, value in {**SETTINGS, **settings}.items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]], config=config)
    admin.create_topics([new])[TOPIC].result(LIMIT_S)
    return cluster


def write(cluster: BrokerCluster, *pairs: table.Pair, acks: str = "all") -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks})
    for key, value in pairs:
        producer.produce(TOPIC, value, key, partition=0)
    assert producer.flush(LIMIT_S) == 0


def read_table(cluster: BrokerCluster) -> tuple[dict[bytes, bytes], int, int]:
    """The last value of each key, how many records there are, and how many of them are deletions."""
    return table.Table(cluster.bootstrap, TOPIC).read()[:3]


class Filler:
    """Writes something new each time it is called, so that segments are sealed."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._cluster = cluster
        self._count = 0

    def __call__(self) -> None:
        self._count += 1
        write(self._cluster, (b"filler", b"%d" % self._count))


def churn(cluster: BrokerCluster, passes: int) -> None:
    """Write until every broker that runs has compacted the table so often again."""
    fill = Filler(cluster)
    running = [broker for broker in cluster.brokers.values() if broker.is_running]

    def counts() -> list[int]:
        return [passes_in(broker.log_text(), TOPIC) for broker in running]

    wanted = [count + passes for count in counts()]

    def has_churned() -> bool | None:
        fill()
        return True if all(map(ge, counts(), wanted)) else None

    eventually(has_churned, f"{passes} passes", LIMIT_S)
