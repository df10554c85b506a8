"""`varve explain` as a user runs it, and topics in the state that it is to explain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.harness import ROOT, BrokerCluster, eventually
from tests.integration.tables import LIMIT_S, TOPIC, write

#: Rounds come every 0.2 s. A topic's own settings say what is in the way.
NODE = {
    "varve__compaction__initial__delay__ms": "100",
    "varve__compaction__interval__ms": "200",
    "log__retention__check__interval__ms": "100",
}


def varve(cluster: BrokerCluster, *arguments: str, exit_code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli", *arguments, "-b", cluster.bootstrap],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == exit_code, done.stderr
    return done.stdout


def explain(cluster: BrokerCluster, *arguments: str) -> list[dict[str, Any]]:
    (found,) = json.loads(varve(cluster, "explain", TOPIC, "--format", "json", *arguments)).values()
    assert isinstance(found, list)
    return found


def causes(cluster: BrokerCluster, *arguments: str) -> dict[str, dict[str, Any]]:
    """By code, in order, of the one partition."""
    (partition,) = explain(cluster, *arguments)
    return {cause["code"]: cause for cause in partition["causes"]}


def wait_for(cluster: BrokerCluster, code: str, *arguments: str) -> dict[str, Any]:
    return eventually(lambda: causes(cluster, *arguments).get(code), f"it is explained by {code}", LIMIT_S)


def create(cluster: BrokerCluster, replicas: Iterable[int] = (1,), **settings: str) -> None:
    config = {"cleanup.policy": "compact"} | {
        name.replace("_", "."): value for name, value in settings.items()
    }
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(TOPIC, 1, replica_assignment=[list(replicas)], config=config)
    admin.create_topics([new])[TOPIC].result(LIMIT_S)
    cluster.leader_of(TOPIC)


def fill(cluster: BrokerCluster, count: int = 100, keys: int = 10) -> None:
    write(cluster, *((b"k%d" % (number % keys), b"v%d" % number) for number in range(count)))


@contextmanager
def open_transaction(cluster: BrokerCluster, *pairs: tuple[bytes, bytes]) -> Iterator[Producer]:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "writer", "log_level": 0}
    )
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    for key, value in pairs:
        producer.produce(TOPIC, value, key, partition=0)
    assert producer.flush(LIMIT_S) == 0
    yield producer
