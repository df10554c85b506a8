"""Faults under load: what was acknowledged is there, once and in order, whatever dies, hangs or loses its disk."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.load import Load

PARTITIONS = 6
#: Records that must be acknowledged before a fault, between faults, and after the last.
SOME = 2000


@pytest.fixture
def loaded(own_cluster: BrokerCluster) -> BrokerCluster:
    create(own_cluster)
    return own_cluster


def create(cluster: BrokerCluster) -> None:
    with cluster.wire() as wire:
        assert wire.create("load", PARTITIONS).error_code == 0
    for partition in range(PARTITIONS):
        cluster.leader_of("load", partition)


def run(
    cluster: BrokerCluster, faults: Callable[[Load], None], record: Callable[[str, object], None]
) -> float:
    """Load around faults. Returns the longest time without an acknowledgement from the first fault on, in seconds."""
    with Load(cluster.bootstrap, "load") as load:
        load.wait_acknowledged(SOME)
        begun = time.monotonic()
        faults(load)
        load.wait_acknowledged(SOME)
    ledger = load.check()
    gap_s = ledger.longest_gap_s(since=begun)
    record("records", ledger.sent)
    record("longest_gap_s", round(gap_s, 3))
    print(f"{ledger.sent} records, longest time without an acknowledgement {gap_s:.3f} s")
    return gap_s


def voters_are_back(cluster: BrokerCluster) -> None:
    """Every replica is in sync again, as the leaders tell."""

    def look() -> bool:
        for partition in range(PARTITIONS):
            leader = cluster.leader_of("load", partition)
            if len(cluster.topic_as_seen_by(leader, "load").partitions[partition].isr_nodes) < len(
                cluster.brokers
            ):
                return False
        return True

    eventually(look, "all replicas in sync", 40)


def test_the_leader_is_killed(loaded: BrokerCluster, record_property: Callable[[str, object], None]) -> None:
    def faults(load: Load) -> None:
        victim = loaded.leader_of("load")
        loaded.kill(victim)
        load.wait_acknowledged(SOME)
        loaded.start(victim)

    assert run(loaded, faults, record_property) < 4
    voters_are_back(loaded)


@pytest.mark.slow
def test_every_node_is_killed_in_turn(
    loaded: BrokerCluster, record_property: Callable[[str, object], None]
) -> None:
    def faults(load: Load) -> None:
        for _ in range(2):
            for victim in loaded.brokers:
                loaded.kill(victim)
                load.wait_acknowledged(SOME)
                loaded.start(victim)
                voters_are_back(loaded)

    assert run(loaded, faults, record_property) < 4


@pytest.mark.slow
def test_two_nodes_are_killed_and_come_back(
    loaded: BrokerCluster, record_property: Callable[[str, object], None]
) -> None:
    def faults(load: Load) -> None:
        loaded.kill(1, 2)
        time.sleep(2)  # long enough for the survivor to see that it is alone
        loaded.start(1, 2)
        load.wait_acknowledged(SOME)
        loaded.kill(2, 3)
        loaded.start(2, 3)

    run(loaded, faults, record_property)
    voters_are_back(loaded)


@pytest.mark.slow
def test_the_leader_hangs_and_goes_on(
    loaded: BrokerCluster, record_property: Callable[[str, object], None]
) -> None:
    """SIGSTOP: its connections stay open, and when it goes on it believes itself leader."""

    def faults(load: Load) -> None:
        for _ in range(2):
            victim = loaded.leader_of("load")
            loaded.pause(victim)
            time.sleep(8)  # beyond election and the clients' request time-out
            loaded.resume(victim)
            load.wait_acknowledged(SOME)

    run(loaded, faults, record_property)
    voters_are_back(loaded)


@pytest.mark.slow
def test_a_node_loses_its_directory(
    loaded: BrokerCluster, record_property: Callable[[str, object], None]
) -> None:
    """It comes back as another identity, catches up, and is a voter again: two others may then die in turn."""

    def faults(load: Load) -> None:
        for victim in loaded.brokers:
            before = (loaded[victim].data / "meta.properties").read_text()
            loaded.kill(victim)
            loaded.wipe(victim)
            load.wait_acknowledged(SOME)
            loaded.start(victim)
            assert (loaded[victim].data / "meta.properties").read_text() != before
            voters_are_back(loaded)
            load.wait_acknowledged(SOME)

    run(loaded, faults, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_all_nodes_restart(
    loaded: BrokerCluster, how: str, record_property: Callable[[str, object], None]
) -> None:
    def faults(load: Load) -> None:
        for _ in range(2):
            (loaded.terminate if how == "terminate" else loaded.kill)()
            loaded.start()
            load.wait_acknowledged(SOME)

    run(loaded, faults, record_property)
    voters_are_back(loaded)


@pytest.mark.slow
def test_nodes_restart_one_by_one(
    loaded: BrokerCluster, record_property: Callable[[str, object], None]
) -> None:
    """SIGTERM hands leadership over: a rolling restart is not a fail-over."""

    def faults(load: Load) -> None:
        for node_id in loaded.brokers:
            loaded.terminate(node_id)
            loaded.start(node_id)
            voters_are_back(loaded)
            load.wait_acknowledged(SOME)

    assert run(loaded, faults, record_property) < 2


def test_a_lone_node_killed_comes_back_with_everything(
    make_cluster: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = make_cluster(1)
    with cluster.wire() as wire:
        assert wire.create("load", PARTITIONS, replicas=1).error_code == 0
    cluster.leader_of("load")

    def faults(load: Load) -> None:
        cluster.kill(1)
        cluster.start(1)

    run(cluster, faults, record_property)
