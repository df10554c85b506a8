"""Processes and machines that die, end, sleep, and come back; leaderships that are transferred."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from broker.node import Node
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.faults.kind import Fault

#: What pauses last: shorter than an election timeout mostly, and longer than two and any client's request.
SHORT_PAUSE_S = 0.8
LONG_PAUSE_S = (2.5, 6.0)
#: Until a dead node is started again.
DOWN_S = 0.5


def kill(cluster: SimulatedCluster, rng: random.Random) -> None:
    """kill -9."""
    if alive := cluster.alive():
        victim = rng.choice(alive)
        cluster.kill(victim)
        _restart_later(cluster, rng, victim)


def kill_all(cluster: SimulatedCluster, rng: random.Random) -> None:
    """kill -9 of every process at the same moment."""
    _all_at_once(cluster, rng, cluster.kill)


def power(cluster: SimulatedCluster, rng: random.Random) -> None:
    """One machine goes dark, or several at the same moment."""
    if alive := cluster.alive():
        for victim in rng.sample(alive, rng.randint(1, len(alive))):
            cluster.cut_power(victim)
            _restart_later(cluster, rng, victim)


def power_all(cluster: SimulatedCluster, rng: random.Random) -> None:
    """The data centre goes dark."""
    _all_at_once(cluster, rng, cluster.cut_power)


def _all_at_once(cluster: SimulatedCluster, rng: random.Random, end: Callable[[int], None]) -> None:
    """They are back at the same moment, too, or each in its time."""
    common_s = rng.choice((None, rng.expovariate(1 / DOWN_S)))
    for victim in cluster.alive():
        end(victim)
        _restart_later(cluster, rng, victim, common_s)


def restart_storm(cluster: SimulatedCluster, rng: random.Random) -> None:
    """One node is killed, or loses power, again and again, often before it has come up."""
    victim = rng.choice(cluster.node_ids)
    end = rng.choice((cluster.kill, cluster.cut_power))
    lives = rng.randint(2, 6)

    def next_death() -> None:
        nonlocal lives
        lives -= 1
        if cluster.is_alive(victim):
            end(victim)
        down_s = rng.expovariate(1 / 0.1)
        cluster.after(down_s, lambda: _start(cluster, victim))
        if lives:
            cluster.after(down_s + rng.expovariate(1 / 0.3), next_death)

    next_death()


def stop(cluster: SimulatedCluster, rng: random.Random) -> None:
    """SIGTERM, to one node: it transfers its leaderships and ends by itself."""
    if candidates := [node_id for node_id in cluster.alive() if not cluster.is_stopping(node_id)]:
        _stop(cluster, rng, rng.choice(candidates))


def stop_all(cluster: SimulatedCluster, rng: random.Random) -> None:
    """SIGTERM to every node within a moment, so that some transfer leaderships to nodes that are about to stop."""
    for node_id in cluster.alive():
        cluster.after(rng.choice((0.0, rng.expovariate(1 / 0.01))), partial(_stop, cluster, rng, node_id))


def _stop(cluster: SimulatedCluster, rng: random.Random, victim: int) -> None:
    """A supervisor starts it again when it has ended, and kills it if it does not end in time
    (broker.partitions.controlled_shutdown.TRANSFER_TIMEOUT_S, and then some for the disk)."""
    if not cluster.is_alive(victim) or cluster.is_stopping(victim):
        return
    process = cluster.process(victim)
    cluster.stop(victim)
    left = 100

    def look() -> None:
        nonlocal left
        left -= 1
        if process.alive and not left:
            cluster.kill(victim)
        if process.alive:
            cluster.after(0.1, look)
        else:
            _start(cluster, victim)

    cluster.after(rng.expovariate(1 / DOWN_S), look)


def pause(cluster: SimulatedCluster, rng: random.Random) -> None:
    """SIGSTOP, and SIGCONT later."""
    if alive := cluster.alive():
        cluster.after(rng.expovariate(1 / SHORT_PAUSE_S), cluster.pause(rng.choice(alive)))


def pause_several(cluster: SimulatedCluster, rng: random.Random) -> None:
    """At the same moment, as one hypervisor does to its guests; each wakes in its time, or all at once."""
    if alive := cluster.alive():
        common_s = rng.choice((None, rng.expovariate(1 / SHORT_PAUSE_S)))
        for victim in rng.sample(alive, rng.randint(1, len(alive))):
            length_s = rng.expovariate(1 / SHORT_PAUSE_S) if common_s is None else common_s
            cluster.after(length_s, cluster.pause(victim))


def long_pause(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Longer than elections, clients' time-outs and what a silent link is kept for."""
    if alive := cluster.alive():
        cluster.after(rng.uniform(*LONG_PAUSE_S), cluster.pause(rng.choice(alive)))


def transfer(cluster: SimulatedCluster, rng: random.Random) -> None:
    """A node hands some of its leaderships over, each to any other voter, also one that lags or is away."""
    if not (alive := [node_id for node_id in cluster.alive() if node_id in cluster.nodes]):
        return
    leader = rng.choice(alive)
    node = cluster.nodes[leader]
    # As the node's own work: not while it is paused.
    cluster.loop.call_soon(_transfer_leaderships, node, rng, context=cluster.process(leader).new_context())


def _transfer_leaderships(node: Node, rng: random.Random) -> None:
    if not hasattr(node, "replicas"):
        return
    for replica in list(node.replicas.by_key.values()):
        group = replica.group
        others = [voter for voter in group.configuration.voters if voter != group.self_id]
        if replica.is_leader and others and rng.random() < 0.5:
            replica.driver.transfer_leadership(
                rng.choice(others)
            )  # or not, where an operator would be told so


def _restart_later(
    cluster: SimulatedCluster, rng: random.Random, node_id: int, down_s: float | None = None
) -> None:
    if down_s is None:
        down_s = rng.expovariate(1 / DOWN_S)
    cluster.after(down_s, lambda: _start(cluster, node_id))


def _start(cluster: SimulatedCluster, node_id: int) -> None:
    if not cluster.is_alive(node_id):
        cluster.start(node_id)


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "kill all": kill_all,
    "power": power,
    "power all": power_all,
    "restart storm": restart_storm,
    "stop": stop,
    "stop all": stop_all,
    "pause": pause,
    "pause several": pause_several,
    "long pause": long_pause,
    "transfer": transfer,
}
