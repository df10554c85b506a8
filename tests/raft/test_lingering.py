"""Small appends gather for followers that the majority does not need (raft/README.md)."""

from __future__ import annotations

from raft.group import Group
from raft.types import Configuration, Output, Timing
from tests.raft.test_group import THREE, TWO, acknowledge, do_sends, make_leader

TIMING = Timing(linger_bytes=1000)


def lingering_leader() -> Group:
    """A leader of three whose followers have everything; the third is the one that may wait."""
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


def lingers(group: Group) -> list[int]:
    return [progress.replica.node_id for progress in group._followers if progress.lingers]


def sent(out: Output) -> list[tuple[int, int, int]]:
    return [(order.to.node_id, order.start, order.end_limit) for order in out.sends]


def test_one_of_two_followers_is_sent_each_append_the_other_what_gathered() -> None:
    group = lingering_leader()
    first = group.end_index
    assert not group.has_lingering
    (prompt,) = append(group)
    for _ in range(4):
        assert append(group) == [prompt]
    assert group.has_lingering
    out = group.send_lingering(1.1)
    assert sent(out) == [(5 - prompt, first, first + 5)]
    do_sends(group, out)
    assert not group.has_lingering
    assert sent(group.send_lingering(1.2)) == []


def test_what_is_committed_does_not_wait_for_it() -> None:
    group = lingering_leader()
    (prompt,) = append(group)
    group.persisted(group.end_index, 1.0)
    acknowledge(group, TWO if prompt == 2 else THREE, group.end_index)
    assert group.commit_end == group.end_index


def test_many_bytes_go_to_everybody_at_once() -> None:
    group = lingering_leader()
    for _ in range(4):
        assert len(append(group, 225)) == 1
    assert append(group, 100) == [2, 3]
    assert not group.has_lingering
    assert len(append(group, 249)) == 1
    assert append(group, 250) == [2, 3], "a large append has nothing to gain by waiting"


def test_the_leader_itself_does_not_count_after_its_removal() -> None:
    """Both others are the majority then, so both are sent everything at once."""
    group = lingering_leader()
    group.persisted(group.end_index, 1.0)
    do_sends(group, group.propose_configuration(Configuration((TWO, THREE), ()), 1.0))
    group.persisted(group.end_index, 1.0)
    do_sends(group, acknowledge(group, TWO, group.end_index))
    assert group.can_propose
    do_sends(group, acknowledge(group, THREE, group.end_index))
    assert lingers(group) == []


def test_answers_that_wait_for_all_three_make_all_three_prompt() -> None:
    group = lingering_leader()
    group.min_durable = 3
    assert append(group) == [2, 3]
    assert lingers(group) == []


def test_who_is_lost_is_replaced_at_once() -> None:
    group = lingering_leader()
    (prompt,) = append(group)
    group.peer_lost(prompt)
    assert append(group) == [5 - prompt]
    assert not group.has_lingering
    assert append(group) == [5 - prompt]


def test_a_full_window_is_somebody_slow() -> None:
    group = lingering_leader()
    (prompt,) = append(group)
    for _ in range(TIMING.max_inflight_ranges - 1):
        assert append(group, 1) == [prompt]
    assert append(group, 1) == [5 - prompt]


def test_who_has_more_although_it_was_sent_later_changes_places() -> None:
    group = lingering_leader()
    (prompt,) = append(group)
    slow = THREE if prompt == 2 else TWO
    do_sends(group, group.send_lingering(1.1))
    do_sends(group, acknowledge(group, slow, group.end_index))
    assert lingers(group) == [5 - prompt], "the answers may have crossed"
    append(group)
    do_sends(group, group.send_lingering(1.2))
    do_sends(group, acknowledge(group, slow, group.end_index))
    assert lingers(group) == [prompt]
    assert append(group) == [5 - prompt]


def test_an_answer_of_who_lingers_does_not_end_its_wait() -> None:
    group = lingering_leader()
    first = group.end_index
    (prompt,) = append(group)
    slow = THREE if prompt == 2 else TWO
    out = acknowledge(group, slow, first)
    assert sent(out) == []
    do_sends(group, group.send_lingering(1.1))
    append(group)
    assert sent(acknowledge(group, slow, first + 1)) == []
    group.peer_lost(slow.node_id)
    append(group)
    out = group.peer_reachable(slow.node_id, 1.0)
    assert [order.to for order in out.sends] == [slow], "a probe never waits"


def test_a_hand_over_sends_what_lingers() -> None:
    group = lingering_leader()
    (prompt,) = append(group)
    slow = THREE if prompt == 2 else TWO
    out = group.transfer_leadership(slow, 1.0)
    assert [order.to for order in out.sends] == [slow]
