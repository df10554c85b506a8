"""Records that a coordinator writes in a transaction, and the markers that end it: a shard is what its log says."""

from __future__ import annotations

import pytest

from broker.coordinator import decisions, transaction_ends
from broker.scheduling import background
from protocol.errors import ErrorCode, KafkaError
from protocol.records.control import Marker
from tests.broker.coordinator.registers import TOPIC, RegisterWorld
from tests.broker.coordinator.test_runtime import NAME, cut_off, names_of, registers, reload_shard

PRODUCER = (77, 0)


def _values(cluster: RegisterWorld, node_id: int) -> tuple[dict[str, int], dict[int, dict[str, int | None]]]:
    """What counts, and what is pending of each producer."""
    shard = cluster.shard(node_id, NAME)
    pending = {
        producer_id: {record.name: record.value for record in records}
        for producer_id, records in shard.pending.items()
    }
    return dict(shard.values), pending


def _check_log(cluster: RegisterWorld, partition: int, node_id: int) -> None:
    """Whoever loads the log comes to the state that the shard has."""
    replica = cluster.world.replica(node_id, TOPIC, partition)
    cluster.world.wait(lambda: replica.high_watermark == replica.next_offset)
    before = _values(cluster, node_id)
    reload_shard(cluster, node_id, partition)
    assert cluster.coordinator(partition) == node_id
    assert _values(cluster, node_id) == before


@pytest.mark.parametrize("is_commit", [True, False])
def test_records_of_a_transaction_count_when_it_is_committed(is_commit: bool) -> None:
    with registers() as (cluster, partition, node_id):
        assert cluster.add(node_id, NAME, 1) == 1
        assert cluster.answer(cluster.begin_writing_pending(node_id, {NAME: 7}, PRODUCER)) == 1
        assert _values(cluster, node_id) == ({NAME: 1}, {77: {NAME: 7}})
        _check_log(cluster, partition, node_id)
        assert len(cluster.begin_marker(node_id, partition, PRODUCER, is_commit=is_commit)) == 1
        assert _values(cluster, node_id) == ({NAME: 7 if is_commit else 1}, {})
        _check_log(cluster, partition, node_id)
        cluster.world.kill(node_id, power=True)
        assert cluster.read(cluster.coordinator(partition), NAME) == (7 if is_commit else 1)


def test_a_marker_that_is_appended_while_the_partition_is_loaded_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers(size=1) as (cluster, partition, node_id):
        names = names_of(cluster, node_id, partition, 8)
        for name in names:
            assert cluster.answer(cluster.begin_writing_pending(node_id, {name: 7}, PRODUCER)) == 1
        for steps in range(0, 20, 3):
            reload_shard(cluster, node_id, partition)
            for _ in range(steps):
                cluster.world.loop.run_for(0)
            ended = cluster.begin_marker(node_id, partition, (77 + steps, 0), is_commit=True)
            cluster.world.wait(lambda ended=ended: bool(ended))  # type: ignore[misc]
            assert cluster.coordinator(partition) == node_id
            assert _values(cluster, node_id) == (dict.fromkeys(names, 7), {}), f"after {steps} steps"
            _check_log(cluster, partition, node_id)
            for name in names:
                next_one = (77 + steps + 3, 0)
                assert cluster.answer(cluster.begin_writing_pending(node_id, {name: 7}, next_one)) == 1


def test_a_marker_waits_for_the_decisions_about_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they append before is of the transaction that ends, what they append after is not."""
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers(size=1) as (cluster, partition, node_id):
        assert cluster.answer(cluster.begin_writing_pending(node_id, {NAME: 1}, PRODUCER)) == 1
        second = cluster.begin_writing_pending(node_id, {NAME: 2}, PRODUCER, steps=9)
        end_offset = cluster.world.replica(node_id, TOPIC, partition).next_offset
        ended = cluster.begin_marker(node_id, partition, PRODUCER, is_commit=True)
        again = cluster.begin_marker(node_id, partition, PRODUCER, is_commit=True)
        assert isinstance(again[0], KafkaError) and again[0].code is ErrorCode.CONCURRENT_TRANSACTIONS
        assert not ended and end_offset == cluster.world.replica(node_id, TOPIC, partition).next_offset
        cluster.world.wait(lambda: bool(ended))
        assert cluster.answer(second) == 1
        assert _values(cluster, node_id) == ({NAME: 2}, {})
        _check_log(cluster, partition, node_id)


def test_a_marker_waits_no_longer_than_its_leader_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was sent to a leader of that epoch. Whoever coordinates the transaction has sent it again since."""
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    monkeypatch.setattr(background, "PAUSE_S", 20.0)
    with registers() as (cluster, partition, node_id):
        assert cluster.answer(cluster.begin_writing_pending(node_id, {NAME: 1}, PRODUCER)) == 1
        cluster.begin_writing_pending(node_id, {NAME: 2}, PRODUCER, steps=9)
        ended = cluster.begin_marker(node_id, partition, PRODUCER, is_commit=True)
        replica = cluster.world.replica(node_id, TOPIC, partition)
        epoch = replica.leader_epoch
        cut_off(cluster, node_id)
        cluster.coordinator(partition, other_than=node_id)
        cluster.world.network.heal_all()

        def leads_again() -> bool:
            for other in cluster.world.ids:
                leader = cluster.world.replica(other, TOPIC, partition)
                if other != node_id and leader.is_serving:
                    cluster.call(other, leader.driver.transfer_leadership, replica.group.self_id)
            return replica.is_serving and replica.leader_epoch > epoch

        cluster.world.wait(leads_again)
        assert not ended
        cluster.world.wait(lambda: bool(ended))
        assert isinstance(ended[0], KafkaError) and ended[0].code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_marker_that_does_not_wait_has_the_shard_loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with registers(size=1) as (cluster, partition, node_id):
        assert cluster.answer(cluster.begin_writing_pending(node_id, {NAME: 1}, PRODUCER)) == 1
        second = cluster.begin_writing_pending(node_id, {NAME: 2}, PRODUCER, steps=9)
        replica = cluster.world.replica(node_id, TOPIC, partition)
        cluster.call(node_id, replica.append_marker, *PRODUCER, Marker(True, 0))
        assert cluster.answer(second) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cluster.coordinator(partition) == node_id
        assert _values(cluster, node_id) == ({NAME: 1}, {})


def test_a_transaction_with_many_records_ends_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees a part of it: what is asked about its keys meanwhile waits."""
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    for module in (decisions, transaction_ends):
        monkeypatch.setattr(module, "FEW", 3)
    with registers(size=1) as (cluster, partition, node_id):
        names = names_of(cluster, node_id, partition, 8)
        written = cluster.begin_writing_pending(node_id, dict.fromkeys(names, 7), PRODUCER)
        assert cluster.answer(written) == 8
        cluster.begin_marker(node_id, partition, PRODUCER, is_commit=True)
        added = cluster.begin_add(node_id, names[-1], 5)
        assert added == [] and len(cluster.shard(node_id, NAME).values) < 8
        assert cluster.answer(added) == 12
        assert _values(cluster, node_id) == ({**dict.fromkeys(names, 7), names[-1]: 12}, {})
        _check_log(cluster, partition, node_id)


def test_a_fenced_producer_is_refused_and_nothing_else_happens() -> None:
    with registers(size=1) as (cluster, partition, node_id):
        assert cluster.answer(cluster.begin_writing_pending(node_id, {NAME: 1}, (77, 4))) == 1
        led = cluster.led(node_id, partition)
        cluster.begin_marker(node_id, partition, (77, 5), is_commit=False)
        refused = cluster.begin_writing_pending(node_id, {NAME: 2}, (77, 4))
        assert cluster.answer(refused) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert cluster.led(node_id, partition) is led, "the shard is not loaded anew"
        (marker,) = cluster.begin_marker(node_id, partition, (77, 4), is_commit=True)
        assert isinstance(marker, KafkaError) and marker.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert _values(cluster, node_id) == ({}, {})


def test_a_marker_that_was_not_committed_is_taken_back_with_the_log() -> None:
    with registers() as (cluster, partition, node_id):
        assert cluster.answer(cluster.begin_writing_pending(node_id, {NAME: 7}, PRODUCER)) == 1
        cut_off(cluster, node_id)
        cluster.begin_marker(node_id, partition, PRODUCER, is_commit=True)
        assert _values(cluster, node_id) == ({NAME: 7}, {})
        successor = cluster.coordinator(partition, other_than=node_id)
        assert _values(cluster, successor) == ({}, {77: {NAME: 7}})
        cluster.begin_marker(successor, partition, PRODUCER, is_commit=False)
        assert cluster.read(successor, NAME) == -1
