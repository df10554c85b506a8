from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker.metadata.leaders import Leadership, LeaderTable

TOPIC = UUID(int=7)
ASSIGNED = (1, 2, 3)
NO_EPOCH = -1


def announce(table: LeaderTable, node_id: int, term: int, index: int = 0, established: bool = True) -> bool:
    return table.announce(TOPIC, 0, node_id, term, index, established, assigned=ASSIGNED)


def leader_of(table: LeaderTable, partition: int = 0) -> int | None:
    known = table.get(TOPIC, partition)
    return None if known is None else known.node_id


def epoch_of(table: LeaderTable) -> int:
    known = table.get(TOPIC, 0)
    return NO_EPOCH if known is None else known.term


def test_nothing_is_known_at_first() -> None:
    table = LeaderTable()
    assert leader_of(table) is None and epoch_of(table) == NO_EPOCH


def test_the_latest_term_wins_whatever_the_order() -> None:
    table = LeaderTable()
    assert announce(table, 1, 5)
    assert not announce(table, 2, 4)
    assert announce(table, 3, 6)
    assert not announce(table, 1, 5)
    assert (leader_of(table), epoch_of(table)) == (3, 6)


def test_a_leader_becomes_established() -> None:
    table = LeaderTable()
    assert announce(table, 1, 5, established=False)
    assert announce(table, 1, 5, established=True)
    assert not announce(table, 1, 5, established=False), "old news"
    assert table.get(TOPIC, 0) == Leadership(1, 5, 0, True)


def test_a_lost_node_leaves_its_epoch_behind_and_may_come_back() -> None:
    table = LeaderTable()
    announce(table, 1, 5)
    table.announce(TOPIC, 1, 2, 3, 0, True, assigned=ASSIGNED)
    assert table.node_lost(1) == [(TOPIC, 0)]
    assert leader_of(table) is None and epoch_of(table) == 5
    assert leader_of(table, 1) == 2
    assert table.node_lost(1) == []
    assert not announce(table, 2, 4)
    assert announce(table, 1, 5)
    assert leader_of(table) == 1


def test_only_the_leader_itself_can_resign() -> None:
    table = LeaderTable()
    announce(table, 1, 5)
    assert not table.resigned(TOPIC, 0, 2)
    assert table.resigned(TOPIC, 0, 1)
    assert leader_of(table) is None and epoch_of(table) == 5


def test_a_node_outside_the_assignment_is_believed_only_with_a_newer_configuration() -> None:
    table = LeaderTable()
    assert not announce(table, 4, 9, index=0)
    assert announce(table, 4, 9, index=12)
    assert not announce(table, 5, 10, index=12)
    assert announce(table, 5, 10, index=13)


def test_an_established_leader_with_an_older_configuration_is_not_believed() -> None:
    table = LeaderTable()
    announce(table, 1, 5, index=12)
    assert not announce(table, 2, 6, index=0, established=True)
    assert announce(table, 2, 6, index=0, established=False), "it may not know yet what is committed"
    assert table.get(TOPIC, 0) == Leadership(2, 6, 12, False)


def test_of_two_leaders_in_one_term_the_first_is_believed() -> None:
    """A term has one leader. One of the two lies, or is wrong, and this table cannot know which."""
    table = LeaderTable()
    announce(table, 1, 5)
    changes = table.changes
    announce(table, 2, 5)
    assert table.changes == changes
    assert epoch_of(table) == 5
    announce(table, 2, 6)
    assert epoch_of(table) == 6


def test_a_deleted_topic_is_forgotten() -> None:
    table = LeaderTable()
    announce(table, 1, 5)
    table.forget_topic(TOPIC)
    assert epoch_of(table) == NO_EPOCH
    assert table.node_lost(1) == []


steps = st.lists(
    st.one_of(
        st.tuples(st.just("announce"), st.integers(1, 5), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("lost"), st.integers(1, 3), st.just(0), st.just(False)),
        st.tuples(st.just("resigned"), st.integers(1, 3), st.just(0), st.just(False)),
    ),
    max_size=30,
)


@given(steps)
def test_the_epoch_never_goes_back(story: list[tuple[str, int, int, bool]]) -> None:
    table = LeaderTable()
    before = NO_EPOCH
    for kind, number, index, established in story:
        if kind == "announce":
            announce(table, number % 3 + 1, number, index, established)  # one leader per term
        elif kind == "lost":
            table.node_lost(number)
            assert leader_of(table) != number
        else:
            table.resigned(TOPIC, 0, number)
        assert epoch_of(table) >= before
        before = epoch_of(table)
