"""Waiting for outcomes, at a real node behind a slow way."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from pipeline.errors import ClusterUnavailable
from pipeline.lab.proxy import Proxy
from pipeline.lab.sending import outcomes
from tests.pipeline.producer.conftest import TIMEOUT_S, Node

_BROKER = 1


def test_outcomes_are_waited_for_as_long_as_they_come(node: Node, topic: str) -> None:
    node.create(topic)
    settings = {"batch.num.messages": 1, "linger.ms": 0, "max.in.flight": 1, "log_level": 0}
    with Proxy(node.bootstrap) as proxy:
        producer = Producer({"bootstrap.servers": proxy.bootstrap_server, **settings})
        producer.produce(topic, b"first")
        assert producer.flush(TIMEOUT_S) == 0
        proxy.faults(_BROKER).bytes_per_s = 10_000
        for _ in range(8):
            producer.produce(topic, b"x" * 4_000)
        begun_s = time.monotonic()
        for _ in outcomes(producer, timeout_s=2.0):
            pass
        assert time.monotonic() - begun_s > 2.0, "all together took longer than any one of them may"
        assert len(producer) == 0
        proxy.faults(_BROKER).bytes_per_s = 1
        producer.produce(topic, b"x" * 4_000)
        with pytest.raises(ClusterUnavailable, match="records without an outcome: 1; none came for 1 s"):
            for _ in outcomes(producer, timeout_s=1.0):
                pass
        producer.purge()
