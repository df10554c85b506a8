"""Faults do what their names say, end what they began and nothing else, and a healed cluster is whole."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

import pytest

from broker.network.dialled_peers import PeerLink
from storage.directory import take_clean_marker
from tests.simulator.cluster import METADATA_KEY, SimulatedCluster, captured_logs, host_of
from tests.simulator.faults import FAULTS, clocks, leaders, network, processes

OWN = {**processes.FAULTS, **network.FAULTS, **leaders.FAULTS, **clocks.FAULTS}


@pytest.fixture
def make() -> Iterator[Callable[..., SimulatedCluster]]:
    made: list[SimulatedCluster] = []

    def start(size: int = 3) -> SimulatedCluster:
        cluster = SimulatedCluster(random.Random(7), size=size)
        made.append(cluster)
        cluster.start()
        cluster.run_until(lambda: _all_ready(cluster), limit_s=5)
        return cluster

    yield start
    for cluster in made:
        cluster.close()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    cluster = SimulatedCluster(random.Random(1))
    with captured_logs(cluster.loop):
        yield
    cluster.close()


def _all_ready(cluster: SimulatedCluster) -> bool:
    return cluster.nodes.keys() == set(cluster.node_ids) and all(
        node.ready.is_set() for node in cluster.nodes.values()
    )


def _cuts(cluster: SimulatedCluster) -> set[tuple[str, str]]:
    """Directions that are cut, or in which dials are refused."""
    hosts = [host_of(node_id) for node_id in cluster.node_ids] + ["client"]
    links = {(a, b): cluster.network.link(a, b) for a in hosts for b in hosts}
    return {way for way, link in links.items() if link.is_cut or link.is_refusing}


def _controller(cluster: SimulatedCluster) -> int:
    leaders = [node_id for node_id, replica in cluster.holders(METADATA_KEY).items() if replica.is_serving]
    assert len(leaders) == 1
    return leaders[0]


@pytest.mark.parametrize("name", OWN)
def test_every_fault_bites_and_a_healed_cluster_is_whole(
    name: str, make: Callable[..., SimulatedCluster]
) -> None:
    """Whatever of it was still to come does not come."""
    cluster = make(5)
    cluster.network.link("client", "n1")
    before = cluster.loop.trace.digest()
    for seed in range(5):
        FAULTS[name](cluster, random.Random(seed))
        cluster.loop.run_for(0.1)
    assert cluster.loop.trace.digest() != before
    cluster.heal()
    assert not _cuts(cluster)
    assert cluster.alive() == cluster.node_ids
    cluster.run_until(lambda: _all_ready(cluster) and cluster.are_equal(), limit_s=10)
    lives = {node_id: cluster.process(node_id) for node_id in cluster.node_ids}
    cluster.loop.run_for(30.0)
    assert {node_id: cluster.process(node_id) for node_id in cluster.node_ids} == lives
    assert not any(process.paused for process in lives.values()) and not _cuts(cluster)
    skews = [clock.now_ms() - cluster.clocks[1].now_ms() for clock in cluster.clocks.values()]
    assert all(abs(skew_ms) <= 1000 for skew_ms in skews), "as the machines were made"


@pytest.mark.parametrize("name", [name for name in OWN if name != "clock jump"])
def test_every_fault_ends_by_itself(name: str, make: Callable[..., SimulatedCluster]) -> None:
    cluster = make()
    cluster.network.link("client", "n1")
    FAULTS[name](cluster, random.Random(3))
    cluster.loop.run_for(60.0)
    assert _all_ready(cluster) and cluster.are_equal() and not _cuts(cluster)


def test_the_end_of_one_cut_leaves_the_others(make: Callable[..., SimulatedCluster]) -> None:
    cluster = make()
    end_isolation = cluster.isolate(1)
    end_cut = cluster.network.cut("n1", "n2")
    end_isolation()
    end_isolation()
    assert _cuts(cluster) == {("n1", "n2")}
    end_cut()
    assert not _cuts(cluster)


def test_an_old_fault_does_not_end_one_that_began_after_the_healing(
    make: Callable[..., SimulatedCluster],
) -> None:
    cluster = make()
    ends = [cluster.isolate(1), cluster.pause(1)]
    cluster.heal()
    cluster.isolate(1)
    cluster.pause(1)
    for end in ends:
        end()
    assert len(_cuts(cluster)) == 4 and cluster.process(1).paused


def test_a_process_goes_on_when_the_last_pause_ends(make: Callable[..., SimulatedCluster]) -> None:
    cluster = make()
    process = cluster.process(1)
    end_one, end_other = cluster.pause(1), cluster.pause(1)
    end_one()
    end_one()
    assert process.paused
    end_other()
    assert not process.paused
    end_killed = cluster.pause(1)
    cluster.kill(1)
    cluster.start(1)
    cluster.pause(1)
    end_killed()
    assert cluster.process(1).paused, "another process than the one that was paused first"


def test_sigterm_transfers_leaderships_and_leaves_a_clean_directory(
    make: Callable[..., SimulatedCluster],
) -> None:
    cluster = make()
    leader = _controller(cluster)
    term = cluster.holders(METADATA_KEY)[leader].group.term
    process = cluster.process(leader)
    cluster.stop(leader)
    cluster.run_until(lambda: not process.alive, limit_s=1.0)
    successor = cluster.holders(METADATA_KEY)[_controller(cluster)].group
    assert successor.term == term + 1, "one election, by transfer, before it was gone"
    assert take_clean_marker(cluster.disks[leader])
    assert leader not in cluster.nodes


def test_sigterm_in_the_middle_of_a_start_ends_it(make: Callable[..., SimulatedCluster]) -> None:
    cluster = make()
    cluster.kill(1)
    cluster.start(1)
    process = cluster.process(1)
    cluster.loop.run_for(0.001)
    assert not cluster.nodes[1].ready.is_set()
    cluster.stop(1)
    cluster.run_until(lambda: not process.alive, limit_s=3.0)
    cluster.start(1)
    cluster.run_until(lambda: _all_ready(cluster), limit_s=3.0)


def test_a_paused_node_that_is_told_to_stop_is_started_again_by_healing(
    make: Callable[..., SimulatedCluster],
) -> None:
    cluster = make()
    cluster.pause(1)
    cluster.stop(1)
    cluster.loop.run_for(5.0)
    assert cluster.is_alive(1), "it does not know yet"
    cluster.heal()
    cluster.run_until(lambda: _all_ready(cluster), limit_s=3.0)
    cluster.loop.run_for(5.0)
    assert _all_ready(cluster)


def test_leadership_is_transferred_as_the_product_does_it(make: Callable[..., SimulatedCluster]) -> None:
    cluster = make()
    leader = _controller(cluster)
    term = cluster.holders(METADATA_KEY)[leader].group.term
    rng = random.Random(1)
    for _ in range(20):
        processes.transfer(cluster, rng)
        cluster.loop.run_for(0.5)
    terms = {replica.group.term for replica in cluster.holders(METADATA_KEY).values()}
    assert len(terms) == 1 and term + 3 < terms.pop() <= term + 20


def test_an_isolated_leader_is_deposed_and_may_lead_again_in_the_same_process(
    make: Callable[..., SimulatedCluster],
) -> None:
    """In silence and refused. Some seeds restart it instead, or leave the leadership where it is."""
    led_again: set[str] = set()
    for seed in range(40):
        cluster = make()
        leader = _controller(cluster)
        replica = cluster.holders(METADATA_KEY)[leader]
        leaders.isolate_leader(cluster, random.Random(seed))
        assert [x for x in cluster.node_ids if network.is_cut_off(cluster, x)] == [leader]
        style = "cut" if cluster.network.link(host_of(leader), host_of(leader % 3 + 1)).is_cut else "refused"
        began_s, term = cluster.loop.time(), replica.group.term
        cluster.run_until(lambda c=cluster, t=term: c.newest_term(METADATA_KEY) > t, limit_s=3.0)  # type: ignore[misc]
        assert replica.is_serving, "it does not know of its successor"
        assert (cluster.loop.time() - began_s > 0.9) == (style == "cut"), "silence takes an election timeout"
        cluster.loop.run_for(5.0)
        assert not _cuts(cluster)
        if replica.is_serving and replica.group.term > term and leader in cluster.nodes:
            led_again.add(style)
        if led_again == {"cut", "refused"}:
            return
    pytest.fail(f"led again in the same process: {led_again or 'nobody'}")


def test_isolating_successors_goes_on_until_somebody_has_led_in_each_generation(
    make: Callable[..., SimulatedCluster],
) -> None:
    cluster = make()
    leaders.isolate_successors(cluster, random.Random(4))
    cluster.loop.run_for(30.0)
    assert cluster.newest_term(METADATA_KEY) >= 3 and not _cuts(cluster)


def test_a_second_isolation_waits_for_the_first_one_to_end(make: Callable[..., SimulatedCluster]) -> None:
    """Of three nodes, two are needed for a successor."""
    cluster = make()
    leaders.isolate_leader(cluster, random.Random(1))
    cut = _cuts(cluster)
    for seed in range(10):
        leaders.isolate_leader(cluster, random.Random(seed))
    assert _cuts(cluster) == cut


def test_what_is_refused_is_known_at_once(make: Callable[..., SimulatedCluster]) -> None:
    """Connections end with an RST. Where one direction is refused, the other one is dialled again."""
    counts: set[int] = set()
    for seed in range(8):
        cluster = make()
        network.refused(cluster, random.Random(seed))
        refused = {(a, b) for a, b in _cuts(cluster) if "client" not in (a, b)}
        links = {
            (host_of(one), host_of(other)): link
            for one, node in cluster.nodes.items()
            for other, link in node.cluster.links.items()
        }

        def lost(links: Mapping[tuple[str, str], PeerLink] = links) -> set[tuple[str, str]]:
            return {way for way, link in links.items() if not link.is_ready}

        cluster.run_until(lambda wanted=refused, lost=lost: lost() == wanted, 0.2)  # type: ignore[misc]
        counts.add(len(refused))
    assert {0, 1, 2, 4} <= counts, "clients only, one direction, both, one node and all others"


@pytest.mark.parametrize(("size", "heard"), [(3, [1, 1, 2]), (4, [2] * 4), (5, [2] * 5)])
def test_in_a_ring_each_node_hears_its_neighbours_only(
    size: int, heard: list[int], make: Callable[..., SimulatedCluster]
) -> None:
    cluster = make(size)
    network.ring(cluster, random.Random(5))
    cut = _cuts(cluster)
    assert all((b, a) in cut for a, b in cut)
    hosts = [host_of(node_id) for node_id in cluster.node_ids]
    assert sorted(sum((a, b) not in cut for a in hosts if a != b) for b in hosts) == heard


def test_the_deaf_are_heard_and_the_mute_hear(make: Callable[..., SimulatedCluster]) -> None:
    cluster = make()
    network.deaf(cluster, random.Random(2))
    ((victim, count),) = {b: sum(y == b for _, y in _cuts(cluster)) for _, b in _cuts(cluster)}.items()
    assert count in (2, 3) and not any(a == victim for a, _ in _cuts(cluster))
    cluster.heal()
    network.mute(cluster, random.Random(2))
    assert len({a for a, _ in _cuts(cluster)}) == 1 and len(_cuts(cluster)) in (2, 3)


def test_a_wall_clock_that_jumps_and_drifts_moves_no_leader(make: Callable[..., SimulatedCluster]) -> None:
    cluster = make()
    term = cluster.holders(METADATA_KEY)[_controller(cluster)].group.term
    rng = random.Random(1)
    for number in range(40):
        (clocks.clock_jump, clocks.clock_drift)[number % 2](cluster, rng)
        cluster.loop.run_for(0.25)
    assert cluster.holders(METADATA_KEY)[_controller(cluster)].group.term == term
