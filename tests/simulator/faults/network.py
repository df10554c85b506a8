"""Links that lose, hold back, dawdle, corrupt and reset. Each fault mends what it broke itself, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.simulator.cluster import SimulatedCluster, host_of
from tests.simulator.faults.kind import Fault
from tests.simulator.link import LinkDelay
from tests.simulator.network import Mend

#: How long what is cut stays so, on average: about an election timeout.
CUT_S = 1.2


def _hosts(cluster: SimulatedCluster) -> list[str]:
    return [host_of(node_id) for node_id in cluster.node_ids]


def _two_hosts(cluster: SimulatedCluster, rng: random.Random) -> tuple[str, str]:
    one, other = rng.sample(_hosts(cluster), 2)
    return one, other


def _cut_for_a_while(
    cluster: SimulatedCluster, rng: random.Random, directions: Iterable[tuple[str, str]]
) -> None:
    cluster.after(rng.expovariate(1 / CUT_S), cluster.network.cut_all(directions))


def _both_ways(one: Iterable[str], other: Iterable[str]) -> list[tuple[str, str]]:
    return [way for a in one for b in other for way in ((a, b), (b, a))]


def _some_ways(rng: random.Random, one: Iterable[str], other: Iterable[str]) -> list[tuple[str, str]]:
    """Both ways, or one of them, between two sides."""
    ways = _both_ways(one, other)
    return rng.choice((ways, ways[::2], ways[1::2]))


def cut_off(cluster: SimulatedCluster, rng: random.Random, node_id: int) -> Mend:
    """One node from its peers, in silence or refused; clients still reach it. Returns what ends it."""
    host = host_of(node_id)
    directions = _both_ways([host], [other for other in _hosts(cluster) if other != host])
    return cluster.network.cut_all(directions) if rng.random() < 0.3 else _refuse(cluster, directions)


def is_cut_off(cluster: SimulatedCluster, node_id: int) -> bool:
    """Whether none of its peers hears a node, or can be dialled by it."""
    links = [
        cluster.network.link(host_of(node_id), other)
        for other in _hosts(cluster)
        if other != host_of(node_id)
    ]
    return all(link.is_cut or link.is_refusing for link in links)


def _refuse(cluster: SimulatedCluster, directions: list[tuple[str, str]]) -> Mend:
    """Connections are reset and new ones refused, as by a firewall that rejects: both ends know at once. Returns what
    ends the refusals."""
    mend = cluster.network.refuse_all(directions)
    for one, other in dict.fromkeys((min(way), max(way)) for way in directions):
        cluster.network.reset(one, other)
    return mend


def cut(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Between two nodes, one way or both."""
    one, other = _two_hosts(cluster, rng)
    _cut_for_a_while(cluster, rng, _some_ways(rng, [one], [other]))


def isolate(cluster: SimulatedCluster, rng: random.Random) -> None:
    """One node from its peers; clients still reach it."""
    cluster.after(rng.expovariate(1 / CUT_S), cluster.isolate(rng.choice(cluster.node_ids)))


def partition(cluster: SimulatedCluster, rng: random.Random) -> None:
    """The nodes in two halves, which may be a majority and a minority or even ones; clients reach both, or only one."""
    hosts = _hosts(cluster)
    rng.shuffle(hosts)
    size = rng.randint(1, len(hosts) - 1)
    one, other = hosts[:size], hosts[size:]
    directions = _both_ways(one, other)
    if rng.random() < 0.5:
        directions += _both_ways(cluster.client_hosts(), rng.choice((one, other)))
    _cut_for_a_while(cluster, rng, directions)


def ring(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Each node hears its two neighbours only, so that all have a majority and no two the same; of three nodes, the
    ends of a chain do not hear each other."""
    hosts = _hosts(cluster)
    rng.shuffle(hosts)
    count = len(hosts)
    pairs = [
        (i, j) for i in range(count) for j in range(i + 2, count) if (i, j) != (0, count - 1) or count == 3
    ]
    _cut_for_a_while(
        cluster, rng, [way for i, j in pairs for way in ((hosts[i], hosts[j]), (hosts[j], hosts[i]))]
    )


def deaf(cluster: SimulatedCluster, rng: random.Random) -> None:
    """One node hears nobody, though everybody hears it; sometimes not even clients."""
    victim, others = _one_and_others(cluster, rng)
    _cut_for_a_while(cluster, rng, [(other, victim) for other in others])


def mute(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Nobody hears one node, though it hears everybody; sometimes not even clients."""
    victim, others = _one_and_others(cluster, rng)
    _cut_for_a_while(cluster, rng, [(victim, other) for other in others])


def _one_and_others(cluster: SimulatedCluster, rng: random.Random) -> tuple[str, list[str]]:
    victim, *others = rng.sample(_hosts(cluster), len(cluster.node_ids))
    return victim, others + (cluster.client_hosts() if rng.random() < 0.5 else [])


def client_cut(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Clients from some brokers, or all of them, one way or both: a request, or its answer, is lost."""
    hosts = rng.sample(_hosts(cluster), rng.randint(1, len(cluster.node_ids)))
    _cut_for_a_while(cluster, rng, _some_ways(rng, cluster.client_hosts(), hosts))


def refused(cluster: SimulatedCluster, rng: random.Random) -> None:
    """A firewall rejects connections between two nodes, one node and all others, or clients and all nodes but one; in
    both directions or in one: whoever is not refused connects again."""
    victim, others = _one_and_others(cluster, rng)
    sides = rng.choice((([victim], others[:1]), ([victim], others), (cluster.client_hosts(), others)))
    cluster.after(rng.expovariate(1 / CUT_S), _refuse(cluster, _some_ways(rng, *sides)))


def flapping(cluster: SimulatedCluster, rng: random.Random) -> None:
    """A cable with a loose contact: cut and whole again, several times, shorter than an election timeout each."""
    directions = _some_ways(rng, *([host] for host in _two_hosts(cluster, rng)))
    left = rng.randint(3, 10)

    def flap() -> None:
        nonlocal left
        left -= 1
        length_s = rng.expovariate(1 / 0.2)
        cluster.after(length_s, cluster.network.cut_all(directions))
        if left:
            cluster.after(length_s + rng.expovariate(1 / 0.2), flap)

    flap()


def bad_link(cluster: SimulatedCluster, rng: random.Random) -> None:
    """One direction, or all to and from one node: far away, and congested now and then."""
    if rng.random() < 0.5:
        directions = [_two_hosts(cluster, rng)]
    else:
        victim, others = _one_and_others(cluster, rng)
        directions = _both_ways([victim], others)
    delay = LinkDelay(
        min_s=rng.choice((0.0, 0.01, 0.05)),
        mean_extra_s=rng.choice((0.002, 0.02, 0.1)),
        spike_rate=rng.choice((0.02, 0.2)),
        spike_s=rng.choice((0.2, 1.0)),
    )
    length_s = rng.expovariate(1 / CUT_S)
    for source, target in directions:
        cluster.after(length_s, cluster.network.slow(source, target, delay))


def corrupt_link(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Between nodes, in one direction, or all to and from one of them: chunks are changed, lost, doubled and repeated,
    and TCP's checksum does not notice. (Clients are not meant: their protocol has no check of its own but for batches.)
    """
    if rng.random() < 0.5:
        directions = [_two_hosts(cluster, rng)]
    else:
        victim = rng.choice(_hosts(cluster))
        directions = _both_ways([victim], [host for host in _hosts(cluster) if host != victim])
    share = rng.choice((0.02, 0.1, 0.3))
    length_s = rng.expovariate(1 / CUT_S)
    for source, target in directions:
        cluster.after(length_s, cluster.network.corrupt(source, target, share))


def stall(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Late, not lost."""
    cluster.after(rng.expovariate(1 / 0.5), cluster.network.stall(*_two_hosts(cluster, rng)))


def reset(cluster: SimulatedCluster, rng: random.Random) -> None:
    """RST on every connection between two nodes."""
    cluster.network.reset(*_two_hosts(cluster, rng))


def reset_all(cluster: SimulatedCluster, rng: random.Random) -> None:
    """RST on every connection there is, clients' included: a firewall that was restarted."""
    hosts = cluster.network.hosts()
    for position, one in enumerate(hosts):
        for other in hosts[position + 1 :]:
            cluster.network.reset(one, other)


FAULTS: dict[str, Fault] = {
    "cut": cut,
    "isolate": isolate,
    "partition": partition,
    "ring": ring,
    "deaf": deaf,
    "mute": mute,
    "client cut": client_cut,
    "refused": refused,
    "flapping": flapping,
    "bad link": bad_link,
    "corrupt link": corrupt_link,
    "stall": stall,
    "reset": reset,
    "reset all": reset_all,
}
