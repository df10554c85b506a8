"""Plans move only replicas that have to move, and spread replicas and leaders evenly."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cli.plans import Plan, PlanError, plan_even_spread, plan_removal

BROKERS = list(range(1, 7))
assignments = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 20)),
    st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True),
    min_size=1,
)


def load(plan: Plan) -> Counter[int]:
    return Counter(node_id for replicas in plan.values() for node_id in replicas)


@given(
    assignments, st.lists(st.sampled_from(BROKERS), min_size=3, unique=True), st.none() | st.integers(1, 3)
)
def test_an_even_spread_is_valid(current: Plan, brokers: list[int], factor: int | None) -> None:
    plan = plan_even_spread(current, brokers, factor)
    assert plan.keys() == current.keys()
    for name, replicas in plan.items():
        assert len(replicas) == len(set(replicas)) == (factor or len(current[name]))
        assert set(replicas) <= set(brokers)


def test_a_new_broker_gets_its_share_and_no_other_replica_moves() -> None:
    current: Plan = {("a", n): [1 + n % 3, 1 + (n + 1) % 3] for n in range(12)}
    plan = plan_even_spread(current, [1, 2, 3, 4])
    assert load(plan) == {1: 6, 2: 6, 3: 6, 4: 6}
    moved = sum(len(set(plan[name]) - set(current[name])) for name in plan)
    assert moved == 6
    leaders = Counter(replicas[0] for replicas in plan.values())
    assert max(leaders.values()) - min(leaders.values()) <= 2


def test_an_even_assignment_stays_as_it_is() -> None:
    current: Plan = {("a", n): [1 + n % 3, 1 + (n + 1) % 3, 1 + (n + 2) % 3] for n in range(9)}
    assert plan_even_spread(current, [1, 2, 3]) == current


def test_a_smaller_replication_factor_keeps_existing_replicas() -> None:
    plan = plan_even_spread({("a", 0): [1, 2, 3], ("a", 1): [2, 3, 1], ("a", 2): [3, 1, 2]}, [1, 2, 3], 2)
    assert load(plan) == {1: 2, 2: 2, 3: 2}


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(PlanError, match="a-0 is to have 3 replicas"):
        plan_even_spread({("a", 0): [1, 2, 3]}, [1, 2])
    with pytest.raises(PlanError, match="a-0 has 3 replicas"):
        plan_removal({("a", 0): [1, 2, 3]}, 3, [1, 2])


@given(assignments, st.sampled_from(BROKERS))
def test_a_removed_broker_is_replaced_in_its_place_and_no_other_replica_moves(
    current: Plan, leaving: int
) -> None:
    plan = plan_removal(current, leaving, [node_id for node_id in BROKERS if node_id != leaving])
    assert plan.keys() == {name for name, replicas in current.items() if leaving in replicas}
    for name, replicas in plan.items():
        changed = [(old, new) for old, new in zip(current[name], replicas, strict=True) if old != new]
        assert [old for old, _ in changed] == [leaving]
        assert len(set(replicas)) == len(replicas)
