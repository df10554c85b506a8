"""What is refused, and what only looks like it: logs that differ are the everyday business of Raft."""

from __future__ import annotations

import pytest

from broker.replication.message_checks import ContradictionError, check_batches
from broker.replication.ranges import Batches
from broker.replication.replica import Replica
from broker.replication.wire import row_from_wire
from protocol import peer
from tests.broker.world import World, running


def _follower(world: World) -> Replica:
    """Its log ends with a batch of three records."""
    world.create_topic("t")
    world.produce("t", b"one", b"two", b"three")
    world.wait_equal("t")
    leader = world.leader("t")
    return world.replica(next(node_id for node_id in world.ids if node_id != leader), "t")


def _new_term_inside_the_batch(follower: Replica, prev_term: int) -> peer.Append:
    """A leader's first row, two entries before the end of the follower's log."""
    group = follower.group
    start, offset, term = group.end_index - 2, follower.log.end_offset - 2, group.term + 2
    row = peer.AppendRow(index=start, term=term, offset=offset, kind=1, payload=b"")
    return peer.Append(
        topic_id=follower.key.topic_id, partition=0, incarnation=0, follower_incarnation=0, term=term,
        start_index=start, prev_term=prev_term, to_index=start + 1, commit_end=0, log_start=0,
        start_offset=offset, rows=[row], records=None,
    )  # fmt: skip


def _check(follower: Replica, message: peer.Append) -> None:
    check_batches(follower, message, Batches([], []), [row_from_wire(row) for row in message.rows])


def test_a_log_is_not_cut_inside_a_batch() -> None:
    with running() as world:
        follower = _follower(world)
        with pytest.raises(ContradictionError, match="a batch across offset"):
            _check(follower, _new_term_inside_the_batch(follower, follower.group.term))


def test_a_range_that_does_not_follow_on_this_log_may_begin_anywhere() -> None:
    """It is rejected, and the leader looks further down for where the logs agree. Passed over, it came for ever."""
    with running() as world:
        follower = _follower(world)
        _check(follower, _new_term_inside_the_batch(follower, follower.group.term + 1))
