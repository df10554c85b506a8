"""The demand for liveness bites: on a healed cluster nothing else may be in the way of a leader or of a write."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.simulator.cluster import SimulatedCluster, captured_logs
from tests.simulator.progress import NoProgressError, ProgressDemand


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster(random.Random(7))
    with captured_logs(cluster.loop):
        cluster.start()
        cluster.loop.run_for(3.0)
        yield cluster
    cluster.close()


def _demand_progress(cluster: SimulatedCluster) -> ProgressDemand:
    demand = ProgressDemand(cluster)
    demand.run(lambda end_s: cluster.loop.run_for(end_s - cluster.loop.time()))
    return demand


def test_a_cluster_that_works_is_through_at_once(cluster: SimulatedCluster) -> None:
    assert max(_demand_progress(cluster).reached_s.values()) < 1.0
    names = {topic.name for node in cluster.nodes.values() for topic in node.metadata.image.topics.values()}
    assert names == {"after-healing"}


def test_a_cluster_without_a_majority_has_no_leader_in_time(cluster: SimulatedCluster) -> None:
    cluster.cut_power(1)
    cluster.cut_power(2)
    with pytest.raises(NoProgressError, match="a leader of every partition"):
        cluster.loop.run_for(3.0)
        _demand_progress(cluster)


def test_a_cluster_that_commits_nothing_more_takes_no_write_in_time(cluster: SimulatedCluster) -> None:
    """It has a leader that everybody hears, but its disks hang."""
    for disk in cluster.disks.values():
        disk.faults.slow_factor = 1e6
    with pytest.raises(NoProgressError, match="not written to after-healing-0"):
        _demand_progress(cluster)


def test_whom_clients_do_not_reach_takes_no_write_in_time(cluster: SimulatedCluster) -> None:
    cluster.network.partition(["writer"], ["n1", "n2", "n3"])
    with pytest.raises(NoProgressError, match="a write to every partition"):
        _demand_progress(cluster)
