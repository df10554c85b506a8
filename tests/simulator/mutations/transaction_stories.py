"""Schedules in which the rules of transactions matter, and that random faults hardly ever meet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from broker.controller.client import ControllerClient
from broker.replication.replica import Replica
from broker.scheduling.background import Steps
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.metadata import ProducerIdAndEpoch
from broker.transactions.verification import TransactionVerifier, Verification
from protocol.controller.transactions import JoinedResult, JoinTransaction
from protocol.errors import ErrorCode, KafkaError
from tests.simulator.invariants.transactions_are_atomic import Transaction
from tests.simulator.mutations.stage import TOPIC, Stage
from tests.simulator.mutations.switch import replaced
from tests.simulator.mutations.transactional_id import TransactionalId, read_all

#: A topic whose only replica is on a node that a story chooses.
ALONE = "alone"


def create_alone(stage: Stage, node_id: int) -> None:
    """The topic ALONE; the stage's topic stays what it is."""
    stage.topic = ALONE
    stage.create_topic(replicas=(node_id,))
    stage.topic = TOPIC


def a_coordinator_is_cut_off_when_it_is_to_commit(stage: Stage) -> None:
    """It alone knows of the commit, and leads a partition of the transaction that has no other replica. Its successor
    has the transaction time out."""
    stage.create_topic()
    producer = TransactionalId(stage, timeout_ms=1000)
    producer.init()
    coordinator = producer.coordinator()
    if stage.leader() == coordinator:
        stage.lead(stage.followers()[0])
    create_alone(stage, coordinator)
    transaction = producer.begin()
    for topic in (TOPIC, ALONE):
        producer.write(transaction, topic)
    if producer.coordinator() != coordinator:
        return
    stage.isolate(coordinator)
    stage.run(_ending(producer, coordinator, transaction, is_commit=True))
    stage.run_for(stage.rng.uniform(0.5, 2.0))


def markers_of_an_old_coordinator_come_late(stage: Stage) -> None:
    """They were on their way when it was deposed. Its successor has ended the transaction, and the producer has begun
    the next one under the same epoch."""
    stage.create_topic()
    producer = TransactionalId(stage)
    producer.init()
    old = producer.coordinator()
    first = producer.begin()
    producer.write(first, TOPIC)
    is_commit = stage.rng.random() < 0.5
    with held_markers() as held:
        stage.begin(_ending(producer, old, first, is_commit=is_commit))
        stage.wait(lambda: bool(held))
    producer.coordinate(stage.rng.choice([node_id for node_id in producer.coordinators() if node_id != old]))
    producer.end(first, is_commit=is_commit)
    second = producer.begin()
    producer.write(second, TOPIC)
    leader = stage.leader()
    for write in held:
        stage.call(leader, write)
    stage.run_for(stage.rng.uniform(0.1, 0.5))
    producer.end(second, is_commit=not is_commit)
    read_all(stage, TOPIC)


def a_marker_comes_behind_its_copy(stage: Stage) -> None:
    """Its message has reached the leader, which had other work to do. The coordinator has sent it again, and that copy
    has ended the transaction. The producer has begun the next one (KIP-1228)."""
    stage.create_topic()
    producer = TransactionalId(stage, version=stage.rng.choice((1, 2)))
    producer.init()
    first = producer.begin()
    producer.write(first, TOPIC)
    is_commit = stage.rng.random() < 0.5
    with held_markers(1) as held:
        producer.end(first, is_commit=is_commit)
    assert held
    second = producer.begin()
    producer.write(second, TOPIC)
    leader = stage.leader()
    for write in held:
        stage.call(leader, write)
    producer.write(second, TOPIC)
    producer.end(second, is_commit=not is_commit)
    read_all(stage, TOPIC)


@contextmanager
def held_markers(count: int = sys.maxsize) -> Iterator[list[Callable[[], None]]]:
    """Markers arrive, and the first `count` messages are not looked at before somebody calls what is in the list."""
    held: list[Callable[[], None]] = []

    def hold(write_all: Callable[..., Steps]) -> Any:
        def write(*arguments: Any) -> Steps:
            if len(held) >= count:
                return write_all(*arguments)
            held.append(partial(_carry_out, write_all, *arguments))
            return iter(())

        return write

    with replaced(MarkerWriter, "_write_all", hold):
        yield held


def _carry_out(steps: Callable[..., Steps], *arguments: Any) -> None:
    for _ in steps(*arguments):
        pass


async def _ending(
    producer: TransactionalId, node_id: int, transaction: Transaction, *, is_commit: bool
) -> None:
    """Ask this node, whatever comes of it."""
    transaction.may_commit = is_commit
    with suppress(OSError, TimeoutError):
        await producer.ending(await producer.stage.connection(node_id), is_commit=is_commit)


def a_batch_comes_when_its_transaction_has_ended(stage: Stage) -> None:
    """KIP-890: the producer has heard nothing of it, has aborted the transaction, and goes on. A batch of no
    transaction would keep readers of committed data waiting for ever."""
    stage.create_topic()
    version = stage.rng.choice((1, 2))
    producer = TransactionalId(stage, version=version)
    producer.init()
    first = producer.begin()
    producer.write(first, TOPIC)
    connection = stage.run(stage.connection(stage.leader()))
    batch = producer.batch(first, TOPIC)
    late = producer.producing(connection, TOPIC, batch)
    producer.end(first, is_commit=False)
    code = stage.run(late)
    assert code in (
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ), code
    read_all(stage, TOPIC)
    if version == 1:
        producer.init()  # something is in doubt: the epoch has to rise
    second = producer.begin()
    producer.write(second, TOPIC)
    producer.end(second, is_commit=True)
    read_all(stage, TOPIC)


def a_transaction_ends_while_a_partition_is_verified(stage: Stage) -> None:
    """The coordinator has said that the partition is in it. Before the leader hears that, it is told the end."""
    stage.create_topic()
    producer = TransactionalId(stage)
    producer.init()
    first = producer.begin()
    producer.add(TOPIC)
    batch = producer.batch(first, TOPIC)
    leader = stage.leader()
    connection = stage.run(stage.connection(leader))
    stage.leave_connection(connection)
    with held_verifications() as held:
        producing = stage.begin(producer.producing(connection, TOPIC, batch))
        stage.wait(lambda: bool(held) or producing.done())
        producer.end(first, is_commit=False)
    for answer in held:
        stage.call(leader, answer)
    stage.wait(producing.done)
    assert producing.result() is not ErrorCode.NONE, "a batch is appended to a transaction that has ended"
    read_all(stage, TOPIC)


@contextmanager
def held_verifications() -> Iterator[list[Callable[[], None]]]:
    """What coordinators say of partitions arrives, and is not looked at before somebody calls what is in the list."""
    held: list[Callable[[], None]] = []

    def hold(verify: Callable[..., None]) -> Any:
        def asked(
            self: TransactionVerifier,
            transactional_id: str,
            producer: ProducerIdAndEpoch,
            replicas: Sequence[Replica],
            done: Callable[[Verification], None],
            *,
            is_added: bool,
        ) -> None:
            def answered(verification: Verification) -> None:
                held.append(partial(done, verification))

            verify(self, transactional_id, producer, replicas, answered, is_added=is_added)

        return asked

    with replaced(TransactionVerifier, "verify", hold):
        yield held


def an_end_comes_when_the_next_transaction_has_begun(stage: Stage) -> None:
    """KAFKA-17754: the producer has heard nothing, has asked again by another connection, and goes on."""
    stage.create_topic()
    producer = TransactionalId(stage, version=stage.rng.choice((1, 2)))
    producer.init()
    is_commit = stage.rng.random() < 0.5
    first = producer.begin()
    producer.write(first, TOPIC)
    old = stage.run(producer.connection())
    late = producer.ending(old, is_commit=is_commit)
    stage.leave_connection(old)
    producer.end(first, is_commit=is_commit)
    second = producer.begin()
    producer.write(second, TOPIC)
    owner = producer.owner
    code = stage.run(late)
    assert code is not ErrorCode.NONE, "the second transaction was ended by the end of the first one"
    assert producer.owner == owner
    producer.write(second, TOPIC)
    producer.end(second, is_commit=not is_commit)
    read_all(stage, TOPIC)


def an_end_comes_when_its_coordinator_leads_again(stage: Stage) -> None:
    """KAFKA-17754, and in the next transaction the coordinator is another one for a moment. A seed found it."""
    stage.create_topic()
    producer = TransactionalId(stage)
    producer.init()
    coordinator = producer.coordinator()
    is_commit = stage.rng.random() < 0.5
    first = producer.begin()
    producer.write(first, TOPIC)
    old = stage.run(producer.connection())
    late = producer.ending(old, is_commit=is_commit)
    stage.leave_connection(old)
    producer.end(first, is_commit=is_commit)
    second = producer.begin()
    producer.write(second, TOPIC)
    others = [node_id for node_id in producer.coordinators() if node_id != coordinator]
    producer.coordinate(stage.rng.choice(others))
    producer.coordinate(coordinator)
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with suppress(OSError, TimeoutError):
        code = stage.run(late)
    assert code is not ErrorCode.NONE, "the second transaction was ended by the end of the first one"
    producer.end(second, is_commit=not is_commit)
    read_all(stage, TOPIC)


def a_leader_is_deposed_when_it_has_appended_a_marker(stage: Stage) -> None:
    """Redpanda #5090: records of an aborted transaction were read from the next leader, or from the one before."""
    stage.create_topic()
    producer = TransactionalId(stage)
    producer.init()
    transaction = producer.begin()
    for _ in range(stage.rng.randint(1, 3)):
        producer.write(transaction, TOPIC)
    coordinator, leader = producer.coordinator(), stage.leader()
    if coordinator == leader:
        stage.lead(stage.followers()[0])
        leader = stage.leader()
    # The marker reaches the leader, and nothing leaves it but to clients.
    for other in stage.cluster.node_ids:
        if other != leader:
            stage.cut(leader, other)

    ending = stage.begin(_ending(producer, producer.coordinator(), transaction, is_commit=False))
    stage.run_for(stage.rng.uniform(0.05, 0.5))
    task = stage.begin(_reading(stage, leader))
    stage.wait(lambda: stage.cluster.leader(TOPIC) not in (None, leader))
    stage.run_for(stage.rng.uniform(0.0, 0.5))
    stage.heal()
    read_all(stage, TOPIC)
    stage.wait(lambda: ending.done() and task.done())
    producer.end(transaction, is_commit=False)


async def _reading(stage: Stage, node_id: int) -> None:
    """What a node answers readers of committed data who know of no other leader."""
    with suppress(OSError, TimeoutError):
        for _ in range(5):
            await stage.fetching(node_id)


def a_stale_coordinator_is_asked(stage: Stage) -> None:
    """It is cut off and does not know of its successor, nor what that has decided. Its client comes back to it."""
    stage.create_topic()
    producer = TransactionalId(stage, version=stage.rng.choice((1, 2)))
    producer.init()
    old = producer.coordinator()
    if stage.leader() == old:
        stage.lead(stage.followers()[0])
    if stage.rng.random() < 0.5:
        first = producer.begin()
        producer.write(first, TOPIC)
        producer.end(first, is_commit=True)
    stage.run_for(0.1)
    stage.isolate(old)
    stage.wait(lambda: stage.cluster.leader(*producer.place) not in (None, old))
    if stage.rng.random() < 0.5:
        producer.init()
    second = producer.begin()
    producer.write(second, TOPIC)
    connection = stage.run(stage.connection(old))
    second.may_commit = True
    try:
        code = stage.run(producer.ending(connection, is_commit=True))
    except (OSError, TimeoutError):
        code = ErrorCode.NOT_COORDINATOR
    assert code is ErrorCode.NOT_COORDINATOR, f"a stale coordinator answers {code.name}"
    producer.end(second, is_commit=True)
    stage.heal()
    read_all(stage, TOPIC)


def a_stale_coordinator_consents(stage: Stage) -> None:
    """It does not know of its successor, which has ended the transaction. Nor does the leader of a partition: its
    question is about a batch that comes late."""
    stage.create_topic()
    producer = TransactionalId(stage)
    producer.init()
    old = producer.coordinator()
    if stage.leader() == old:
        stage.lead(stage.followers()[0])
    first = producer.begin()
    producer.write(first, TOPIC)
    producer.end(first, is_commit=True)
    second = producer.begin()
    producer.add(TOPIC)
    batch = producer.batch(second, TOPIC)
    stage.isolate(old)
    stage.wait(lambda: stage.cluster.leader(*producer.place) not in (None, old))
    producer.end(second, is_commit=False)
    leader = stage.leader()
    connection = stage.run(stage.connection(leader))
    with held_questions() as held:
        producing = stage.begin(producer.producing(connection, TOPIC, batch))
        stage.wait(lambda: bool(held) or producing.done())
    for question, answered in held:
        consents: list[JoinedResult | KafkaError] = []
        coordinator = stage.cluster.nodes[old].coordinators.transactions
        stage.call(old, coordinator.join, question, partial(_note, consents))
        stage.wait(partial(bool, consents))
        stage.call(leader, answered, consents[0])
    stage.wait(producing.done)
    assert producing.result() is not ErrorCode.NONE, "a batch is appended to a transaction that has ended"
    stage.heal()
    read_all(stage, TOPIC)


def _note(
    consents: list[JoinedResult | KafkaError], result: JoinedResult | KafkaError, image_end: int
) -> None:
    del image_end
    consents.append(result)


@contextmanager
def held_questions() -> Iterator[list[tuple[JoinTransaction, Callable[[JoinedResult | KafkaError], None]]]]:
    """What leaders of partitions ask coordinators is not sent. It is in the list, with whom to tell the answer."""
    held: list[tuple[JoinTransaction, Callable[[JoinedResult | KafkaError], None]]] = []

    def hold(call_once: Callable[..., None]) -> Any:
        def called(self: ControllerClient, request: Any, done: Callable[..., None], node_id: int) -> None:
            if isinstance(request, JoinTransaction):
                held.append((request, done))
            else:
                call_once(self, request, done, node_id)

        return called

    with replaced(ControllerClient, "call_once", hold):
        yield held


def a_coordinator_dies_in_a_transaction(stage: Stage) -> None:
    """Redpanda #6019: an acknowledged write was lost, because that the transaction had begun was in memory only."""
    stage.create_topic()
    producer = TransactionalId(stage, version=stage.rng.choice((1, 2)))
    producer.init()
    transaction = producer.begin()
    producer.write(transaction, TOPIC)
    coordinator = producer.coordinator()
    stage.cluster.kill(coordinator)
    stage.run_for(stage.rng.uniform(0.0, 0.3))
    if stage.rng.random() < 0.5:
        stage.cluster.start(coordinator)
    stage.wait(lambda: stage.cluster.leader(*producer.place) is not None)
    producer.write(transaction, TOPIC)
    producer.end(transaction, is_commit=True)
    assert transaction.is_committed or stage.waited(lambda: bool(transaction.is_committed), 5.0)
    assert transaction.sent.keys() == transaction.ended.keys()
    read_all(stage, TOPIC)


def leaders_change_while_a_transaction_is_committed(stage: Stage) -> None:
    """Bufstream: acknowledged writes were lost in healthy clusters, and consumers and producers got stuck."""
    stage.create_topic()
    producer = TransactionalId(stage, version=stage.rng.choice((1, 2)))
    producer.init()
    for number in range(5):
        transaction = producer.begin()
        producer.write(transaction, TOPIC)
        stage.lead(stage.followers()[0])
        producer.write(transaction, TOPIC)
        producer.end(transaction, is_commit=number % 2 == 0)
        producer.coordinate(stage.rng.choice(producer.coordinators()))
    read_all(stage, TOPIC)
