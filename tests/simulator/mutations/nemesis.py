"""Faults with eyes: they see what a node is about to do, and pick their moment. All of it is drawn from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from broker.replication.replica import Replica
from storage.directory import write_clean_marker
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.mutations.switch import replaced
from tests.simulator.observer import NodeObserver
from tests.simulator.plan import FAULTS_S

#: How long a machine stays dark, on average.
DARK_S = 0.5


def later(cluster: SimulatedCluster, delay_s: float, action: Callable[..., object], *args: object) -> None:
    """As the world: the nodes' own deaths do not take it along, but healing does."""
    if not cluster.is_healed:
        cluster.after(delay_s, partial(action, *args))


def lose_power(cluster: SimulatedCluster, rng: random.Random, *node_ids: int, dark_s: float = DARK_S) -> None:
    """These machines go dark together, and come back one by one. Only from the world (`later`)."""
    for node_id in node_ids:
        if cluster.is_alive(node_id):
            cluster.cut_power(node_id)
            later(cluster, rng.expovariate(1 / dark_s), _restart, cluster, node_id)


def _restart(cluster: SimulatedCluster, node_id: int) -> None:
    if not cluster.is_alive(node_id):
        cluster.start(node_id)


def slow_flushes(cluster: SimulatedCluster) -> None:
    """A flush takes 50 ms: most of the time something is written and not durable."""
    for disk in cluster.disks.values():
        disk.faults.flush_mean_extra_s = 0.05


@contextmanager
def blackouts(cluster: SimulatedCluster, rng: random.Random) -> Iterator[None]:
    """Flushes take 50 ms, and now and then all machines lose power at the same moment."""
    slow_flushes(cluster)
    at_s = 1.0 + rng.expovariate(1.0)
    while at_s < FAULTS_S:
        later(cluster, at_s, lose_power, cluster, rng, *cluster.node_ids)
        at_s += DARK_S + rng.expovariate(1.0)
    yield


@contextmanager
def after(cluster: SimulatedCluster, owner: type, name: str, look: Callable[..., None]) -> Iterator[None]:
    """`look(self, *args)` after every call of a method that came back, as long as there are faults."""
    end_s = cluster.loop.time() + FAULTS_S

    def watch(original: Any) -> Any:
        def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
            answer = original(self, *args, **kwargs)
            if cluster.loop.time() < end_s:
                look(self, *args, **kwargs)
            return answer

        return watched

    with replaced(owner, name, watch):
        yield


@contextmanager
def new_leaders_lose_their_voters(cluster: SimulatedCluster, rng: random.Random) -> Iterator[None]:
    """Flushes take 50 ms. Now and then a node that has just won is cut off, and all who may have voted for it lose
    power: what they told it, they must not forget."""
    slow_flushes(cluster)

    is_struck = False

    def strike(winner: int) -> None:
        nonlocal is_struck
        if not is_struck:
            is_struck = True
            cluster.isolate(winner)
            later(cluster, rng.uniform(1.0, 2.0), mend)
            lose_power(
                cluster, rng, *(node_id for node_id in cluster.node_ids if node_id != winner), dark_s=0.1
            )

    def mend() -> None:
        nonlocal is_struck
        is_struck = False
        cluster.network.heal_all()

    def look(observer: NodeObserver, replica: Replica) -> None:
        if replica.is_leader and not replica.is_serving and rng.random() < 0.5:
            later(cluster, 0.0, strike, observer.node.me.node_id)

    with after(cluster, NodeObserver, "role_changed", look):
        yield


@contextmanager
def stranded_leaders(cluster: SimulatedCluster, rng: random.Random) -> Iterator[None]:
    """Leaders are cut off from their peers, take some more from clients, die, and come back soon. Some that have just
    won are cut off before anybody hears of it. What they hold alone must neither count nor come back."""

    def strand(node_id: int) -> None:
        if cluster.is_alive(node_id):
            cluster.isolate(node_id)
            later(cluster, rng.uniform(0.0, 0.2), end, node_id)

    def end(node_id: int) -> None:
        cluster.network.heal_all()
        if cluster.is_alive(node_id):
            cluster.kill(node_id)
            later(cluster, rng.uniform(0.05, 0.8), _restart, cluster, node_id)

    def strand_any() -> None:
        leaders = [
            node_id
            for node_id, node in cluster.nodes.items()
            if any(replica.is_serving for replica in node.replicas.by_name.values())
        ]
        if leaders:
            strand(rng.choice(leaders))

    def look(observer: NodeObserver, replica: Replica) -> None:
        if replica.is_leader and not replica.is_serving and rng.random() < 0.3:
            later(cluster, 0.0, strand, observer.node.me.node_id)

    at_s = 1.0
    while at_s < FAULTS_S:
        later(cluster, at_s, strand_any)
        at_s += rng.expovariate(1 / 0.4)
    with after(cluster, NodeObserver, "role_changed", look):
        yield


@contextmanager
def young_logs_after_a_clean_stop(cluster: SimulatedCluster, rng: random.Random) -> Iterator[None]:
    """The directories were stopped in good order once, while there was nothing in them. All machines lose power soon
    after a partition's first writes: before their end is recorded, the marker alone says how to open such a log."""
    slow_flushes(cluster)
    for disk in cluster.disks.values():
        write_clean_marker(disk)

    def look(replica: Replica, *_: object, **__: object) -> None:
        if replica.is_leader and replica.log.end_offset < 20 and rng.random() < 0.2:
            later(cluster, rng.uniform(0.0, 0.1), lose_power, cluster, rng, *cluster.node_ids)

    with after(cluster, Replica, "log_grew", look):
        yield
