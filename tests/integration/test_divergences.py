"""The four divergences of coordinated-compaction.md, section 6: what a replica that was away still needs, the others
keep. All four are seen on Apache Kafka 4.3.1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.tables import LIMIT_S, TOPIC, Filler, churn, cluster_with_table, read_table, write

#: The broker that is away. It is the preferred replica.
AWAY = 2


@pytest.fixture
def cluster(make_cluster: ClusterFactory) -> BrokerCluster:
    return cluster_with_table(make_cluster, replicas=[AWAY, 1, 3])


@contextmanager
def absence(cluster: BrokerCluster) -> Iterator[None]:
    """The broker is away meanwhile, and everything is compacted many times. It leads the table afterwards."""
    cluster.kill(AWAY)
    cluster.leader_of(TOPIC)
    yield
    churn(cluster)
    cluster.start(AWAY)
    cluster.wait_ready()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def leads() -> bool | None:
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(LIMIT_S)
        return True if cluster.leader_of(TOPIC) == AWAY else None

    eventually(leads, "the broker that was away leads", LIMIT_S)


class Writer:
    """One transactional id."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": "writer", "log_level": 0}
        )
        self._producer.init_transactions(LIMIT_S)

    def begin(self, *pairs: tuple[bytes, bytes | None]) -> None:
        """The records are there, and nobody knows how it ends."""
        self._producer.begin_transaction()
        for key, value in pairs:
            self._producer.produce(TOPIC, value, key, partition=0)
        assert self._producer.flush(LIMIT_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(LIMIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(LIMIT_S)


def test_a_deleted_key_never_comes_back(cluster: BrokerCluster) -> None:
    write(cluster, (b"k", b"V"))
    with absence(cluster):
        write(cluster, (b"k", None))
    assert b"k" not in read_table(cluster)[0]
    fill = Filler(cluster)

    def is_gone() -> bool | None:
        fill()
        values, _, deletions = read_table(cluster)
        assert b"k" not in values
        return True if deletions == 0 else None

    eventually(is_gone, "the deletion goes once every replica is clean", LIMIT_S)


def test_an_aborted_record_never_becomes_committed(cluster: BrokerCluster) -> None:
    writer = Writer(cluster)
    writer.begin((b"poison", b"aborted"))
    with absence(cluster):
        writer.abort()
        churn(cluster)
        writer.begin((b"good", b"committed"))
        writer.commit()
    values, _, _ = read_table(cluster)
    assert (values.get(b"poison"), values.get(b"good")) == (None, b"committed")


def test_a_committed_record_never_becomes_aborted(cluster: BrokerCluster) -> None:
    write(cluster, (b"g", b"OLD"))
    writer = Writer(cluster)
    writer.begin((b"g", None), (b"h", b"committed"))
    with absence(cluster):
        writer.commit()
        churn(cluster)
        writer.begin((b"junk", b"aborted"))
        writer.abort()
    values, _, _ = read_table(cluster)
    assert (values.get(b"g"), values.get(b"h"), values.get(b"junk")) == (None, b"committed", None)


def test_readers_of_committed_data_never_freeze(cluster: BrokerCluster) -> None:
    writer = Writer(cluster)
    writer.begin((b"k", b"first"))
    with absence(cluster):
        writer.commit()
        write(cluster, (b"k", b"second"))
        churn(cluster)
        write(cluster, (b"last", b"plain"))
    values, _, _ = read_table(cluster)
    assert (values.get(b"k"), values.get(b"last")) == (b"second", b"plain")
