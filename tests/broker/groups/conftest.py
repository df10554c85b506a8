"""Fixtures of the consumer protocol: a topic of four partitions, and a coordinator.

The error codes that these tests expect are those of Apache Kafka 4.3, which was asked.
"""

from __future__ import annotations

import pytest

from tests.broker.groups.consumers import Coordinator, Topics


@pytest.fixture
def topics() -> Topics:
    topics = Topics()
    topics.set("t", 4)
    return topics


@pytest.fixture
def coordinator(topics: Topics) -> Coordinator:
    return Coordinator(topics)
