"""The limit of damage: who may lose durable bytes now, what explains the end of a node, and what repairs it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from broker.membership.identity import StartError
from protocol.api_keys import ApiKey
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from raft.types import Configuration, ReplicaId
from storage.disk import DiskFailedError, DiskFullError, MissingPathError
from storage.journal import JOURNAL_NAME
from tests.simulator.client import Client
from tests.simulator.cluster import CLIENT_PORT, METADATA_KEY, SimulatedCluster, host_of
from tests.simulator.damage import Damage, folders
from tests.simulator.disk import InjectedError, VanishedError
from tests.simulator.faults.disks import FAULTS, LOSSES
from tests.simulator.loop import SimulationError
from tests.simulator.mutations.stage import Stage
from tests.simulator.run import simulate

LIMIT_S = 20.0


@pytest.fixture(params=[3, 5])
def cluster(request: pytest.FixtureRequest) -> Iterator[SimulatedCluster]:
    cluster = SimulatedCluster(random.Random(5), size=request.param)
    cluster.start()
    wait_equal(cluster)
    yield cluster
    cluster.close()


def wait_equal(cluster: SimulatedCluster) -> None:
    cluster.run_until(cluster.are_equal, LIMIT_S)


def wipe(cluster: SimulatedCluster, node_id: int) -> None:
    cluster.kill(node_id)
    cluster.damage.note(node_id, is_lost=True)
    cluster.wipe(node_id)


def test_nobody_is_damaged_while_the_cluster_forms() -> None:
    cluster = SimulatedCluster(random.Random(5))
    cluster.start()
    assert not any(cluster.damage.may_damage(node_id) for node_id in cluster.node_ids)
    cluster.close()


def test_a_majority_stays_intact_until_who_was_wiped_is_a_voter_again(cluster: SimulatedCluster) -> None:
    spare = (len(cluster.node_ids) - 1) // 2
    for node_id in cluster.node_ids[:spare]:
        assert cluster.damage.may_damage(node_id, METADATA_KEY)
        wipe(cluster, node_id)
    others = cluster.node_ids[spare:]
    assert not any(cluster.damage.may_damage(node_id, METADATA_KEY) for node_id in others)
    for node_id in cluster.node_ids[:spare]:
        cluster.start(node_id)
    cluster.loop.run_for(0.05)
    assert not any(cluster.damage.may_damage(node_id, METADATA_KEY) for node_id in others), (
        "it runs, and is no voter yet"
    )
    wait_equal(cluster)
    assert all(cluster.damage.may_damage(node_id) for node_id in others)


def test_a_second_node_is_not_lost_before_the_first_is_registered_again(cluster: SimulatedCluster) -> None:
    """A topic that is created meanwhile may have its majority on the directories of both (seed 456188146059)."""
    wipe(cluster, 1)
    assert not any(cluster.damage.may_damage(node_id) for node_id in cluster.node_ids[1:])
    cluster.start(1)
    wait_equal(cluster)
    assert all(cluster.damage.may_damage(node_id) for node_id in cluster.node_ids)


def test_who_has_yet_to_open_a_new_partition_is_needed() -> None:
    cluster = SimulatedCluster(random.Random(5), size=5)
    cluster.start()
    wait_equal(cluster)
    others, founders = cluster.node_ids[:3], cluster.node_ids[3:]
    for node_id in founders:
        cluster.pause(node_id)
    client = Client(cluster.network.of("client"), [(host_of(node_id), CLIENT_PORT) for node_id in others])
    cluster.loop.start_process("client").create_task(create_assigned(client, founders))
    cluster.run_until(lambda: len(cluster.hosted()) > 1, LIMIT_S)
    assert not any(len(folders(disk)) > 1 for disk in cluster.disks.values()), "nobody has the partition"
    spared = [node_id for node_id in cluster.node_ids if not cluster.damage.may_damage(node_id)]
    assert spared == founders
    cluster.close()


async def create_assigned(client: Client, node_ids: list[int]) -> None:
    connection = await client.any_broker()
    placed = CreatableReplicaAssignment(partition_index=0, broker_ids=node_ids)
    topic = CreatableTopic(name="new", num_partitions=-1, replication_factor=-1, assignments=[placed])
    body = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    await connection.request(ApiKey.CREATE_TOPICS, 7, body, CreateTopicsResponse)


def test_who_is_dead_and_intact_counts(cluster: SimulatedCluster) -> None:
    for node_id in cluster.node_ids[1:]:
        cluster.kill(node_id)
    assert cluster.damage.may_damage(1)


def test_the_only_copy_and_the_learner_that_it_moves_to_are_needed(cluster: SimulatedCluster) -> None:
    """Both vote soon, and each of two is needed (seed 848106086821)."""
    stage = Stage(cluster, random.Random(5))
    stage.create_topic(replicas=(1,))
    key = stage.replica(1).key
    assert cluster.damage.may_damage(2, key)
    directory_id = cluster.nodes[2].metadata.image.brokers[2].directory_id.bytes
    learner = ReplicaId(2, directory_id, 0)
    stage.change(Configuration(stage.replica(1).group.configuration.voters, (learner,)))
    assert not cluster.damage.may_damage(1, key)
    assert not cluster.damage.may_damage(2, key)


@pytest.mark.parametrize("name", FAULTS)
def test_faults_that_damage_copies_are_known_as_losses(name: str, cluster: SimulatedCluster) -> None:
    """Whoever plans a seed goes by that. A producer snapshot was not among them: it was lost while another member was
    being left out, and no majority was left (seed 333406670039)."""
    stage = Stage(cluster, random.Random(5))
    stage.create_topic()
    stage.write()
    stage.everybody_has_all()
    cluster.stop(1)  # it leaves a snapshot of its producers
    stage.wait(lambda: not cluster.is_alive(1))
    hosted = [(node_id, key) for key in cluster.hosted() for node_id in cluster.node_ids]
    rng, has_damaged = random.Random(3), False
    for _ in range(20):
        FAULTS[name](cluster, rng)
        has_damaged |= any(cluster.damage.is_damaged(node_id, key) for node_id, key in hosted)
    assert has_damaged == (name in LOSSES)


def test_rot_that_nobody_has_met_is_damage_still(cluster: SimulatedCluster) -> None:
    spare = (len(cluster.node_ids) - 1) // 2
    for node_id in cluster.node_ids[:spare]:
        disk = cluster.disks[node_id]
        cluster.damage.note(node_id, is_lost=True)
        disk.corrupt(f"{disk.root}/{JOURNAL_NAME}", 40, b"\x01")
    cluster.loop.run_for(2)
    assert not cluster.damage.may_damage(cluster.node_ids[-1], METADATA_KEY)
    assert not cluster.are_equal()
    cluster.damage.reveal()
    wait_equal(cluster)
    assert cluster.damage.may_damage(cluster.node_ids[-1], METADATA_KEY)


def test_two_nodes_are_not_to_lose_their_votes_at_once(cluster: SimulatedCluster) -> None:
    """A topic that was created before they do would have lost its majority, and every record in it (seed 30063 of
    07348b8)."""
    disk = cluster.disks[1]
    disk.corrupt(f"{disk.root}/{JOURNAL_NAME}", 0, b"\1")
    assert not any(cluster.damage.may_damage(node_id) for node_id in cluster.node_ids[1:])
    assert cluster.damage.may_damage(1)


def test_a_node_ends_by_what_a_fault_did_and_by_nothing_else() -> None:
    cluster = SimulatedCluster(random.Random(5))
    damage = cluster.damage
    assert damage.explains(1, InjectedError("flush"))
    assert damage.explains(1, VanishedError("/n1/t-0/a"))
    assert not damage.explains(1, DiskFailedError("is a directory"))
    assert not damage.explains(1, MissingPathError("/n1/t-0/a"))
    assert not damage.explains(1, AssertionError("committed"))
    assert not damage.explains(1, DiskFullError("journal"))
    cluster.disks[1].faults.capacity_bytes = 0
    assert damage.explains(1, DiskFullError("journal"))
    assert not damage.explains(2, DiskFullError("journal"))
    assert not damage.explains(1, StartError("the log is corrupt"))
    cluster.close()


def test_a_node_whose_folder_vanished_ends_when_it_needs_it_and_comes_back_without(
    cluster: SimulatedCluster,
) -> None:
    disk, replica = cluster.disks[1], cluster.holders(METADATA_KEY)[1]
    cluster.damage.note(1, METADATA_KEY, is_lost=True)
    disk.vanish(replica.log.directory)
    assert cluster.damage.is_damaged(1, METADATA_KEY)
    process, identity = cluster.process(1), replica.group.self_id
    cluster.loop.call_soon(replica.log.roll, context=process.new_context())
    cluster.run_until(lambda: not process.alive, LIMIT_S)
    cluster.run_until(lambda: cluster.is_alive(1), LIMIT_S)
    wait_equal(cluster)
    assert cluster.holders(METADATA_KEY)[1].group.self_id.incarnation == identity.incarnation + 1
    assert not cluster.damage.is_damaged(1, METADATA_KEY)


def test_a_copy_that_was_lost_twice_is_repaired_when_the_second_identity_is_gone(
    cluster: SimulatedCluster,
) -> None:
    """The node goes on with the files that it has open, under the identity that was lost last."""
    disk = cluster.disks[1]
    for _ in range(2):
        cluster.damage.note(1, METADATA_KEY, is_lost=True)
        disk.vanish(cluster.holders(METADATA_KEY)[1].log.directory)
        assert cluster.damage.is_damaged(1, METADATA_KEY)
        cluster.kill(1)
        cluster.start(1)
        wait_equal(cluster)
    assert not cluster.damage.is_damaged(1, METADATA_KEY)


def test_healing_ends_a_node_that_would_need_a_vanished_folder_later(cluster: SimulatedCluster) -> None:
    process = cluster.process(1)
    cluster.damage.note(1, METADATA_KEY, is_lost=True)
    cluster.disks[1].vanish(cluster.holders(METADATA_KEY)[1].log.directory)
    cluster.heal()
    assert not process.alive and cluster.is_alive(1)
    wait_equal(cluster)


def test_an_error_that_nothing_explains_ends_the_run() -> None:
    cluster = SimulatedCluster(random.Random(5))
    cluster.start()
    wait_equal(cluster)

    def broken() -> None:
        raise AssertionError("committed")

    cluster.loop.call_soon(broken, context=cluster.process(1).new_context())
    with pytest.raises(SimulationError):
        cluster.loop.run_for(1)
    cluster.close()


@pytest.mark.parametrize("name", FAULTS)
def test_each_disk_fault_is_survived(name: str) -> None:
    result = simulate(3, mix=(name,))
    if result.failure is not None:
        pytest.fail(f"{result.report()}\n{result.failure!r}")
    assert result.acknowledged


def test_without_the_limit_a_promise_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no formality: with wipes at any time somebody loses what was acknowledged, or nobody can lead any more."""
    monkeypatch.setattr(Damage, "may_damage", lambda self, node_id, key=None: True)
    assert any(simulate(seed, mix=("wipe",)).failure is not None for seed in range(1, 6))
