"""Small appends are batched for deferred followers, which the majority does not need (raft/README.md)."""

from __future__ import annotations

from raft.group import Group
from raft.types import Configuration, Output, Timing
from tests.raft.test_group import THREE, TWO, acknowledge, do_sends, make_leader

TIMING = Timing(append_batch_bytes=1000)


def leader_of_three() -> Group:
    """A leader of three whose followers have everything; the third is the one that may be deferred."""
    group = make_leader()
    group.timing = TIMING
    do_sends(group, acknowledge(group, THREE, group.end_index))
    do_sends(group, acknowledge(group, TWO, group.end_index))
    return group


def append(group: Group, size_bytes: int = 100) -> list[int]:
    """Append one record; the nodes it is sent to."""
    out = group.appended(group.end_index + 1, size_bytes, 1.0)
    do_sends(group, out)
    return sorted(order.to.node_id for order in out.sends)


def deferred(group: Group) -> list[int]:
    if group.leading is None:
        return []
    return [
        progress.replica.node_id for progress in group.leading.replication.followers if progress.is_deferred
    ]


def sent(out: Output) -> list[tuple[int, int, int]]:
    return [(order.to.node_id, order.start_index, order.end_limit) for order in out.sends]


def test_one_of_two_followers_is_sent_each_append_the_other_a_batch() -> None:
    group = leader_of_three()
    first = group.end_index
    assert not group.has_deferred
    (prompt,) = append(group)
    for _ in range(4):
        assert append(group) == [prompt]
    assert group.has_deferred
    out = group.send_deferred(1.1)
    assert sent(out) == [(5 - prompt, first, first + 5)]
    do_sends(group, out)
    assert not group.has_deferred
    assert sent(group.send_deferred(1.2)) == []


def test_what_is_committed_does_not_wait_for_a_deferred_follower() -> None:
    group = leader_of_three()
    (prompt,) = append(group)
    group.persisted(group.end_index, 1.0)
    acknowledge(group, TWO if prompt == 2 else THREE, group.end_index)
    assert group.commit_end == group.end_index


def test_many_bytes_go_to_everybody_at_once() -> None:
    group = leader_of_three()
    for _ in range(4):
        assert len(append(group, 225)) == 1
    assert append(group, 100) == [2, 3]
    assert not group.has_deferred
    assert len(append(group, 249)) == 1
    assert append(group, 250) == [2, 3], "a large append has nothing to gain by waiting"


def test_the_leader_itself_does_not_count_after_its_removal() -> None:
    """Both others are the majority then, so both are sent everything at once."""
    group = leader_of_three()
    group.persisted(group.end_index, 1.0)
    do_sends(group, group.propose_configuration(Configuration((TWO, THREE), ()), 1.0))
    group.persisted(group.end_index, 1.0)
    do_sends(group, acknowledge(group, TWO, group.end_index))
    assert group.can_propose
    do_sends(group, acknowledge(group, THREE, group.end_index))
    assert deferred(group) == []


def test_nobody_is_deferred_when_answers_wait_for_all_three() -> None:
    group = leader_of_three()
    group.min_durable = 3
    assert append(group) == [2, 3]
    assert deferred(group) == []


def test_a_lost_follower_is_replaced_at_once() -> None:
    group = leader_of_three()
    (prompt,) = append(group)
    group.peer_lost(prompt)
    assert append(group) == [5 - prompt]
    assert not group.has_deferred
    assert append(group) == [5 - prompt]


def test_a_follower_with_a_full_window_is_replaced() -> None:
    group = leader_of_three()
    (prompt,) = append(group)
    for _ in range(TIMING.max_inflight_ranges - 1):
        assert append(group, 1) == [prompt]
    assert append(group, 1) == [5 - prompt]


def test_a_deferred_follower_that_has_more_changes_places_with_a_slower_one() -> None:
    group = leader_of_three()
    (prompt,) = append(group)
    slow = THREE if prompt == 2 else TWO
    do_sends(group, group.send_deferred(1.1))
    do_sends(group, acknowledge(group, slow, group.end_index))
    assert deferred(group) == [5 - prompt], "the answers may have crossed"
    append(group)
    do_sends(group, group.send_deferred(1.2))
    do_sends(group, acknowledge(group, slow, group.end_index))
    assert deferred(group) == [prompt]
    assert append(group) == [5 - prompt]


def test_an_answer_of_a_deferred_follower_does_not_end_its_batch() -> None:
    group = leader_of_three()
    first = group.end_index
    (prompt,) = append(group)
    slow = THREE if prompt == 2 else TWO
    out = acknowledge(group, slow, first)
    assert sent(out) == []
    do_sends(group, group.send_deferred(1.1))
    append(group)
    assert sent(acknowledge(group, slow, first + 1)) == []
    group.peer_lost(slow.node_id)
    append(group)
    out = group.peer_reachable(slow.node_id, 1.0)
    assert [order.to for order in out.sends] == [slow], "a probe never waits"


def test_a_leadership_transfer_sends_the_batch() -> None:
    group = leader_of_three()
    (prompt,) = append(group)
    slow = THREE if prompt == 2 else TWO
    out = group.transfer_leadership(slow, 1.0)
    assert [order.to for order in out.sends] == [slow]
