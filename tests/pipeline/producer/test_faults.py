"""A cluster that dies, freezes and comes back under a producer."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
from confluent_kafka import Message

from pipeline.producer import (
    BreakerSettings,
    BreakerState,
    CircuitOpenError,
    ErrorClass,
    Failure,
    Outcome,
    ReliableProducer,
    Written,
)
from tests.integration.harness import eventually
from tests.pipeline.producer.conftest import TIMEOUT_S, Node

MakeNode = Callable[..., Node]


class Tally:
    """Outcomes, and a way to wait for a number of them."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self._changed = threading.Condition()

    def __call__(self, outcome: Outcome) -> None:
        with self._changed:
            self.outcomes.append(outcome)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.outcomes) >= count, TIMEOUT_S)

    @property
    def failures(self) -> list[Failure]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Failure)]


def test_a_node_that_is_killed_and_restarted_gets_everything_once_and_in_order(
    make_node: MakeNode, topic: str
) -> None:
    node = make_node()
    node.create(topic, partitions=3)
    tally = Tally()
    keys, records = 7, 3_000
    with ReliableProducer({"bootstrap.servers": node.bootstrap, "log_level": 0, "linger.ms": 1}) as sender:
        for number in range(records):
            sender.send(topic, str(number), f"k{number % keys}", on_delivery=tally)
            if number == records // 3:
                tally.wait_for(100)
                node.cluster.kill()
            if number == 2 * records // 3:
                node.cluster.restart()
    assert tally.failures == []
    assert len(tally.outcomes) == records
    found: dict[bytes | None, list[int]] = defaultdict(list)
    for message in node.read(topic, 3):
        found[message.key()].append(int(message.value() or b""))
    for index in range(keys):
        assert found[f"k{index}".encode()] == list(range(index, records, keys))
    assert sender.counters().client_events["_ALL_BROKERS_DOWN"] > 0


def test_a_leader_that_is_killed_costs_nothing_on_three_nodes(make_node: MakeNode, topic: str) -> None:
    node = make_node(3)
    node.create(topic, partitions=3, replicas=3)
    tally = Tally()
    records = 3_000
    with ReliableProducer({"bootstrap.servers": node.bootstrap, "log_level": 0}) as sender:
        for number in range(records):
            sender.send(topic, str(number), f"k{number % 5}", on_delivery=tally)
            if number == records // 2:
                tally.wait_for(100)
                node.cluster.kill(node.cluster.leader(topic))
    assert tally.failures == []
    read = node.read(topic, 3)
    assert Counter(int(message.value() or b"") for message in read) == dict.fromkeys(range(records), 1)
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for message in read:
        by_key[message.key()].append(int(message.value() or b""))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.mark.parametrize("fate", ["killed", "frozen"])
def test_a_cluster_that_is_gone_fails_each_record_by_its_bound_and_opens_the_breaker(
    make_node: MakeNode, topic: str, fate: str
) -> None:
    node = make_node()
    node.create(topic)
    tally = Tally()
    bound_ms = 4_000
    sender = ReliableProducer(
        {"bootstrap.servers": node.bootstrap, "delivery.timeout.ms": bound_ms, "log_level": 0},
        breaker=BreakerSettings(threshold=10, open_s=1, probes=2, ramp_s=1, ramp_initial_per_s=100),
    )
    sender.send(topic, "before", "k", on_delivery=tally)
    tally.wait_for(1)
    if fate == "killed":
        node.cluster.kill()
    else:
        node.cluster.pause(1)
    for number in range(20):
        sender.send(topic, str(number), "k", on_delivery=tally)
    tally.wait_for(21)
    assert len(tally.failures) == 20
    for failure in tally.failures:
        assert (failure.name, failure.error_class) == ("_MSG_TIMED_OUT", ErrorClass.TRANSIENT)
        assert failure.written is Written.MAYBE
        # The bound, and something for a busy machine.
        assert failure.elapsed_ms < bound_ms + 2_000
    # A probe that is admitted in vain opens it again, so it is never closed while the cluster is gone.
    assert sender.breaker_state is not BreakerState.CLOSED
    with pytest.raises(CircuitOpenError, match="the breaker lets none through"):
        for _ in range(5):
            sender.send(topic, "too many", "k", timeout_s=0)
    assert sender.counters().breaker_openings >= 1

    if fate == "killed":
        node.cluster.restart()
    else:
        node.cluster.resume(1)
    after: list[Message] = []

    def is_closed() -> bool:
        # Waits for the breaker where it has to.
        outcome = sender.submit(topic, "after", "k", timeout_s=TIMEOUT_S)
        if outcome.exception(TIMEOUT_S) is None:
            after.append(outcome.result())
        return sender.breaker_state is BreakerState.CLOSED

    eventually(is_closed, "a closed breaker", TIMEOUT_S)
    sender.close(TIMEOUT_S)
    read = Counter(message.value() for message in node.read(topic))
    assert read[b"before"] == 1
    assert read[b"after"] >= len(after) > 0
    assert all(count == 1 for value, count in read.items() if value not in (b"after", b"too many"))
