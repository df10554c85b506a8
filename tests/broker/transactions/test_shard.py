"""Decisions about transactional ids, who waits for what, and what happens with time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.coordinator.memory import CoordinatorMemory
from broker.coordinator.outcome import Outcome
from broker.coordinator.ticket import Ticket
from broker.transactions.metadata import (
    EXHAUSTED_EPOCH,
    ID_BYTES,
    MAX_EPOCH,
    PARTITION_BYTES,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionMetadata,
    new_metadata,
)
from broker.transactions.records import TransactionRecord, decode, encode
from broker.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    TransactionAnswer,
    TransactionRequest,
    refusal,
)
from broker.transactions.shard import MAX_PARKED, PARKED_S, WRITTEN_AFTER_S, TransactionShard
from broker.transactions.states import TransactionState
from protocol.errors import ErrorCode, KafkaError

TIMEOUT_S = 60
NOW_MS = 1_700_000_000_000
FOO = TopicPartition("foo", 0)


class Driver:
    """Carries a shard's outcomes out as the runtime does, committed at once."""

    def __init__(self, max_ids: int = 100) -> None:
        self.now = 100.0
        #: Whose markers were ordered.
        self.prepared: list[TransactionMetadata] = []
        self.log: list[TransactionRecord] = []
        self.shard = TransactionShard(
            lambda shard, metadata: self.prepared.append(metadata),
            CoordinatorMemory(max_ids * (ID_BYTES + 2) + PARTITION_BYTES, lambda: self.shard.size_bytes),
        )

    @property
    def now_ms(self) -> int:
        return NOW_MS + int(self.now * 1000)

    def carry_out(self, key: str, outcome: Outcome[TransactionRecord]) -> None:
        for record in outcome.records:
            stored_key, value = encode(record)
            stored = decode(memoryview(stored_key), None if value is None else memoryview(value))
            assert stored == record
            self.shard.replay(record)
            self.log.append(record)
        for ticket, answer in outcome.answers:
            ticket.answer(answer)
        self.shard.update_deadline(key)

    def ask(self, request: TransactionRequest) -> list[TransactionAnswer]:
        """The list gets the answer."""
        answers: list[TransactionAnswer] = []
        ticket: Ticket[TransactionAnswer] = Ticket(answers.append, refusal)
        self._decide(ticket, request)
        return answers

    def _decide(self, ticket: Ticket[TransactionAnswer], request: TransactionRequest) -> None:
        try:
            outcome = self.shard.decide(ticket, request, self.now, self.now_ms)
        except KafkaError as error:
            ticket.answer(refusal(error.code))
            return
        self.carry_out(request.transactional_id, outcome)

    def complete(self, key: str = "id") -> None:
        completion = self.shard.complete(key, self.now, self.now_ms)
        self.shard.update_deadline(key)
        for ticket in completion.ended_by:
            ticket.answer(completion.answer)
        for ticket, request in completion.waiting:
            self._decide(ticket, request)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for key in self.shard.take_due_keys(self.now, 1000):
            self.carry_out(key, self.shard.expire(key, self.now, self.now_ms))

    def init(
        self, expected: ProducerIdAndEpoch | None = None, new_producer_id: int = 1
    ) -> list[TransactionAnswer]:
        return self.ask(InitProducer("id", expected, TIMEOUT_S * 1000, new_producer_id))

    def add(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition) -> list[TransactionAnswer]:
        return self.ask(AddPartitions("id", producer, partitions or (FOO,), 0))

    def end(
        self, producer: ProducerIdAndEpoch, *, is_commit: bool = True, version: int = 0, new: int = -1
    ) -> list[TransactionAnswer]:
        return self.ask(EndTransaction("id", producer, is_commit, version, new))

    @property
    def state(self) -> TransactionState:
        metadata = self.shard.get("id")
        assert metadata is not None
        return metadata.state


def producer_of(answers: list[TransactionAnswer]) -> ProducerIdAndEpoch:
    (answer,) = answers
    assert answer.error == ErrorCode.NONE
    return answer.producer


def errors_of(answers: list[TransactionAnswer]) -> list[ErrorCode]:
    return [answer.error for answer in answers]


def test_only_init_makes_an_id() -> None:
    driver, nobody = Driver(), ProducerIdAndEpoch(1, 0)
    for answers in (driver.add(nobody), driver.end(nobody)):
        assert errors_of(answers) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert producer_of(driver.init(new_producer_id=7)) == (7, 0)
    assert driver.log[-1].metadata is not None


def test_the_leader_of_a_partition_does_not_wait_for_markers() -> None:
    """One of them may be for that partition. What the leader has seen of the producer would be out of date then, and
    the new transaction could only be aborted."""
    driver = Driver()
    producer = producer_of(driver.init())
    driver.add(producer)
    driver.end(producer)
    waiting = driver.add(producer)
    joining = driver.ask(AddPartitions("id", producer, (FOO,), 0, may_wait=False))
    assert (waiting, errors_of(joining)) == ([], [ErrorCode.CONCURRENT_TRANSACTIONS])


def test_an_end_is_answered_when_the_markers_are_committed() -> None:
    driver = Driver()
    producer = producer_of(driver.init())
    driver.add(producer)
    answers = driver.end(producer)
    assert [each.state for each in driver.prepared] == [TransactionState.PREPARE_COMMIT]
    assert answers == []
    driver.complete()
    assert producer_of(answers) == producer
    assert driver.state is TransactionState.COMPLETE_COMMIT


def test_a_completed_transaction_is_written_down_unless_the_next_one_begins() -> None:
    driver = Driver()
    producer = producer_of(driver.init())
    for _ in range(3):
        driver.add(producer)
        driver.end(producer)
        driver.complete()
        assert driver.state is TransactionState.COMPLETE_COMMIT
    states = [record.metadata.state for record in driver.log if record.metadata is not None]
    ongoing, prepared = TransactionState.ONGOING, TransactionState.PREPARE_COMMIT
    assert states == [TransactionState.EMPTY, *[ongoing, prepared] * 3]
    driver.advance(WRITTEN_AFTER_S)
    assert driver.log[-1].metadata is not None
    assert driver.log[-1].metadata.state is TransactionState.COMPLETE_COMMIT
    driver.advance(10 * WRITTEN_AFTER_S)
    assert len(driver.log) == len(states) + 1, "once"


def test_an_end_is_answered_after_a_while_although_a_marker_is_missing() -> None:
    driver = Driver()
    producer = producer_of(driver.init())
    driver.add(producer)
    ended = driver.end(producer)
    following = driver.add(producer)
    driver.advance(PARKED_S)
    assert errors_of(ended) == [ErrorCode.NONE]
    assert errors_of(following) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert driver.state is TransactionState.PREPARE_COMMIT, "it is decided, and the markers are still wanted"
    driver.complete()
    assert driver.state is TransactionState.COMPLETE_COMMIT


def test_the_next_transaction_begins_when_the_markers_of_the_one_before_are_committed() -> None:
    driver = Driver()
    producer = producer_of(driver.init())
    driver.add(producer)
    driver.end(producer)
    following = driver.add(producer)
    assert following == []
    driver.complete()
    assert errors_of(following) == [ErrorCode.NONE]
    assert driver.state is TransactionState.ONGOING


def test_a_new_producer_has_the_open_transaction_aborted_and_fences_its_producer() -> None:
    driver = Driver()
    old = producer_of(driver.init())
    driver.add(old)
    taken_over = driver.init()
    assert [each.state for each in driver.prepared] == [TransactionState.PREPARE_ABORT]
    assert driver.prepared[0].epoch == old.epoch + 1, "the markers fence the old producer's batches"
    assert taken_over == []
    driver.complete()
    assert producer_of(taken_over) == (old.producer_id, old.epoch + 2)
    assert errors_of(driver.end(old)) == [ErrorCode.PRODUCER_FENCED]


def test_a_transaction_is_aborted_at_its_timeout_and_its_producer_is_fenced() -> None:
    driver = Driver()
    producer = producer_of(driver.init())
    driver.add(producer)
    driver.advance(TIMEOUT_S - 1)
    driver.add(producer, TopicPartition("bar", 0))
    assert driver.state is TransactionState.ONGOING
    driver.advance(1)
    assert driver.state is TransactionState.PREPARE_ABORT, "a further partition gives no more time"
    assert len(driver.prepared) == 1
    driver.complete()
    assert errors_of(driver.end(producer)) == [ErrorCode.PRODUCER_FENCED]
    driver.advance(10 * TIMEOUT_S)
    assert driver.state is TransactionState.COMPLETE_ABORT


def test_the_next_transaction_has_a_timeout_of_its_own() -> None:
    driver = Driver()
    producer = producer_of(driver.init())
    driver.add(producer)
    driver.advance(TIMEOUT_S - 1)
    driver.end(producer)
    driver.complete()
    driver.add(producer)
    driver.advance(TIMEOUT_S - 1)
    assert driver.state is TransactionState.ONGOING


@pytest.mark.parametrize("wall_clock_s", [-1_000_000, 0, TIMEOUT_S // 2, 1_000_000])
def test_a_loaded_transaction_gets_at_most_its_timeout_whatever_the_wall_clock_says(
    wall_clock_s: int,
) -> None:
    before = Driver()
    before.add(producer_of(before.init()))
    after = Driver()
    for record in before.log:
        after.shard.replay(record)
    list(after.shard.loaded(after.now, before.now_ms + wall_clock_s * 1000))
    left_s = TIMEOUT_S - min(max(wall_clock_s, 0), TIMEOUT_S)
    if left_s > 1:
        after.advance(left_s - 1)
        assert after.state is TransactionState.ONGOING
    after.advance(1)
    assert after.state is TransactionState.PREPARE_ABORT


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_shard_that_is_loaded_writes_the_markers_of_decided_transactions_again(is_commit: bool) -> None:
    before = Driver()
    producer = producer_of(before.init())
    before.add(producer)
    before.end(producer, is_commit=is_commit)
    after = Driver()
    for record in before.log:
        after.shard.replay(record)
    list(after.shard.loaded(after.now, after.now_ms))
    assert [each.is_commit for each in after.prepared] == [is_commit]
    after.complete()


def test_version_2_raises_the_epoch_with_each_end_and_knows_retries() -> None:
    driver = Driver()
    producer = producer_of(driver.init())
    driver.add(producer)
    first = driver.end(producer, version=2)
    again = driver.end(producer, version=2)
    driver.complete()
    bumped = ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    assert producer_of(first) == bumped
    assert producer_of(again) == bumped
    assert producer_of(driver.end(producer, version=2)) == bumped, "a retry after completion"
    assert driver.prepared[0].epoch == bumped.epoch, "the marker fences what is still on its way"
    # An abort without a transaction raises the epoch, without markers.
    assert producer_of(driver.end(bumped, is_commit=False, version=2)).epoch == bumped.epoch + 1
    assert len(driver.prepared) == 1


def test_exhausted_epochs_give_a_new_producer_id() -> None:
    driver = Driver()
    producer = producer_of(driver.init(new_producer_id=1))
    while producer.epoch < EXHAUSTED_EPOCH - 1:
        producer = producer_of(driver.end(producer, is_commit=False, version=2))
    producer = producer_of(driver.init())
    assert producer.epoch == EXHAUSTED_EPOCH
    driver.add(producer)
    answers = driver.end(producer, version=2, new=2)
    assert driver.prepared[-1].producer == (1, EXHAUSTED_EPOCH + 1), "one epoch is left for the marker"
    driver.complete()
    assert producer_of(answers) == (2, 0)
    assert producer_of(driver.end(producer, version=2, new=3)) == (2, 0), "a retry"
    assert producer_of(driver.init(expected=producer, new_producer_id=4)) == (2, 0), "a retry, too"
    assert producer_of(driver.init(new_producer_id=5)) == (2, 1)


def test_init_with_exhausted_epochs_gives_a_new_producer_id_and_knows_its_retry() -> None:
    driver = Driver()
    producer = producer_of(driver.init(new_producer_id=1))
    while producer.epoch < EXHAUSTED_EPOCH:
        producer = producer_of(driver.init(expected=producer))
    assert producer_of(driver.init(expected=producer, new_producer_id=2)) == (2, 0)
    assert producer_of(driver.init(expected=producer, new_producer_id=3)) == (2, 0)


def test_init_of_a_producer_is_known_as_a_retry_until_another_producer_comes() -> None:
    driver = Driver()
    first = producer_of(driver.init())
    bumped = producer_of(driver.init(expected=first))
    assert producer_of(driver.init(expected=first)) == bumped
    assert producer_of(driver.init()).epoch == bumped.epoch + 1
    assert errors_of(driver.init(expected=first)) == [ErrorCode.PRODUCER_FENCED]
    assert errors_of(driver.init(expected=bumped)) == [ErrorCode.PRODUCER_FENCED]


def test_a_zombie_does_not_abort_its_successors_transaction() -> None:
    driver = Driver()
    zombie = producer_of(driver.init())
    successor = producer_of(driver.init())
    driver.add(successor)
    assert errors_of(driver.init(expected=zombie)) == [ErrorCode.PRODUCER_FENCED]
    assert driver.state is TransactionState.ONGOING


def test_only_so_many_requests_wait() -> None:
    driver = Driver()
    producer = producer_of(driver.init())
    driver.add(producer)
    driver.end(producer)
    waiting = [driver.add(producer) for _ in range(2 * MAX_PARKED)]
    assert errors_of(waiting[-1]) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert waiting.count([]) == MAX_PARKED - 1
    driver.complete()
    assert all(waiting)


def test_memory_is_bounded_and_ids_expire_when_nothing_is_open() -> None:
    driver = Driver(max_ids=2)
    for name in ("a", "b"):
        assert producer_of(driver.ask(InitProducer(name, None, 1000, 1)))
    assert errors_of(driver.ask(InitProducer("c", None, 1000, 1))) == [ErrorCode.POLICY_VIOLATION]
    both = [FOO, TopicPartition("foo", 1)]
    owner = ProducerIdAndEpoch(1, 0)
    assert errors_of(driver.ask(AddPartitions("b", owner, both, 0))) == [ErrorCode.POLICY_VIOLATION]
    assert errors_of(driver.ask(AddPartitions("b", owner, [FOO], 0))) == [ErrorCode.NONE]
    for name in ("a", "b", "never was"):
        driver.carry_out(name, driver.shard.expire_id(5_000, driver.now_ms + 5_000, name))
    assert driver.shard.ids() == ["b"]
    assert producer_of(driver.ask(InitProducer("c", None, 1000, 1)))


def test_records_of_version_0_are_read() -> None:
    key = b"\0\0" + b"\0\2id"
    value = (
        b"\0\0" + (5).to_bytes(8, "big") + (3).to_bytes(2, "big") + (1000).to_bytes(4, "big") + b"\1"
        b"\0\0\0\1"
        b"\0\3foo"
        b"\0\0\0\1"
        b"\0\0\0\0" + (7).to_bytes(8, "big") + (6).to_bytes(8, "big")
    )
    record = decode(memoryview(key), memoryview(value))
    assert record is not None
    metadata: Any = record.metadata
    assert (metadata.producer, metadata.state, metadata.partitions) == (
        (5, 3),
        TransactionState.ONGOING,
        {FOO},
    )
    assert (metadata.updated_ms, metadata.started_ms, metadata.last_epoch) == (7, 6, -1)


def _with_last_epoch_but_one() -> Driver:
    driver = Driver()
    driver.shard.replay(
        TransactionRecord("id", replace(new_metadata("id", 1, 60_000, driver.now_ms), epoch=EXHAUSTED_EPOCH))
    )
    return driver


@pytest.mark.parametrize("version", [0, 2])
def test_nobody_gets_in_with_the_epoch_that_fenced_the_last_producer(version: int) -> None:
    driver = _with_last_epoch_but_one()
    assert driver.add(ProducerIdAndEpoch(1, EXHAUSTED_EPOCH))[0].error == ErrorCode.NONE
    driver.advance(TIMEOUT_S + 1)
    driver.complete()
    guessed = ProducerIdAndEpoch(1, MAX_EPOCH)
    fenced = driver.shard.get("id")
    assert fenced is not None and fenced.producer == guessed
    assert driver.ask(AddPartitions("id", guessed, [FOO], version))[0].error == ErrorCode.PRODUCER_FENCED
    ended = driver.end(guessed, is_commit=False, version=version, new=9)
    assert ended[0].error == ErrorCode.PRODUCER_FENCED
    assert driver.init(new_producer_id=9)[0].producer == ProducerIdAndEpoch(9, 0)


def test_a_transaction_of_the_last_epoch_that_a_log_holds_is_aborted() -> None:
    driver = _with_last_epoch_but_one()
    metadata = driver.shard.get("id")
    assert metadata is not None
    opened = replace(
        metadata,
        epoch=MAX_EPOCH,
        state=TransactionState.ONGOING,
        started_ms=driver.now_ms,
        partitions=frozenset([FOO]),
    )
    driver.shard.replay(TransactionRecord("id", opened))
    for _ in driver.shard.loaded(driver.now, driver.now_ms):
        pass
    driver.advance(TIMEOUT_S + 1)
    driver.complete()
    assert driver.state is TransactionState.COMPLETE_ABORT
