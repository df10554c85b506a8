"""A cluster to which happens what the metrics tell of: load, a node that is away, an open transaction, deletions that
are held.
"""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.metrics.scrape import Scrape
from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.tables import LIMIT_S, TOPIC, churn, cluster_with_table, write

EVENTS = "events"
PARTITIONS = 3
AWAY = 3


def loaded_cluster(make_cluster: ClusterFactory) -> BrokerCluster:
    """The node AWAY is down in the end, and keeps the bounds of the table from rising."""
    cluster = cluster_with_table(make_cluster)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(EVENTS, PARTITIONS, 3)])[EVENTS].result(LIMIT_S)
    use(cluster)
    _leave_transaction_open(cluster)
    write(cluster, *((b"k%d" % number, b"v") for number in range(100)))
    churn(cluster, 2)
    eventually(lambda: _has_bound(cluster), "all have told what they have cleaned", LIMIT_S)
    cluster.terminate(AWAY)
    write(cluster, *((b"k%d" % number, None) for number in range(50)))
    churn(cluster, 4)
    return cluster


def _has_bound(cluster: BrokerCluster) -> bool:
    shown = [Scrape(broker.metrics()) for broker in cluster.running]
    return any(each.all("varve_compaction_mtro_offset", topic=TOPIC) for each in shown)


def use(cluster: BrokerCluster) -> None:
    """Produce, and consume some of it, as a group."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(300):
        producer.produce(EVENTS, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(LIMIT_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([EVENTS])
    read = eventually(lambda: consumer.consume(50, 1.0), "records come", LIMIT_S)
    offsets = [TopicPartition(EVENTS, partition, 10) for partition in range(PARTITIONS)]
    assert read
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def _leave_transaction_open(cluster: BrokerCluster) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "writer",
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce(EVENTS, b"open", partition=0)
    assert producer.flush(LIMIT_S) == 0
