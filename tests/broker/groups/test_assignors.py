"""Both assignors: every partition has one owner, shares are even, and few partitions move."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker.groups.assignors import ASSIGNORS, EMPTY, Assignment, MemberSpec, assign_range, assign_uniform
from protocol.codec import at_once

TOPICS = [UUID(int=number) for number in range(1, 6)]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
member_ids = st.lists(st.sampled_from([f"m{number}" for number in range(12)]), min_size=1, unique=True)


def partitions(assignment: Assignment) -> list[tuple[UUID, int]]:
    return [(topic_id, partition) for topic_id, numbers in assignment.items() for partition in numbers]


def load(assignment: Assignment) -> int:
    return len(partitions(assignment))


def all_partitions(topics: dict[UUID, int]) -> set[tuple[UUID, int]]:
    return {(topic_id, partition) for topic_id, count in topics.items() for partition in range(count)}


@given(st.sampled_from(sorted(ASSIGNORS)), counts, member_ids, st.data())
def test_every_partition_has_one_owner_which_is_subscribed(
    name: str, topics: dict[UUID, int], ids: list[str], data: st.DataObject
) -> None:
    wanted = st.lists(st.sampled_from(sorted(topics)), unique=True)
    members = {member_id: MemberSpec(data.draw(wanted)) for member_id in ids}
    result = at_once(ASSIGNORS[name](members, topics))
    assert result.keys() == members.keys()
    owned = [each for assignment in result.values() for each in partitions(assignment)]
    assert len(owned) == len(set(owned))
    subscribed = {topic_id for member in members.values() for topic_id in member.topics}
    assert set(owned) == {each for each in all_partitions(topics) if each[0] in subscribed}
    for member_id, assignment in result.items():
        assert set(assignment) <= set(members[member_id].topics)
        assert all(assignment.values()), "no topic without partitions"


@given(counts, member_ids, member_ids)
def test_uniform_is_even_and_moves_no_more_partitions_than_necessary(
    topics: dict[UUID, int], before: list[str], after: list[str]
) -> None:
    old = at_once(assign_uniform({each: MemberSpec(sorted(topics)) for each in before}, topics))
    members = {each: MemberSpec(sorted(topics), target=old.get(each, EMPTY)) for each in after}
    new = at_once(assign_uniform(members, topics))
    loads = sorted(map(load, new.values()))
    assert loads[-1] - loads[0] <= 1
    # A member keeps what it can. If it lost a partition it has the smallest share, or all shares are larger.
    least, longer = divmod(len(all_partitions(topics)), len(after))
    kept = sum(len(set(partitions(new[each])) & set(partitions(old.get(each, EMPTY)))) for each in after)
    had = sorted((load(old.get(each, EMPTY)) for each in after), reverse=True)
    quotas = [least + (position < longer) for position in range(len(after))]
    assert kept == sum(map(min, had, quotas))


@given(counts, member_ids, st.data())
def test_uniform_with_different_subscriptions_cannot_be_balanced_further(
    topics: dict[UUID, int], ids: list[str], data: st.DataObject
) -> None:
    wanted = st.lists(st.sampled_from(sorted(topics)), unique=True)
    members = {member_id: MemberSpec(data.draw(wanted)) for member_id in ids}
    for _ in range(2):
        result = at_once(assign_uniform(members, topics))
        for giver, assignment in result.items():
            for topic_id in assignment:
                takers = [each for each, member in members.items() if topic_id in member.topics]
                assert all(load(result[giver]) - load(result[taker]) <= 1 for taker in takers)
        again = {each: MemberSpec(member.topics, target=result[each]) for each, member in members.items()}
        assert at_once(assign_uniform(again, topics)) == result, "what is even stays as it is"
        members = {each: MemberSpec(data.draw(wanted), target=result[each]) for each in members}


def test_a_partition_in_the_last_targets_of_two_members_goes_to_one() -> None:
    target = {TOPICS[0]: frozenset({0, 1})}
    members = {each: MemberSpec(TOPICS[:1], target=target) for each in ("a", "b")}
    assert at_once(assign_uniform(members, {TOPICS[0]: 2})) == {
        "a": {TOPICS[0]: frozenset({0})},
        "b": {TOPICS[0]: frozenset({1})},
    }


def test_range_assigns_adjacent_partitions_and_divides_equal_topics_alike() -> None:
    topics = TOPICS[:2]
    members = {"b": MemberSpec(topics), "a": MemberSpec(topics), "c": MemberSpec(topics, instance_id="z")}
    result = at_once(assign_range(members, dict.fromkeys(topics, 7)))
    for topic_id in topics:
        assert {each: sorted(result[each][topic_id]) for each in result} == {
            "c": [0, 1, 2],  # Static members come first.
            "a": [3, 4],
            "b": [5, 6],
        }


def test_no_members_and_no_topics_give_empty_assignments() -> None:
    for assign in ASSIGNORS.values():
        assert at_once(assign({}, {})) == {}
        assert at_once(assign({"a": MemberSpec([])}, {TOPICS[0]: 3})) == {"a": {}}
