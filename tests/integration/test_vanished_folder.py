"""Somebody removes files of a running broker. It ends with a reason and an exit code that a supervisor sees, instead of
closing connections for ever."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import Broker, BrokerCluster, eventually
from tests.integration.test_wire import batch
from tests.integration.wire import Wire

TOPIC = "t"
SEGMENT_BYTES = 4096
LOOPS = ["uvloop", "asyncio"]
#: What `broker.main` ends with when going on could break a promise.
FAILED = 70


def produce(cluster: BrokerCluster, leader: int, count: int = 1) -> None:
    """Batches of half a segment each, acknowledged."""
    with cluster.wire(leader) as wire:
        for _ in range(count):
            assert wire.produce(TOPIC, batch(1, b"x" * (SEGMENT_BYTES // 2))).error_code == 0


def remove(folder: Path) -> None:
    """Remove it in one step, so that the broker cannot create files in it meanwhile."""
    away = folder.with_name(folder.name + ".gone")
    folder.rename(away)
    shutil.rmtree(away)


def must_end(broker: Broker, use: Callable[[], object]) -> None:
    """... while clients go on using it, whatever becomes of their connections."""

    def has_ended() -> bool:
        with contextlib.suppress(OSError, AssertionError):
            use()
        return not broker.is_running

    eventually(has_ended, f"the end of a broker without its folder:\n{broker.log_text()[-2000:]}", 10)
    assert broker.process is not None
    assert broker.process.wait() == FAILED
    reason = [line for line in broker.log_text().splitlines() if "node stops" in line]
    assert len(reason) == 1 and "No such file or directory" in reason[0], broker.log_text()[-2000:]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_follower_without_its_folder_ends_while_a_client_produces(
    make_cluster: ClusterFactory, loop: str
) -> None:
    """It learns it from a message of its leader."""
    cluster = make_cluster(3, log__segment__bytes=str(SEGMENT_BYTES), varve__loop=loop)
    with cluster.wire() as wire:
        assert wire.create(TOPIC).error_code == 0
    leader = cluster.leader_of(TOPIC)
    produce(cluster, leader, 3)
    follower = cluster[1 + leader % 3]
    remove(follower.data / f"{TOPIC}-0")
    must_end(follower, lambda: produce(cluster, leader))
    with cluster.wire(leader) as wire:
        assert wire.produce(TOPIC, batch()).error_code == 0, "the others have a majority"


@pytest.mark.parametrize("loop", LOOPS)
def test_a_leader_without_its_folder_ends_when_a_client_reads_what_is_gone(
    make_cluster: ClusterFactory, loop: str
) -> None:
    """It learns it from a request."""
    cluster = make_cluster(1, log__segment__bytes=str(SEGMENT_BYTES), varve__loop=loop)
    with cluster.wire() as wire:
        assert wire.create(TOPIC, replicas=1).error_code == 0
    produce(cluster, cluster.leader_of(TOPIC), 5)
    remove(cluster[1].data / f"{TOPIC}-0")

    def read() -> None:
        with Wire(cluster[1].port, timeout_s=5) as wire:
            wire.fetch(TOPIC, 0)

    must_end(cluster[1], read)


def test_a_leader_without_its_folder_ends_while_a_client_produces(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(1, log__segment__bytes=str(SEGMENT_BYTES))
    with cluster.wire() as wire:
        assert wire.create(TOPIC, replicas=1).error_code == 0
    leader = cluster.leader_of(TOPIC)
    produce(cluster, leader, 3)
    remove(cluster[1].data / f"{TOPIC}-0")
    must_end(cluster[1], lambda: produce(cluster, leader))


def test_a_node_without_its_data_directory_ends_while_a_client_produces(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(1)
    with cluster.wire() as wire:
        assert wire.create(TOPIC, replicas=1).error_code == 0
    leader = cluster.leader_of(TOPIC)
    produce(cluster, leader)
    remove(cluster[1].data)
    must_end(cluster[1], lambda: produce(cluster, leader))
