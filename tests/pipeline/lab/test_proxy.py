"""The proxy between real clients and a real node."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from pipeline.lab.proxy import Proxy
from tests.integration.harness import eventually
from tests.pipeline.producer.conftest import TIMEOUT_S, Node

_BROKER = 1


def _producer(bootstrap: str, **settings: object) -> Producer:
    return Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0}
        | {name.replace("__", "."): value for name, value in settings.items()}
    )


def _send(producer: Producer, topic: str, records: int) -> list[float]:
    """Seconds from `produce` to the acknowledgement of each record."""
    latencies_s: list[float] = []

    def reported(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        latencies_s.append(message.latency() or 0.0)

    for number in range(records):
        producer.produce(topic, str(number), on_delivery=reported)
    assert producer.flush(TIMEOUT_S) == 0
    return latencies_s


def test_clients_learn_of_no_address_but_the_proxys_and_every_request_is_counted(
    node: Node, topic: str
) -> None:
    node.create(topic)
    with Proxy(node.bootstrap) as proxy:
        told = AdminClient({"bootstrap.servers": proxy.bootstrap_server}).list_topics(timeout=TIMEOUT_S)
        assert [f"{x.host}:{x.port}" for x in told.brokers.values()] == [proxy.bootstrap_server]
        assert proxy.bootstrap_server != node.bootstrap
        begun_s = time.monotonic()
        _send(_producer(proxy.bootstrap_server, batch__num__messages=10), topic, 100)
        times_s = proxy.produced_at_s()
    assert len(times_s) >= 10
    assert begun_s <= times_s[0] <= times_s[-1] <= time.monotonic()
    assert [m.value() for m in node.read(topic)] == [str(number).encode() for number in range(100)]


def test_a_delay_counts_in_both_directions_and_ends_when_it_is_taken_back(node: Node, topic: str) -> None:
    node.create(topic)
    with Proxy(node.bootstrap) as proxy:
        producer = _producer(proxy.bootstrap_server, linger__ms=0)
        proxy.set_all(delay_s=0.2)
        (slow_s,) = _send(producer, topic, 1)
        assert slow_s >= 0.4
        proxy.set_all()
        assert min(_send(producer, topic, 1)[0] for _ in range(5)) < 0.4


def test_a_throttled_broker_gets_no_more_bytes_than_it_may(node: Node, topic: str) -> None:
    node.create(topic)
    with Proxy(node.bootstrap) as proxy:
        producer = _producer(proxy.bootstrap_server, linger__ms=0)
        _send(producer, topic, 1)
        proxy.faults(_BROKER).bytes_per_s = 10_000
        begun_s = time.monotonic()
        producer.produce(topic, b"x" * 5_000)
        assert producer.flush(TIMEOUT_S) == 0
        assert time.monotonic() - begun_s >= 0.5


@pytest.mark.parametrize("is_idempotent", [False, True])
def test_a_lost_acknowledgement_doubles_records_unless_the_producer_is_idempotent(
    node: Node, topic: str, is_idempotent: bool
) -> None:
    node.create(topic)
    with Proxy(node.bootstrap) as proxy:
        settings = {"enable.idempotence": is_idempotent, "batch.num.messages": 10, "retry.backoff.ms": 1}
        producer = _producer(proxy.bootstrap_server, **settings)
        _send(producer, topic, 1)
        proxy.set_all(drop_every=5)
        _send(producer, topic, 300)
        assert proxy.answers_dropped > 0
    copies = Counter(message.value() for message in node.read(topic))
    assert copies.keys() >= {str(number).encode() for number in range(300)}
    # Record 0 was sent twice on purpose, as the first of either call.
    doubled = {value for value, count in copies.items() if count > 1} - {b"0"}
    assert bool(doubled) is not is_idempotent


def test_the_proxy_outlives_a_broker_that_dies_and_comes_back(
    make_node: Callable[..., Node], topic: str
) -> None:
    node = make_node()
    node.create(topic)
    with Proxy(node.bootstrap) as proxy:
        producer = _producer(
            proxy.bootstrap_server, enable__idempotence=True, reconnect__backoff__max__ms=200
        )
        _send(producer, topic, 10)
        node.cluster.kill(1)
        done = threading.Thread(target=_send, args=(producer, topic, 10))
        done.start()
        node.cluster.restart(1)
        done.join(TIMEOUT_S)
        assert not done.is_alive()
    assert len(node.read(topic)) == 20


def test_the_proxy_ends_while_more_waits_in_it_than_it_can_hold(node: Node, topic: str) -> None:
    node.create(topic)
    with Proxy(node.bootstrap) as proxy:
        settings = {"batch.num.messages": 1, "linger.ms": 0, "message.timeout.ms": 60_000}
        producer = _producer(proxy.bootstrap_server, **settings)
        _send(producer, topic, 1)
        proxy.faults(_BROKER).bytes_per_s = 1
        for _ in range(3_000):
            producer.produce(topic, b"x")
        eventually(lambda: len(proxy.produced_at_s()) > 1_000, "a full queue")
        producer.purge()
        # The end of the block raises TimeoutError if a connection hangs.
