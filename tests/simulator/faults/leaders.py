"""Leaders that are cut off until they have a successor, and that rejoin (replication.md sections 5 and 6).

Random cuts seldom hit a leader, and seldom last until its log has diverged from its successor's. These faults choose
the node that leads. Until a deposed leader hears of its successor, its log holds batches of clients at offsets where
the successor has committed other ones.
"""

from __future__ import annotations

import random

from broker.metadata.ids import INTERNAL_TOPICS
from broker.replication.replica import Replica
from storage.log_types import GroupKey
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.faults.kind import Fault
from tests.simulator.faults.network import cut_off, is_cut_off
from tests.simulator.network import Mend

#: How often the partition is one that clients write to.
CLIENTS_SHARE = 0.8
#: Virtual seconds between two checks of who leads.
LOOK_S = 0.05
#: How long a leader stays cut off at most while it has no successor: somewhat more than two elections.
NO_SUCCESSOR_S = 4.0
#: How long a leader stays cut off once it has a successor: a moment (mean), or about as long as it still serves
#: (CheckQuorum).
MOMENT_S = 0.2
LONG_S = (0.5, 2.0)
#: How long a deposed leader that has rejoined is offered the leadership, before the next leader is cut off.
REINSTATED_S = (0.5, 2.0)
#: How often a node that rejoins is restarted, and for how long it is down (mean).
RESTARTED_SHARE = 0.3
DOWN_S = 0.1


def isolate_leader(cluster: SimulatedCluster, rng: random.Random) -> None:
    """A leader is cut off until it has a successor. Then it rejoins, and perhaps leads again in the same process."""
    _begin(cluster, rng, generations=1)


def isolate_successors(cluster: SimulatedCluster, rng: random.Random) -> None:
    """The same, and then its successor is cut off, and so on: logs diverge in several terms."""
    _begin(cluster, rng, generations=rng.randint(2, 8))


def _begin(cluster: SimulatedCluster, rng: random.Random, *, generations: int) -> None:
    """Mostly for a partition that clients write to. Only one node is cut off at a time: of three nodes, two are needed
    to elect a successor."""
    led = {key: leader for key in cluster.hosted() if (leader := _leader(cluster, key)) is not None}
    of_clients = [
        key for key, leader in led.items() if leader.topic not in INTERNAL_TOPICS and not leader.is_metadata
    ]
    keys = of_clients if of_clients and rng.random() < CLIENTS_SHARE else list(led)
    if keys and not any(is_cut_off(cluster, node_id) for node_id in cluster.node_ids):
        _Succession(cluster, rng, rng.choice(keys), generations).isolate_next()


def _leader(cluster: SimulatedCluster, key: GroupKey) -> Replica | None:
    """Of those that serve, the one of the highest term."""
    serving = [replica for replica in cluster.holders(key).values() if replica.is_serving]
    return max(serving, key=lambda replica: replica.group.term, default=None)


class _Succession:
    """Cuts off the leaders of one partition, one after the other, as long as there are generations left."""

    def __init__(
        self, cluster: SimulatedCluster, rng: random.Random, key: GroupKey, generations: int
    ) -> None:
        self._cluster = cluster
        self._rng = rng
        self._key = key
        self._generations_left = generations
        #: The node that was cut off last, the term that it led in, and what ends its isolation.
        self._node_id = -1
        self._term = -1
        self._reconnect: Mend = lambda: None
        #: The loop time until which a successor, or the return of the leadership, is awaited.
        self._ends_s = 0.0

    def isolate_next(self) -> None:
        """Cut off the present leader. The node that was cut off before rejoins at the same moment."""
        leader = _leader(self._cluster, self._key)
        self._rejoin()
        if leader is None or not self._generations_left:
            return
        self._generations_left -= 1
        self._node_id, self._term = leader.group.self_id.node_id, leader.group.term
        self._ends_s = self._cluster.loop.time() + NO_SUCCESSOR_S
        self._reconnect = cut_off(self._cluster, self._rng, self._node_id)
        self._cluster.after(LOOK_S, self._look)

    def _look(self) -> None:
        newest = _leader(self._cluster, self._key)
        has_successor = newest is not None and newest.group.term > self._term
        if has_successor or self._cluster.loop.time() >= self._ends_s:
            rng = self._rng
            length_s = rng.expovariate(1 / MOMENT_S) if rng.random() < 0.5 else rng.uniform(*LONG_S)
            self._cluster.after(length_s, rng.choice((self.isolate_next, self._reinstate)))
        else:
            self._cluster.after(LOOK_S, self._look)

    def _rejoin(self) -> None:
        """End the isolation; sometimes with a restart, while the log still diverges."""
        if self._cluster.is_alive(self._node_id) and self._rng.random() < RESTARTED_SHARE:
            self._rng.choice((self._cluster.kill, self._cluster.cut_power))(self._node_id)
            self._cluster.start_later(self._node_id, self._rng.expovariate(1 / DOWN_S))
        self._reconnect()

    def _reinstate(self) -> None:
        """The deposed leader rejoins and gets the leadership back; some time later the next one is cut off."""
        self._rejoin()
        self._ends_s = self._cluster.loop.time() + self._rng.uniform(*REINSTATED_S)
        self._transfer_back()

    def _transfer_back(self) -> None:
        """As soon as the deposed leader follows its successor, as an administrator has it done (ElectLeaders)."""
        cluster = self._cluster
        leader, former = _leader(cluster, self._key), cluster.holders(self._key).get(self._node_id)
        if cluster.loop.time() >= self._ends_s:
            self.isolate_next()
            return
        if leader is not None and former is not None and former.group.leader == leader.group.self_id:
            # As the leader's own work: not while it is paused.
            process = cluster.process(leader.group.self_id.node_id)
            cluster.loop.call_soon(
                leader.driver.transfer_leadership, former.group.self_id, context=process.new_context()
            )
        cluster.after(LOOK_S, self._transfer_back)


FAULTS: dict[str, Fault] = {
    "isolate leader": isolate_leader,
    "isolate successors": isolate_successors,
}
