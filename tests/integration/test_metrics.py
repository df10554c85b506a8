"""Metrics and health of real nodes, while a real client works with them."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker.metrics.scrape import Scrape
from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually

RECORDS = 200
GROUP = "metrics-readers"


def scrapes(cluster: BrokerCluster) -> list[Scrape]:
    return [Scrape(broker.metrics()) for broker in cluster.running]


def total(cluster: BrokerCluster, name: str, **labels: str) -> float:
    return sum(sum(each.all(name, **labels).values()) for each in scrapes(cluster))


def test_what_a_client_does_is_seen_in_the_metrics(cluster: BrokerCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    for _ in range(RECORDS // 2):
        message = consumer.poll(20)
        assert message is not None and message.error() is None
    consumer.commit(offsets=[TopicPartition(topic, 0, RECORDS // 2)], asynchronous=False)
    consumer.close()

    assert total(cluster, "varve_topic_produced_records_total", topic=topic) == RECORDS
    produced = total(cluster, "varve_topic_produced_bytes_total", topic=topic)
    assert produced > RECORDS
    assert total(cluster, "kafka_server_brokertopicmetrics_bytesin_total", topic=topic) == produced
    assert total(cluster, "varve_topic_fetched_bytes_total", topic=topic) >= produced / 2
    assert total(cluster, "varve_partition_high_watermark", topic=topic) == RECORDS
    eventually(
        lambda: total(cluster, "varve_topic_bytes", topic=topic, cleanup="delete") == 3 * produced,
        "three copies",
    )
    for api in ("Produce", "Fetch", "OffsetCommit"):
        assert total(cluster, "varve_requests_total", api=api) > 0
        assert total(cluster, "varve_request_duration_seconds_sum", api=api) > 0
    assert total(cluster, "varve_received_bytes_total") > produced
    committed = total(cluster, "varve_group_committed_offset", group=GROUP, topic=topic)
    assert committed == RECORDS // 2
    eventually(
        lambda: total(cluster, "varve_group_lag_records", group=GROUP, topic=topic) == RECORDS - committed,
        "the coordinator knows the high watermark",
    )


def test_followers_that_have_everything_do_not_lag(cluster: BrokerCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0

    def lags() -> list[float]:
        return [
            lag
            for each in scrapes(cluster)
            for lag in each.all("varve_follower_lag_records", topic=topic).values()
        ]

    eventually(lambda: lags() == [0, 0], "both followers have it")


def test_a_node_is_ready_until_it_stops_and_then_answers_nobody(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(1)
    (broker,) = cluster.running
    url = f"http://localhost:{broker.metrics_port}"
    for path in ("/livez", "/readyz", "/metrics"):
        with urllib.request.urlopen(url + path, timeout=20) as answer:
            assert answer.status == 200
    cluster.terminate(broker.node_id)
    assert broker.process is not None and broker.process.returncode == 0
    try:
        urllib.request.urlopen(url + "/livez", timeout=5)
    except urllib.error.URLError as error:
        assert isinstance(error.reason, ConnectionRefusedError)
    else:
        raise AssertionError("somebody answers")


def test_the_port_is_that_of_loopback_alone(cluster: BrokerCluster) -> None:
    """Another address of this machine does not answer. A machine that has none but loopback shows nothing here."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return
        own = probe.getsockname()[0]
    for broker in cluster.running:
        with socket.socket() as sock:
            sock.settimeout(5)
            assert sock.connect_ex((own, broker.metrics_port)) != 0


def test_a_port_that_is_taken_ends_the_start_with_a_reason(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(1)
    (broker,) = cluster.running
    cluster.kill(broker.node_id)
    with socket.create_server(("127.0.0.1", broker.metrics_port)):
        cluster.spawn(broker)
        assert broker.process is not None
        assert broker.process.wait(timeout=60) == 1
    assert f"cannot listen on localhost:{broker.metrics_port}" in broker.log_text()
