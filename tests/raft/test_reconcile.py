"""From the current members to the target by single steps that never endanger what is acknowledged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raft.leader import single_change_refusal
from raft.reconcile import next_change
from raft.types import Configuration, ReplicaId
from tests.raft.cluster import replica

A, B, C, D = (replica(node_id) for node_id in (1, 2, 3, 4))
C2 = replica(3, 1)


def steps(configuration: Configuration, target: list[ReplicaId], **options: ReplicaId) -> list[Configuration]:
    found: list[Configuration] = []
    while True:
        change = next_change(configuration, target, lambda one: True, **options)
        if change is None:
            return found
        found.append(change)
        configuration = change
        assert len(found) < 50


def test_a_move_adds_before_it_removes() -> None:
    assert steps(Configuration((A, B, C), ()), [A, B, D]) == [
        Configuration((A, B, C), (D,)),
        Configuration((A, B, C, D), ()),
        Configuration((A, B, D), ()),
    ]


def test_a_lost_identity_goes_before_its_successor_votes() -> None:
    assert steps(Configuration((A, B, C), ()), [A, B, C2]) == [
        Configuration((A, B, C), (C2,)),
        Configuration((A, B), (C2,)),
        Configuration((A, B, C2), ()),
    ]


def test_of_two_voters_the_one_that_began_anew_goes_first() -> None:
    """The other one can commit nothing before, not even a learner."""
    assert steps(Configuration((A, C), ()), [A, C2]) == [
        Configuration((A,), ()),
        Configuration((A,), (C2,)),
        Configuration((A, C2), ()),
    ]
    assert next_change(Configuration((A, C), (D,)), [A, C2], lambda one: False) == Configuration((A,), (D,))


def test_a_target_that_is_behind_takes_no_voter_away() -> None:
    assert next_change(Configuration((A, C2), ()), [A, C], lambda one: False) == Configuration((A, C2), (C,))


def test_a_learner_votes_only_when_it_has_caught_up() -> None:
    assert next_change(Configuration((A, B, C), (D,)), [A, B, D], lambda one: False) is None
    assert next_change(Configuration((A, B, C), (C2,)), [A, B, C2], lambda one: False) is None


def test_a_learner_that_nobody_wants_any_more_goes() -> None:
    assert next_change(Configuration((A, B), (D,)), [A, B], lambda one: False) == Configuration((A, B), ())


def test_the_leader_goes_last() -> None:
    path = steps(Configuration((A, B, C), ()), [D], leader=A)
    assert [A in configuration.voters for configuration in path] == [True, True, True, True, False]


def test_an_empty_target_changes_nothing() -> None:
    assert next_change(Configuration((A,), ()), [], lambda one: True) is None


identities = st.builds(replica, st.integers(1, 5), st.integers(0, 1))
one_per_node = st.lists(identities, min_size=1, max_size=5, unique_by=lambda one: one.node_id)


@given(one_per_node, one_per_node, st.randoms(use_true_random=False))
def test_every_path_ends_at_the_target_by_single_changes(voters, target, rng) -> None:  # type: ignore[no-untyped-def]
    old = Configuration(tuple(voters), ())
    stale = [one for one in voters if any(one.node_id == new.node_id and one != new for new in target)]
    before = old
    for after in steps(old, target, leader=rng.choice(voters)):
        assert single_change_refusal(before, after) is None
        # Copies that exist: never fewer than the smaller of current and target.
        alive = [voter for voter in after.voters if voter not in stale]
        assert len(alive) >= min(len(voters) - len(stale), len(target))
        before = after
    if set(before.voters) != set(target):  # the only voter's node has another identity: there is no safe step
        assert len(before.voters) == 1 and before.voters[0] in stale
