"""The schedules of broker/metadata/formation.py, by their numbers there, and random ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from uuid import UUID

import pytest

from broker.metadata.formation import (
    ClusterFormation,
    Formation,
    FormationState,
    FoundingVoter,
    Persist,
    Refuse,
)
from protocol.errors import ErrorCode
from tests.broker.metadata.formation_world import Form, World

EMPTY, MEMBER, JOINED = FormationState.EMPTY, FormationState.MEMBER, FormationState.JOINED


def formed(configured_cluster_id: str | None = None) -> World:
    world = World([1, 2, 3], configured_cluster_id=configured_cluster_id)
    world.start(1, 2, 3)
    world.settle()
    return world


def restart_all(world: World, wiped: list[int]) -> None:
    for node_id in list(world.processes):
        world.kill(node_id)
    for node_id in wiped:
        world.wipe(node_id)
    world.start(1, 2, 3)


def starter_alone_with_its_formation() -> World:
    """Node 1 has asked twice and holds F1 on disk; 2 and 3 have answered "empty" and heard nothing since."""
    world = World([1, 2, 3])
    world.start(1, 2, 3)
    for _ in range(2):
        world.greet(1, 2)
        world.greet(1, 3)
    return world


def test_three_empty_nodes_form_one_cluster_of_all_three() -> None:
    world = formed()
    assert set(world.states().values()) == {MEMBER}
    (formation,) = world.made
    assert [voter.node_id for voter in formation.voters] == [1, 2, 3]
    assert all(formation.directory_of(node_id) == disk.directory_id for node_id, disk in world.disks.items())
    assert world.cluster_ids() == {formation.cluster_id}
    assert len(formation.cluster_id) == 22


def test_a_sole_voter_forms_its_cluster_at_once() -> None:
    world = World([5])
    world.start(5)
    world.persist(5)
    assert world.states() == {5: MEMBER}


def test_the_configured_cluster_id_is_taken() -> None:
    assert formed("mine").cluster_ids() == {"mine"}


def test_two_of_three_empty_nodes_wait_and_say_for_whom() -> None:
    world = World([1, 2, 3])
    world.start(1, 2)
    world.settle()
    assert world.states() == {1: EMPTY, 2: EMPTY}
    assert world.processes[1].formation.waiting_for() == "empty, waiting for an answer from the voters 3"


def test_nobody_forms_without_the_lowest_numbered_voter() -> None:
    world = World([1, 2, 3])
    world.start(2, 3)
    world.settle()
    assert world.states() == {2: EMPTY, 3: EMPTY}


def test_a_restart_of_everybody_forms_nothing_new() -> None:
    world = formed()
    restart_all(world, wiped=[])
    world.settle()
    assert set(world.states().values()) == {MEMBER}
    assert len(world.made) == 1


@pytest.mark.parametrize("configured_cluster_id", [None, "fixed"])
@pytest.mark.parametrize("holder_is_up", [True, False])
def test_schedule_1_two_lost_volumes_form_no_fresh_majority(
    configured_cluster_id: str | None, holder_is_up: bool
) -> None:
    world = formed(configured_cluster_id)
    kept = world.disks[3]
    restart_all(world, wiped=[1, 2])
    if not holder_is_up:
        world.kill(3)
        world.settle()
        assert world.states() == {1: EMPTY, 2: EMPTY}
        world.start(3)
    world.settle()
    assert world.states() == {1: JOINED, 2: JOINED, 3: MEMBER}
    assert len(world.made) == 1
    assert world.disks[3] is kept and kept.row_0 == world.made[0]
    assert world.disks[1].row_0 is None and world.disks[2].row_0 is None


def test_schedule_2_a_starter_wiped_after_forming_alone_forms_again() -> None:
    world = starter_alone_with_its_formation()
    world.kill(1, persisted=True)
    assert world.disks[1].row_0 == world.made[0]
    world.wipe(1)
    world.start(1)
    world.settle()
    assert set(world.states().values()) == {MEMBER}
    assert len(world.made) == 2 and world.cluster_ids() == {world.made[1].cluster_id}


def test_schedule_3_a_form_of_the_dead_starter_comes_after_the_new_one_was_answered() -> None:
    world = starter_alone_with_its_formation()
    world.persist(1)
    old = world.dialled(world.processes[1], 2)
    assert old is not None and list(old.to_accepter) == [Form(world.made[0])]
    world.kill(1)
    world.wipe(1)
    world.start(1)
    world.greet(1, 2)
    old.deliver_to_accepter()
    assert world.processes[2].formation.state is EMPTY
    world.connections.clear()
    world.settle()
    assert set(world.states().values()) == {MEMBER}
    assert world.cluster_ids() == {world.made[1].cluster_id}


def test_schedule_3_a_form_of_the_dead_starter_comes_before() -> None:
    world = starter_alone_with_its_formation()
    world.persist(1)
    old = world.dialled(world.processes[1], 2)
    assert old is not None
    world.kill(1)
    world.wipe(1)
    world.start(1)
    old.deliver_to_accepter()
    world.connections.clear()
    world.settle()
    assert world.states() == {1: JOINED, 2: MEMBER, 3: MEMBER}
    assert len(world.made) == 1


def test_schedule_4_a_voter_wiped_between_hello_and_form_joins_as_a_lost_identity() -> None:
    world = starter_alone_with_its_formation()
    world.kill(2)
    world.wipe(2)
    world.start(2)
    world.settle()
    assert world.states() == {1: MEMBER, 2: JOINED, 3: MEMBER}


def test_a_power_cut_just_after_the_starter_persisted_loses_nothing() -> None:
    """Restarted volumes keep their directory ids, so the formation still names them."""
    world = starter_alone_with_its_formation()
    world.kill(1, persisted=True)
    restart_all(world, wiped=[])
    world.settle()
    assert set(world.states().values()) == {MEMBER} and len(world.made) == 1


def test_schedule_5_a_starter_that_stopped_after_forming_tells_the_others_later() -> None:
    world = starter_alone_with_its_formation()
    world.kill(1, persisted=True)
    world.start(1)
    world.settle()
    assert set(world.states().values()) == {MEMBER}
    assert len(world.made) == 1


def test_schedule_6_an_answer_that_is_out_of_date_forms_nothing() -> None:
    world = starter_alone_with_its_formation()  # F1
    world.persist(1)
    to_3 = world.dialled(world.processes[1], 3)
    assert to_3 is not None
    to_3.deliver_to_accepter()
    world.persist(3)
    world.kill(1)
    world.wipe(1)
    world.connections.clear()
    world.start(1)
    world.greet(1, 2)  # 2 says "empty" to the new node 1 ...
    world.kill(2)  # ... and loses power; what its kernel would say is not delivered
    world.start(2)
    world.greet(3, 2).deliver_to_accepter()
    world.persist(2)
    world.kill(3)
    world.wipe(3)
    world.start(3)
    world.greet(1, 3)  # all have answered "empty" now
    assert len(world.made) == 1
    world.settle()
    assert world.states() == {1: JOINED, 2: MEMBER, 3: JOINED}


def test_schedule_7_a_bound_voter_takes_the_formation_from_the_new_starter() -> None:
    world = starter_alone_with_its_formation()
    world.persist(1)
    to_3 = world.dialled(world.processes[1], 3)
    assert to_3 is not None
    to_3.deliver_to_accepter()
    world.persist(3)
    world.kill(1)
    world.wipe(1)
    world.connections.clear()
    world.start(1)
    world.greet(1, 2)
    from_3 = world.greet(3, 2)
    to_1 = world.greet(2, 1)
    from_3.deliver_to_accepter()
    refusal = world.processes[2].refusals.pop()
    assert refusal.code is ErrorCode.INCONSISTENT_VOTER_SET
    assert world.processes[2].formation.waiting_for() is not None
    to_1.deliver_to_accepter()
    world.persist(1)
    back_to_2 = world.dialled(world.processes[1], 2)
    assert back_to_2 is not None
    back_to_2.deliver_to_accepter()
    world.persist(2)
    assert world.states() == {1: JOINED, 2: MEMBER, 3: MEMBER}


@pytest.mark.parametrize("first", ["introduced", "answered"])
def test_schedule_8_what_one_starter_was_to_hear_of_is_not_told_to_the_next(first: str) -> None:
    world = starter_alone_with_its_formation()  # F1
    world.persist(1)
    old = world.dialled(world.processes[1], 2)
    assert old is not None
    world.replace(1)
    for _ in range(2):
        world.greet(1, 2)
        world.greet(1, 3)
    old.deliver_to_accepter()
    assert world.processes[2].formation.state is EMPTY, "bound to 1'"
    world.processes[2].refusals.clear()
    world.persist(1)  # F2
    to_3 = world.dialled(world.processes[1], 3)
    assert to_3 is not None
    to_3.deliver_to_accepter()
    world.persist(3)
    world.replace(1)
    world.connections.clear()
    for dialler, accepter in [(1, 2), (2, 1)] if first == "introduced" else [(2, 1), (1, 2)]:
        world.greet(dialler, accepter)
    world.settle()
    assert len(world.made) == 2 and world.cluster_ids() == {world.made[1].cluster_id}
    assert world.states() == {1: JOINED, 2: MEMBER, 3: MEMBER}


def test_a_node_that_joined_and_restarted_passes_on_what_its_log_has_brought() -> None:
    world = formed()
    for node_id in (1, 2, 3):
        world.replace(node_id)
        if node_id < 3:
            world.settle()
            world.kill(node_id)
            world.start(node_id)
    world.settle()
    assert world.states() == {1: JOINED, 2: JOINED, 3: EMPTY}
    process = world.processes[2]
    process.carry_out(process.formation.learned(world.made[0]))
    world.settle()
    assert world.states() == {1: JOINED, 2: JOINED, 3: JOINED}
    assert len(world.made) == 1


def test_two_clusters_do_not_mix() -> None:
    world = formed()
    stranger = ClusterFormation(4, UUID(int=4), [4], random.Random(1), cluster_id="another")
    refusal = world.processes[1].formation.introduced(4, UUID(int=4), "another")
    assert refusal is not None and refusal.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "another" in refusal.message
    (order,) = stranger.form_received(1, world.disks[1].directory_id, world.made[0])
    assert isinstance(order, Refuse)


def test_an_empty_node_obeys_its_configured_cluster_id() -> None:
    node = ClusterFormation(2, UUID(int=2), [1, 2], random.Random(1), configured_cluster_id="mine")
    formation = Formation("other", (FoundingVoter(1, UUID(int=1)), FoundingVoter(2, UUID(int=2))))
    (order,) = node.form_received(1, UUID(int=1), formation)
    assert isinstance(order, Refuse) and order.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert node.state is EMPTY


def test_a_formation_with_other_voters_than_configured_is_refused() -> None:
    node = ClusterFormation(2, UUID(int=2), [1, 2, 3], random.Random(1))
    formation = Formation("x", (FoundingVoter(1, UUID(int=1)), FoundingVoter(2, UUID(int=2))))
    (order,) = node.form_received(1, UUID(int=1), formation)
    assert isinstance(order, Refuse) and order.code is ErrorCode.INCONSISTENT_VOTER_SET
    assert node.state is EMPTY


def test_a_broker_that_is_no_voter_joins() -> None:
    world = formed()
    broker = ClusterFormation(9, UUID(int=9), [1, 2, 3], random.Random(1))
    (order,) = broker.form_received(2, world.disks[2].directory_id, world.made[0])
    assert order == Persist(world.made[0], founding=False)
    assert broker.persisted() == [] and broker.state is JOINED


def test_another_node_with_the_same_node_id_is_refused() -> None:
    refusal = formed().processes[2].formation.introduced(2, UUID(int=77), None)
    assert refusal is not None and refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_starter_that_was_replaced_is_not_heard_any_more() -> None:
    node = ClusterFormation(2, UUID(int=2), [1, 2, 3], random.Random(1))
    assert node.introduced(1, UUID(int=10), None) is None
    assert node.introduced(1, UUID(int=11), None) is None
    refusal = node.introduced(1, UUID(int=10), None)
    assert refusal is not None and refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_no_word_leaves_a_node_before_its_formation_is_durable() -> None:
    world = starter_alone_with_its_formation()
    assert world.processes[1].formation.cluster_id is not None, "it does not say empty any more"
    sent = [frame for connection in world.connections for frame in connection.to_accepter]
    assert not any(isinstance(frame, Form) for frame in sent)


@pytest.mark.parametrize("block", range(5))
@pytest.mark.parametrize("size", [2, 3])
def test_random_schedules_hold_the_promise_and_end_in_one_cluster(size: int, block: int) -> None:
    for seed in range(block * 200, block * 200 + 200):
        try:
            _explore(World(list(range(1, size + 1)), seed, "fixed" if seed % 2 else None))
        except AssertionError as error:
            raise AssertionError(f"size {size}, seed {seed}: {error}") from error


def _explore(world: World) -> None:
    """Faults for a while; then everything heals, and the cluster has to come to rest as one.

    Each run draws how likely each kind of event is (swarm testing): only lopsided mixes reach deep schedules.
    """
    rng = world.rng
    if rng.random() < 0.8:  # the deep schedules begin where a formation is on its way to some
        world.start(*world.voters)
        for _ in range(2):
            for node_id in world.voters[1:]:
                world.greet(1, node_id)
        world.persist(1)
    weight = {kind: rng.choice([0.05, 0.3, 1, 4]) for kind in ("deliver", "dial", "start", "persist")}
    weight |= {kind: rng.choice([0.0001, 0.02, 0.1, 0.5]) for kind in ("kill", "replace", "cut")}
    # What a dead process sent may arrive long after it died, and so may the news of its death.
    lag = rng.choice([1, 0.1, 0.02])
    for _ in range(rng.choice([30, 80, 200])):
        actions: list[tuple[float, Callable[[], object]]] = []
        for connection, deliver in world.deliveries():
            both_alive = connection.dialler.alive and connection.accepter.alive
            actions.append((weight["deliver"] * (1 if both_alive else lag), deliver))
            actions += [(weight["cut"], close) for close in connection.ends()]
        actions += [(weight["dial"], partial(world.dial, *pair)) for pair in world.pairs_to_dial()]
        for node_id in world.voters:
            process = world.processes.get(node_id)
            if process is None:
                actions.append((weight["start"], partial(world.start, node_id)))
                continue
            actions.append((weight["kill"], partial(world.kill, node_id, persisted=rng.random() < 0.5)))
            actions.append((weight["replace"], partial(world.replace, node_id)))
            if process.persisting is not None:
                actions.append((weight["persist"], process.persist))
        rng.choices([action for _, action in actions], [chance for chance, _ in actions])[0]()
        world.check()
    _heal(world)


def _heal(world: World) -> None:
    for node_id in world.voters:
        if node_id not in world.processes:
            world.start(node_id)
    for process in world.processes.values():
        process.refusals.clear()
    world.settle()
    for node_id in world.voters:
        # A voter bound to a starter that joined and then restarted waits for a person (schedule 7).
        if world.processes[node_id].formation.state is EMPTY:
            world.kill(node_id)
            world.start(node_id)
    for process in world.processes.values():
        process.refusals.clear()
    world.settle()
    survivors = [disk for disk in world.disks.values() if disk.row_0 is not None]
    joined_a_lost_cluster = [d for d in world.disks.values() if d.row_0 is None and d.cluster_id is not None]
    if survivors or not joined_a_lost_cluster:
        assert len(world.cluster_ids()) == 1 and None not in world.cluster_ids(), world.states()
