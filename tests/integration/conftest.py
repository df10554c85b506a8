"""Clusters for the tests. `cluster` is shared and must be left whole; `own_cluster` is a test's own, to be broken."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.harness import BrokerCluster

ClusterFactory = Callable[..., BrokerCluster]


@contextlib.contextmanager
def running(base_dir: Path, size: int = 3, **settings: str) -> Iterator[BrokerCluster]:
    cluster = BrokerCluster(base_dir, size, **settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    settings = {
        "log__retention__check__interval__ms": "200",
        # Groups of the classic protocol: no waiting for more members, and who is killed is missed soon.
        "group__initial__rebalance__delay__ms": "0",
        "group__min__session__timeout__ms": "1000",
        # Those of the consumer protocol: members hear of changes soon.
        "group__consumer__heartbeat__interval__ms": "200",
        "group__consumer__assignment__interval__ms": "100",
    }
    with running(tmp_path_factory.mktemp("cluster"), 3, **settings) as started:
        yield started
        for broker in started.brokers.values():
            assert broker.is_running, broker.log_text()[-3000:]
            assert "Traceback" not in broker.log_text()


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[ClusterFactory]:
    """`make_cluster(size, log__segment__bytes="4096")`: a running cluster of the test's own."""
    number = itertools.count(1)
    with contextlib.ExitStack() as stack:
        yield lambda size=3, **settings: stack.enter_context(
            running(tmp_path / f"cluster-{next(number)}", size, **settings)
        )


@pytest.fixture
def own_cluster(make_cluster: ClusterFactory) -> BrokerCluster:
    return make_cluster()


@pytest.fixture
def topic(cluster: BrokerCluster, request: pytest.FixtureRequest) -> str:
    """A new topic of one partition with three replicas on the shared cluster, leader known everywhere."""
    module = request.path.stem.removeprefix("test_")
    name = "".join(x if x.isalnum() else "-" for x in f"{module}-{request.node.name}")[:200]
    with cluster.wire() as wire:
        assert wire.create(name).error_code == 0
    cluster.leader_of(name)
    return name
