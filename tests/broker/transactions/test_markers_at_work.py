"""Markers on their way from the coordinator of a transaction into the partitions that are in it, and verification."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from broker.coordinator.internal_topic import InternalTopic, InternalTopicSpec, partition_of
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.markers import EndedTransaction, MarkerSender
from broker.transactions.metadata import ProducerIdAndEpoch, TopicPartition, new_metadata
from broker.transactions.states import TransactionState
from broker.transactions.verification import TransactionVerifier, Verification
from protocol.controller.transactions import (
    ErrorCodesResult,
    JoinedResult,
    JoinTransaction,
    MarkerToWrite,
    WriteMarkers,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import parse_header
from protocol.records.builder import NewRecord, build_batch
from protocol.records.control import Marker
from storage.log_types import GroupKey
from tests.broker.groups.test_transactional_offsets import _commit as commit_offsets
from tests.broker.groups.world import FEW, committed, coordinator
from tests.broker.world import World, running

PRODUCER = ProducerIdAndEpoch(77, 0)
OFFSETS_TOPIC = "__consumer_offsets"


def _carry_out(world: World, node_id: int, request_class: type, execute: Callable[..., None]) -> None:
    """As the node's composition root will: this node carries out such requests."""
    node = world.nodes[node_id]
    node.requests._others = {**node.requests._others, request_class: execute}


def _writer(world: World, node_id: int) -> MarkerWriter:
    node = world.nodes[node_id]
    coordinators = {OFFSETS_TOPIC: node.coordinators.groups.append_marker}
    return MarkerWriter(node.replicas.by_key, coordinators, node.loop, node.background)


def _write(world: World, node_id: int, *markers: MarkerToWrite) -> list[list[int]]:
    """The list gets the codes."""
    answers: list[list[int]] = []

    def reply(result: ErrorCodesResult | KafkaError, image_end: int) -> None:
        assert isinstance(result, ErrorCodesResult)
        answers.append(result.error_codes)

    request = WriteMarkers(markers=list(markers))
    world.processes[node_id].call(_writer(world, node_id).execute, request, reply)
    return answers


def _marker(key: GroupKey, leader_epoch: int, **changes: Any) -> MarkerToWrite:
    values: dict[str, Any] = {
        "topic_id": key.topic_id, "partition": key.partition, "leader_epoch": leader_epoch,
        "producer_id": 77, "producer_epoch": 0, "coordinator_epoch": 0, "is_commit": True, "attempt": 1,
    }  # fmt: skip
    return MarkerToWrite(**(values | changes))


def _append(world: World, name: str, partition: int) -> int:
    """A transactional batch at the leader; its offset. Returns when it is committed."""
    batch = build_batch(
        [NewRecord(None, b"x", 0)], producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    leader = world.leader(name, partition)
    replica = world.replica(leader, name, partition)
    base_offset, _ = world.processes[leader].call(replica.append, parse_header(batch), batch)
    world.wait(lambda: replica.high_watermark > base_offset)
    return int(base_offset)


def test_a_marker_is_answered_when_it_is_committed_or_cannot_be_written() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        _append(world, "foo", 0)
        epoch, key = replica.leader_epoch, replica.key
        end_offset = replica.next_offset
        metadata = world.nodes[leader].metadata.replica
        assert metadata is not None
        answers = _write(
            world,
            leader,
            _marker(key, epoch, coordinator_epoch=4, attempt=2),
            _marker(key, epoch, coordinator_epoch=4, attempt=1),
            _marker(key, epoch - 1),
            _marker(key, epoch, coordinator_epoch=3),
            _marker(key, epoch, producer_id=-1),
            _marker(GroupKey(key.topic_id, 7), epoch),
            _marker(metadata.key, metadata.leader_epoch),
        )
        assert not answers, "it is not committed yet"
        world.wait(lambda: bool(answers))
        assert answers[0][:6] == [
            ErrorCode.NONE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ]
        assert answers[0][6] in (ErrorCode.INVALID_REQUEST, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert replica.high_watermark == replica.last_stable_offset == end_offset + 1


def _mark(world: World, **changes: Any) -> int:
    """What the leader of foo answers to a marker."""
    leader = world.leader("foo")
    replica = world.replica(leader, "foo")
    answers = _write(world, leader, _marker(replica.key, replica.leader_epoch, **changes))
    world.wait(lambda: bool(answers))
    return answers[0][0]


def test_a_leader_of_before_takes_the_markers_of_a_coordinator_that_it_has_not_heard() -> None:
    """Its own last marker was the millionth message of the coordinator before, and the last one that it copied is of
    the new coordinator."""
    with running() as world:
        world.create_topic("foo")
        _append(world, "foo", 0)
        first = world.leader("foo")
        second = next(node_id for node_id in world.ids if node_id != first)
        assert _mark(world, coordinator_epoch=5, attempt=1_000_000) == ErrorCode.NONE
        for target, attempt in ((second, 3), (first, 4)):
            led, following = world.replica(world.leader("foo"), "foo"), world.replica(target, "foo")
            world.processes[led.group.self_id.node_id].call(
                led.driver.transfer_leadership, following.group.self_id
            )
            world.wait(lambda following=following: following.is_serving)  # type: ignore[misc]
            assert _mark(world, coordinator_epoch=6, attempt=attempt) == ErrorCode.NONE


def test_a_refused_write_does_not_let_late_markers_in() -> None:
    """The producer's state is read from the log again, which holds no attempts."""
    with running() as world:
        world.create_topic("foo", replication_factor=1)
        _append(world, "foo", 0)
        leader = world.leader("foo")
        replica, disk = world.replica(leader, "foo"), world.disks[leader]
        assert _mark(world, attempt=9) == ErrorCode.NONE
        begins = build_batch(
            [NewRecord(None, b"y", 0)],
            producer_id=77,
            producer_epoch=0,
            base_sequence=1,
            is_transactional=True,
        )
        world.processes[leader].call(replica.append, parse_header(begins), begins)
        world.wait(lambda: replica.high_watermark == 3)
        epoch, states = replica.leader_epoch, replica.producers
        room = disk.faults.capacity_bytes
        disk.faults.capacity_bytes = room - disk.free_bytes()
        large = build_batch([NewRecord(None, bytes(1 << 17), 0)])
        world.processes[leader].call(replica.append, parse_header(large), large)
        world.wait(lambda: replica.producers is not states)
        disk.faults.capacity_bytes = room
        assert replica.leader_epoch == epoch
        assert _mark(world, attempt=5) == ErrorCode.REQUEST_TIMED_OUT
        assert replica.last_stable_offset < replica.high_watermark


def test_a_marker_that_no_majority_has_is_answered_in_time() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        others = [f"n{node_id}" for node_id in world.ids if node_id != leader]
        world.network.partition([f"n{leader}"], others)
        answers = _write(world, leader, _marker(replica.key, replica.leader_epoch))
        world.wait(lambda: bool(answers))
        assert answers[0] in ([ErrorCode.REQUEST_TIMED_OUT], [ErrorCode.NOT_LEADER_OR_FOLLOWER])


def _ended(partitions: list[TopicPartition], done: list[None], *, is_commit: bool = True) -> EndedTransaction:
    state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    metadata = replace(
        new_metadata("t", 77, 1000, 0), state=state, partitions=frozenset(partitions), started_ms=1
    )
    return EndedTransaction(metadata, 3, lambda: True, lambda: done.append(None), set(partitions))


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_markers_of_a_transaction_reach_all_its_partitions(is_commit: bool) -> None:
    """One of them has no leader for a while, one was deleted, and one holds offsets."""
    with running(settings=FEW) as world:
        world.create_topic("foo", partitions=6)
        node_id = coordinator(world, "g")
        assert commit_offsets(world, node_id, {0: 5}).error == ErrorCode.NONE
        offsets_partition = partition_of("g", 3)
        for partition in range(6):
            _append(world, "foo", partition)
        for each in world.nodes:
            _carry_out(world, each, WriteMarkers, _writer(world, each).execute)
        killed = next(each for each in world.ids if each != world.leader(OFFSETS_TOPIC, offsets_partition))
        sender_id = next(each for each in world.ids if each != killed)
        node = world.nodes[sender_id]
        sender = MarkerSender(
            node.loop, node.controller, lambda: node.metadata.image, node.view.leader_of_id, node.background
        )
        world.kill(killed)
        done: list[None] = []
        partitions = [TopicPartition("foo", partition) for partition in range(6)]
        others = [TopicPartition("gone", 0), TopicPartition(OFFSETS_TOPIC, offsets_partition)]
        ended = _ended([*partitions, *others], done, is_commit=is_commit)
        world.processes[sender_id].call(sender.send, ended)
        world.wait(lambda: bool(done))
        assert not ended.missing
        for partition in range(6):
            replica = world.replica(world.leader("foo", partition), "foo", partition)
            assert replica.last_stable_offset == replica.high_watermark
            aborted = replica.log.aborted_between(0, replica.high_watermark)
            assert [each.producer_id for each in aborted] == ([] if is_commit else [77])
        found = committed(world, coordinator(world, "g"), "g")
        assert found == ({("foo", 0): 5} if is_commit else {})


def _verified(world: World, node_id: int, verifier: TransactionVerifier) -> list[list[ErrorCode]]:
    replica = world.replica(node_id, "foo")
    answers: list[list[ErrorCode]] = []

    def verified(verification: Verification) -> None:
        try:
            verification.check(replica, PRODUCER)
        except KafkaError as refused:
            answers.append([refused.code])
        else:
            answers.append([ErrorCode.NONE])

    def verify() -> None:
        verifier.verify("t", PRODUCER, [replica], verified, is_added=False)

    world.processes[node_id].call(verify)
    return answers


def test_a_verification_is_void_when_the_transaction_ends_meanwhile() -> None:
    with running(settings=FEW) as world:
        world.create_topic("foo")
        spec = InternalTopicSpec("coordinating", 1, 3, {}, lambda key: None)
        world.create_topic("coordinating")
        held: list[Callable[[], None]] = []
        codes = [ErrorCode.NONE]

        def execute(request: JoinTransaction, reply: Callable[[Any, int], None]) -> None:
            assert (request.transactional_id, request.producer_id, request.is_added) == ("t", 77, False)
            held.append(lambda: reply(JoinedResult(error_codes=list(codes), unconfirmed_epoch=-1), 0))

        for each in world.nodes:
            _carry_out(world, each, JoinTransaction, execute)
        world.leader("coordinating")
        leader = world.leader("foo")
        node = world.nodes[leader]
        topic = InternalTopic(
            spec, node.metadata, node.controller, node.view.leader_of, node.view.endpoint_of
        )
        verifier = TransactionVerifier(topic, node.controller)
        world.wait(lambda: node.view.leader_of("coordinating", 0)[0] >= 0)

        for error, expected in (
            (ErrorCode.NONE, ErrorCode.NONE),
            (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
            (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        ):
            codes[:] = [error]
            answers = _verified(world, leader, verifier)
            world.wait(lambda: bool(held))
            held.pop()()
            world.wait(lambda answers=answers: bool(answers))  # type: ignore[misc]
            assert answers == [[expected]]

        codes[:] = [ErrorCode.NONE]
        answers = _verified(world, leader, verifier)
        world.wait(lambda: bool(held))
        world.processes[leader].call(
            world.replica(leader, "foo").append_marker, 77, 0, Marker(is_commit=False, coordinator_epoch=0)
        )
        held.pop()()
        world.wait(lambda: bool(answers))
        assert answers == [[ErrorCode.TRANSACTION_ABORTABLE]]
