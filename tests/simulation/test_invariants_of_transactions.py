"""Each invariant of transactions bites, and keeps quiet where nothing is wrong."""

from __future__ import annotations

from uuid import UUID

import pytest

from protocol.records.batch import BatchHeader, parse_header
from protocol.records.builder import NewRecord, build_batch
from protocol.records.control import Marker, build_marker
from storage.log_types import GroupKey
from tests.simulator.invariants.exactly_once import ExactlyOnce, Work
from tests.simulator.invariants.fenced_never_writes import NOBODY, FencedNeverWrites, Owner
from tests.simulator.invariants.offsets_never_back import Committed
from tests.simulator.invariants.only_committed_is_read import OnlyCommittedIsRead
from tests.simulator.invariants.transactions_are_atomic import Transaction, TransactionsAreAtomic
from tests.simulator.invariants.watermarks_monotone import WatermarksMonotone

KEY, OTHER = GroupKey(UUID(int=1), 0), GroupKey(UUID(int=1), 1)
PLACE = Committed("g", "t", 0)
PRODUCER = 7
COMMIT, ABORT = Marker(True, 0), Marker(False, 0)


def data_at(offset: int, *, epoch: int = 0) -> BatchHeader:
    batch = build_batch(
        [NewRecord(None, b"", 1)],
        base_offset=offset,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    )
    return parse_header(batch)


def marker_at(offset: int, marker: Marker, *, epoch: int = 0) -> BatchHeader:
    return parse_header(build_marker(PRODUCER, epoch, marker, 1))._replace(base_offset=offset)


class World:
    """One transaction, with a batch in each of two partitions."""

    def __init__(self) -> None:
        self.transactions = TransactionsAreAtomic()
        self.reads = OnlyCommittedIsRead(self.transactions)
        self.transaction = self.begin("x/1")

    def begin(self, name: str) -> Transaction:
        transaction = self.transactions.begin(name)
        for key in (KEY, OTHER):
            digest = f"{name} {key.partition}".encode()
            self.transactions.sent(transaction, digest)
            self.transactions.batch_committed(key, data_at(0), digest, None)
        return transaction

    def end(self, key: GroupKey, marker: Marker) -> None:
        self.transactions.batch_committed(key, marker_at(1, marker), b"", marker)


@pytest.fixture
def world() -> World:
    return World()


def test_what_was_committed_and_told_is_whole(world: World) -> None:
    world.transaction.may_commit = True
    world.end(KEY, COMMIT)
    world.end(OTHER, COMMIT)
    world.transactions.told(world.transaction, is_commit=True)
    world.reads.given(KEY, data_at(0))
    world.reads.told_stable(KEY, 2, 0)
    world.transactions.check_all_ended([KEY, OTHER])


def test_a_torn_transaction_is_noticed(world: World) -> None:
    world.transaction.may_commit = True
    world.end(KEY, COMMIT)
    with pytest.raises(AssertionError, match="committed in part"):
        world.end(OTHER, ABORT)


def test_a_commit_that_nobody_asked_for_is_noticed(world: World) -> None:
    with pytest.raises(AssertionError, match="never asked"):
        world.end(KEY, COMMIT)


def test_an_answer_that_is_not_so_is_noticed(world: World) -> None:
    world.transaction.may_commit = True
    world.transactions.told(world.transaction, is_commit=True)
    with pytest.raises(AssertionError, match="was told True"):
        world.end(KEY, ABORT)


def test_a_transaction_that_stays_open_is_noticed(world: World) -> None:
    world.end(KEY, ABORT)
    with pytest.raises(AssertionError, match="open transactions"):
        world.transactions.check_all_ended([KEY, OTHER])


def test_a_batch_that_is_missing_in_a_committed_transaction_is_noticed(world: World) -> None:
    world.transaction.may_commit = True
    world.transactions.sent(world.transaction, b"lost")
    world.end(KEY, COMMIT)
    world.end(OTHER, COMMIT)
    with pytest.raises(AssertionError, match="1 batches are not"):
        world.transactions.check_all_ended([KEY, OTHER])


def test_aborted_reads_are_noticed(world: World) -> None:
    with pytest.raises(AssertionError, match="is read, its transaction is open"):
        world.reads.given(KEY, data_at(0))
    world.end(KEY, ABORT)
    world.reads.left_out(KEY, data_at(0))
    with pytest.raises(AssertionError, match="is read, its transaction is aborted"):
        world.reads.given(KEY, data_at(0))


def test_committed_records_that_are_left_out_are_noticed(world: World) -> None:
    world.transaction.may_commit = True
    world.end(KEY, COMMIT)
    with pytest.raises(AssertionError, match="is left out"):
        world.reads.left_out(KEY, data_at(0))


def test_a_stable_offset_above_an_open_transaction_is_noticed(world: World) -> None:
    world.reads.told_stable(KEY, 0, 0)
    with pytest.raises(AssertionError, match="stable below 1"):
        world.reads.told_stable(KEY, 1, 0)


def test_a_stable_offset_that_goes_back_is_noticed() -> None:
    watermarks = WatermarksMonotone()
    watermarks.shown(KEY, 3, watermarks.floor(KEY, 3), last_stable=5)
    watermarks.shown(KEY, 2, watermarks.floor(KEY, 2), last_stable=4)  # an older leader knows less
    with pytest.raises(AssertionError, match="goes back from 5 to 4"):
        watermarks.shown(KEY, 4, watermarks.floor(KEY, 4), last_stable=4)


def test_who_is_fenced_and_writes_is_noticed() -> None:
    fencing = FencedNeverWrites()
    fencing.got("x", NOBODY, Owner(PRODUCER, 0))
    fencing.acknowledged(fencing.owner("x"), Owner(PRODUCER, 0))
    fencing.got("x", fencing.owner("x"), Owner(PRODUCER, 1))
    with pytest.raises(AssertionError, match="is fenced"):
        fencing.acknowledged(fencing.owner("x"), Owner(PRODUCER, 0))
    with pytest.raises(AssertionError, match="is followed by"):
        fencing.got("x", fencing.owner("x"), Owner(PRODUCER, 1))


def test_epochs_that_go_back_in_a_log_are_noticed() -> None:
    fencing = FencedNeverWrites()
    fencing.batch_committed(KEY, data_at(0, epoch=2), None)
    fencing.batch_committed(KEY, marker_at(1, Marker(True, 5), epoch=2), Marker(True, 5))
    with pytest.raises(AssertionError, match="coordinator epoch 4"):
        fencing.batch_committed(KEY, marker_at(2, Marker(True, 4), epoch=2), Marker(True, 4))
    with pytest.raises(AssertionError, match="has epoch 1"):
        fencing.batch_committed(KEY, data_at(2, epoch=1), None)


def test_work_that_is_done_twice_or_not_at_all_is_noticed() -> None:
    transactions = TransactionsAreAtomic()
    once = ExactlyOnce(transactions)
    for number, (start, end) in enumerate(((0, 3), (3, 5))):
        transaction = transactions.begin(f"x/{number}")
        transaction.may_commit = True
        once.sent(PLACE, Work(start, end, transaction))
        once.fetched(PLACE, once.floor(PLACE), end, transaction.name)
    once.ended(PLACE, 5)
    once.check()
    once.ended(PLACE, 3)
    with pytest.raises(AssertionError, match="committed is 3"):
        once.check()
    again = transactions.begin("x/2")
    again.may_commit = again.is_committed = True
    once.sent(PLACE, Work(3, 6, again))
    with pytest.raises(AssertionError, match="goes on from 3"):
        once.check()


def test_an_offset_of_a_transaction_that_was_not_to_be_committed_is_noticed() -> None:
    transactions = TransactionsAreAtomic()
    once = ExactlyOnce(transactions)
    transaction = transactions.begin("x/1")
    once.sent(PLACE, Work(0, 3, transaction))
    with pytest.raises(AssertionError, match="never asked"):
        once.fetched(PLACE, once.floor(PLACE), 3, "x/1")
