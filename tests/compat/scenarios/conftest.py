"""The cluster under test, and topics in it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.scenarios.patience import WAIT_S


@pytest.fixture(scope="session")
def bootstrap() -> str:
    return os.environ["COMPAT_BOOTSTRAP"]


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def fresh_name(what: str) -> str:
    return f"compat-{what}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def name() -> str:
    """A name that nothing has yet: of a topic to make, or a group."""
    return fresh_name("name")


@pytest.fixture
def group() -> str:
    return fresh_name("group")


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A topic of four partitions, three replicas each."""
    name = fresh_name("topic")
    (made,) = admin.create_topics([NewTopic(name, 4, 3)]).values()
    made.result(WAIT_S)
    return name


@pytest.fixture
def eventually() -> Callable[[Callable[[], object], str], None]:
    """Ask until it is so: for state of the cluster that nothing announces."""

    def ask(look: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not look():
            assert time.monotonic() < deadline, f"waited {WAIT_S} s for: {what}"
            time.sleep(0.1)

    return ask
