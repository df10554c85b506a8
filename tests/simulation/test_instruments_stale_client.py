"""The client with stale metadata reads from a deposed leader and writes to it, and notices a wrong answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from broker.replication.replica import Replica
from tests.simulator.client import Client
from tests.simulator.cluster import CLIENT_PORT, SimulatedCluster, captured_logs, host_of
from tests.simulator.mutations import MUTATIONS
from tests.simulator.workload.clients import deposed_leaders
from tests.simulator.workload.plan import TopicPlan
from tests.simulator.workload.stale import StaleClient
from tests.simulator.workload.topics import create_topic

TOPIC = TopicPlan(
    "t",
    partitions=1,
    partitions_at_first=1,
    replication_factor=3,
    configs=(),
    times_recreated=0,
    is_purged=False,
    times_altered=0,
)


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster(random.Random(7))
    with captured_logs(cluster.loop):
        cluster.start()
        yield cluster
    cluster.close()


def _start_client(cluster: SimulatedCluster, seed: int) -> asyncio.Task[None]:
    """It has no other work than to ask deposed leaders."""

    def new_client() -> Client:
        addresses = [(host_of(node_id), CLIENT_PORT) for node_id in cluster.node_ids]
        return Client(cluster.network.of("client"), addresses)

    async def run() -> None:
        await create_topic(new_client(), TOPIC)
        stale = StaleClient(
            new_client, cluster.oracle, [TOPIC], lambda: deposed_leaders(cluster), "stale", seed
        )
        await stale.run()

    task = cluster.loop.start_process("client").create_task(run())
    cluster.run_until(lambda: cluster.leader(TOPIC.name) is not None, limit_s=5.0)
    return task


def _isolate_leader(cluster: SimulatedCluster) -> Replica:
    """In silence: for a moment it takes itself for the leader while it has a successor. Returns its replica."""
    node_id = cluster.leader(TOPIC.name)
    assert node_id is not None
    replica = cluster.replica(node_id, TOPIC.name)
    assert replica is not None
    cluster.isolate(node_id)
    return replica


def test_it_asks_nobody_while_nobody_is_deposed(cluster: SimulatedCluster) -> None:
    work = _start_client(cluster, 1)
    cluster.loop.run_for(3.0)
    assert not work.done() and cluster.oracle.acknowledged.count == 0
    for node_id in cluster.node_ids:
        replica = cluster.replica(node_id, TOPIC.name)
        assert replica is not None and replica.log.end_offset == 0


def test_it_writes_to_a_deposed_leader_and_to_its_successor(cluster: SimulatedCluster) -> None:
    """So their logs differ, and only the successor's batches are acknowledged."""
    work = _start_client(cluster, 1)
    deposed = _isolate_leader(cluster)
    cluster.run_until(lambda: bool(deposed_leaders(cluster)), limit_s=3.0)
    cluster.run_until(lambda: not deposed_leaders(cluster), limit_s=3.0)
    leading = cluster.leader(TOPIC.name)
    assert leading is not None
    successor = cluster.replica(leading, TOPIC.name)
    assert successor is not None and successor.group.term > deposed.group.term
    assert deposed.log.end_offset > deposed.high_watermark
    assert 0 < cluster.oracle.acknowledged.count <= successor.high_watermark
    cluster.heal()
    cluster.run_until(cluster.are_equal, limit_s=10.0)
    assert not work.done()


def test_it_notices_a_deposed_leader_that_answers_from_its_own_log_alone(cluster: SimulatedCluster) -> None:
    with MUTATIONS["read-index"].switched_off(cluster):
        work = _start_client(cluster, 1)
        _isolate_leader(cluster)
        cluster.run_until(work.done, limit_s=5.0)
    with pytest.raises(AssertionError, match="acknowledged before was all below"):
        work.result()
