"""Acknowledgements leave when everything below their bound is promised, in the order in which they came."""

from __future__ import annotations

from broker.replication.waits import AckQueue
from protocol.errors import ErrorCode

OK = ErrorCode.NONE
GONE = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Produces:
    """Writes down who was answered what; a slot is a request here."""

    def __init__(self) -> None:
        self.queue = AckQueue()
        self.answers: list[tuple[int, ErrorCode]] = []
        #: Waits to add when a slot is answered: (bound, slot) by slot.
        self.then: dict[int, tuple[int, int]] = {}

    def add(self, *waits: tuple[int, int]) -> None:
        for end_offset, slot in waits:
            self.queue.add(end_offset, self, slot)

    def partition_done(self, slot: int, error: ErrorCode) -> None:
        self.answers.append((slot, error))
        if slot in self.then:
            self.add(self.then.pop(slot))


def test_a_wait_ends_when_all_below_its_bound_is_there_and_not_before() -> None:
    produces = Produces()
    produces.add((10, 1), (20, 2))
    produces.queue.release(9)
    assert produces.answers == []
    produces.queue.release(10)
    assert produces.answers == [(1, OK)]
    assert produces.queue
    produces.queue.release(30)
    assert produces.answers == [(1, OK), (2, OK)]
    assert not produces.queue


def test_nobody_is_answered_twice() -> None:
    produces = Produces()
    produces.add((10, 1))
    produces.queue.release(10)
    produces.queue.release(20)
    produces.queue.fail(GONE)
    assert produces.answers == [(1, OK)]


def test_a_repeated_batch_is_not_answered_before_those_that_came_before_it() -> None:
    """Its records lie lower, but a connection's answers go in the order of its requests, and nothing may be answered
    from the middle: the bounds have to rise."""
    produces = Produces()
    produces.add((20, 1), (10, 2), (30, 3))
    produces.queue.release(10)
    assert produces.answers == []
    produces.queue.release(20)
    assert produces.answers == [(1, OK), (2, OK)]


def test_a_lost_leadership_fails_everybody_in_order() -> None:
    produces = Produces()
    produces.add((10, 1), (20, 2), (30, 3))
    produces.queue.release(10)
    produces.queue.fail(GONE)
    assert produces.answers == [(1, OK), (2, GONE), (3, GONE)]
    assert not produces.queue


def test_a_refused_write_fails_those_above_what_is_in_the_log_and_no_others() -> None:
    produces = Produces()
    produces.add((10, 1), (20, 2), (30, 3))
    produces.queue.fail(ErrorCode.KAFKA_STORAGE_ERROR, above_offset=20)
    assert produces.answers == [(3, ErrorCode.KAFKA_STORAGE_ERROR)]
    produces.queue.release(20)
    assert produces.answers[1:] == [(1, OK), (2, OK)]


def test_a_refused_write_is_not_hidden_by_a_repeated_batch_behind_it() -> None:
    produces = Produces()
    produces.add((10, 1), (30, 2), (10, 3))
    produces.queue.fail(ErrorCode.KAFKA_STORAGE_ERROR, above_offset=20)
    assert (2, ErrorCode.KAFKA_STORAGE_ERROR) in produces.answers
    produces.queue.release(20)
    assert (1, OK) in produces.answers
    assert not produces.queue


def test_whoever_is_answered_may_wait_again() -> None:
    produces = Produces()
    produces.then = {1: (15, 4), 2: (25, 5)}
    produces.add((10, 1))
    produces.queue.release(10)
    assert produces.answers == [(1, OK)]
    produces.add((20, 2))
    produces.queue.fail(GONE)
    assert produces.answers == [(1, OK), (4, GONE), (2, GONE)]
    produces.queue.release(25)
    assert produces.answers[3:] == [(5, OK)]
