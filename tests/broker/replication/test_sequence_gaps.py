"""A batch with a gap before it is refused once, because those before it may be under way."""

from __future__ import annotations

import pytest

from broker.replication.sequence_gaps import REMEMBERED_S, SequenceGaps
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader, parse_header
from protocol.records.builder import NewRecord, build_batch
from storage.producer_state import BATCHES_KEPT, Gap
from tests.broker.asking import produce_one
from tests.broker.world import running

NOW = 1000.0
OUT_OF_ORDER = KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def _header(sequence: int, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return parse_header(
        build_batch(
            [NewRecord(None, b"a", 1)], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
    )


def _answer(
    gaps: SequenceGaps, sequence: int, epoch: int = 0, producer_id: int = 7, error: KafkaError | None = None
) -> ErrorCode:
    """To a batch that comes in and has a gap before it."""
    header = _header(sequence, epoch, producer_id)
    gaps.arrived(header)
    try:
        gaps.refuse_once(header, Gap(0, error), NOW)
    except KafkaError as refused:
        return refused.code
    return ErrorCode.NONE


def test_it_is_refused_once_and_then_kafkas_rule_applies() -> None:
    gaps = SequenceGaps()
    assert _answer(gaps, 5) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert _answer(gaps, 5) == ErrorCode.NONE
    assert _answer(gaps, 5, producer_id=8, error=OUT_OF_ORDER) == ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        code = _answer(gaps, 5, producer_id=8, error=OUT_OF_ORDER)
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_all_that_are_under_way_are_refused_once_each() -> None:
    gaps = SequenceGaps()
    for sequence in range(5, 10):
        assert _answer(gaps, sequence) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert _answer(gaps, 5) == ErrorCode.NONE


def test_one_that_comes_behind_another_is_not_the_oldest_of_its_client() -> None:
    gaps = SequenceGaps()
    assert _answer(gaps, 5) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert _answer(gaps, 6) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert _answer(gaps, 4) == ErrorCode.NOT_ENOUGH_REPLICAS, "this is what was missing, and refused as well"
    assert _answer(gaps, 5) == ErrorCode.NOT_ENOUGH_REPLICAS, "4 is known to exist"
    assert _answer(gaps, 4) == ErrorCode.NONE


def test_a_batch_that_arrived_counts_whatever_becomes_of_it() -> None:
    gaps = SequenceGaps()
    assert _answer(gaps, 5) == ErrorCode.NOT_ENOUGH_REPLICAS
    gaps.arrived(_header(4))
    assert _answer(gaps, 5) == ErrorCode.NOT_ENOUGH_REPLICAS


def test_sequences_wrap() -> None:
    gaps = SequenceGaps()
    assert _answer(gaps, 1) == ErrorCode.NOT_ENOUGH_REPLICAS
    gaps.arrived(_header(2**31 - 1))
    assert _answer(gaps, 1) == ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("epochs", [(0, 1), (1, 0)])
def test_each_epoch_is_refused_for_itself(epochs: tuple[int, int]) -> None:
    gaps = SequenceGaps()
    first, second = epochs
    assert _answer(gaps, 5, first) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert _answer(gaps, 5, second) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert _answer(gaps, 5, second) == ErrorCode.NONE


def test_what_is_remembered_of_a_producer_is_bounded() -> None:
    gaps = SequenceGaps()
    for sequence in range(100, 110):
        assert _answer(gaps, sequence) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert _answer(gaps, 100 + BATCHES_KEPT) == ErrorCode.NOT_ENOUGH_REPLICAS, "not remembered"
    assert _answer(gaps, 100 + BATCHES_KEPT - 1) == ErrorCode.NONE
    assert len(gaps) == 1


def test_a_batch_that_is_appended_and_the_end_of_the_leadership_forget() -> None:
    gaps = SequenceGaps()
    for producer_id in (7, 8):
        assert _answer(gaps, 5, producer_id=producer_id) == ErrorCode.NOT_ENOUGH_REPLICAS
    gaps.appended(7)
    assert len(gaps) == 1
    assert _answer(gaps, 5) == ErrorCode.NOT_ENOUGH_REPLICAS
    gaps.clear()
    assert len(gaps) == 0


def test_producers_that_do_not_come_back_are_forgotten() -> None:
    gaps = SequenceGaps()
    assert _answer(gaps, 5) == ErrorCode.NOT_ENOUGH_REPLICAS
    gaps.expire(NOW + REMEMBERED_S)
    assert len(gaps) == 1
    gaps.expire(NOW + REMEMBERED_S + 1)
    assert len(gaps) == 0


def test_frequent_checks_of_retention_do_not_refuse_a_producer_for_ever() -> None:
    """Seeds 304837103618 and 304837103620: its client waited for longer than the time between two checks."""
    with running(settings={"log.retention.check.interval.ms": "100"}) as world:
        world.create_topic("foo")
        assert produce_one(world, "foo", 7, 3).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        world.loop.run_for(1.0)
        assert produce_one(world, "foo", 7, 3).error_code == ErrorCode.NONE


def test_what_the_new_leader_gets_first_is_not_accepted_before_what_is_under_way_to_the_old_one() -> None:
    """Accepted, it would cost librdkafka's client the batch before: it takes that for acknowledged, too."""
    with running() as world:
        world.create_topic("foo")
        for sequence in (1, 2):
            answer = produce_one(world, "foo", 7, sequence)
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert (
                answer.error_message
                == f"producer 7 sent sequence {sequence} before 0, which may be under way"
            )
        for sequence in range(3):
            answer = produce_one(world, "foo", 7, sequence)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, sequence)
        assert len(world.replica(world.leader("foo"), "foo").gaps) == 0


def test_a_batch_that_was_refused_for_another_reason_came_before_those_behind_it() -> None:
    with running() as world:
        world.create_topic("foo", configs={"min.insync.replicas": "3"})
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")

        def in_sync() -> int:
            return len(replica.group.in_sync(replica.host.now(), replica.host.replica_lag_time_max_s))

        world.wait(lambda: in_sync() == 3)
        assert produce_one(world, "foo", 7, 0).error_code == ErrorCode.NONE
        assert produce_one(world, "foo", 7, 2).error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "1 is missing"
        away = next(node_id for node_id in world.ids if node_id != leader)
        world.kill(away)
        world.wait(lambda: in_sync() == 2)
        refused = produce_one(world, "foo", 7, 1)
        assert (refused.error_code, refused.error_message) == (ErrorCode.NOT_ENOUGH_REPLICAS, None)
        world.start(away)
        world.wait(lambda: in_sync() == 3)
        assert produce_one(world, "foo", 7, 2).error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "1 comes again"
        assert produce_one(world, "foo", 7, 1).base_offset == 1
        assert produce_one(world, "foo", 7, 2).base_offset == 2


def test_a_topic_that_was_created_anew_takes_a_producer_where_it_is() -> None:
    with running() as world:
        world.create_topic("foo")
        for sequence in range(3):
            assert produce_one(world, "foo", 7, sequence).error_code == ErrorCode.NONE
        world.delete_topic("foo")
        world.create_topic("foo")
        assert produce_one(world, "foo", 7, 3).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        answer = produce_one(world, "foo", 7, 3)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


def test_a_new_leader_refuses_anew() -> None:
    with running() as world:
        world.create_topic("foo")
        assert produce_one(world, "foo", 7, 3).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        world.kill(world.leader("foo"))
        assert produce_one(world, "foo", 7, 3).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert produce_one(world, "foo", 7, 3).error_code == ErrorCode.NONE
