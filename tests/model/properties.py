"""What must never be: members that differ for ever, bounds that are wrong, and a group that waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.model.exchange_steps import begin_leading, report, rise, tell
from tests.model.members import newest
from tests.model.membership_steps import add, discard, promote, remove_gone
from tests.model.pass_steps import clean, drop, flush
from tests.model.raft_steps import hear
from tests.model.rules import Rules
from tests.model.state import GUARD_INDEX, OLD_INDEX, Kind, Replica, State
from tests.model.world import Action, World

#: What is wrong with a state, in words. None: nothing.
StateProperty = Callable[[World, Rules, State], str | None]


def name_of(node: int) -> str:
    return "ABCD"[node]


def _voters(world: World, state: State) -> Iterator[tuple[int, Replica]]:
    """Of the newest configuration that anybody knows to be committed. A learner shows first what it holds."""
    known = max(state.replicas, key=lambda replica: replica.commit_end)
    for voter in newest(world.founding, known.log[: known.commit_end]).voters:
        if voter == state.member(voter.node):
            yield voter.node, state.replicas[voter.node]


def divergence(world: World, rules: Rules, state: State) -> str | None:
    """A voter has for ever what others have no more, or lacks for ever what they have."""
    del rules
    for node, replica in _voters(world, state):
        if len(replica.log) <= GUARD_INDEX:
            continue
        has_guard = replica.log[GUARD_INDEX].kind is Kind.GUARD
        if has_guard and replica.holds_old and not replica.holds_guard:
            return f"{name_of(node)} holds the old record without its guard, and its log is past that"
        if replica.log[OLD_INDEX].kind is Kind.OLD and not has_guard and not replica.holds_old:
            return f"{name_of(node)} lacks the old record, and its guard was never committed"
    return None


def high_bound(world: World, rules: Rules, state: State) -> str | None:
    """A bound lies above the guard, and a voter still holds the old record. Nothing need be lost yet."""
    del rules
    if any(replica.knows_bound for replica in state.replicas):
        for node, replica in _voters(world, state):
            if replica.holds_old:
                return f"a bound lies above the guard, and {name_of(node)} still holds the old record"
    return None


def false_claim(world: World, rules: Rules, state: State) -> str | None:
    """A replica's own MCCO (MXFO) says more than is true."""
    del world, rules
    for node, replica in enumerate(state.replicas):
        if not replica.is_clean:
            continue
        if len(replica.log) <= GUARD_INDEX:
            return f"{name_of(node)} says that it is clean beyond the end of its log"
        if replica.holds_old and replica.holds_guard:
            return f"{name_of(node)} says that it is clean, and still holds the old record"
    return None


def falling_bound(before: State, after: State) -> str | None:
    """What a replica knows to be removable falls, under one incarnation."""
    for node, (was, now) in enumerate(zip(before.replicas, after.replicas, strict=True)):
        if was.incarnation == now.incarnation and was.knows_bound and not now.knows_bound:
            return f"the bound that {name_of(node)} knows falls"
    return None


#: What a healthy group does by itself, the first that is possible.
_PROGRESS: tuple[Action, ...] = (
    hear,
    flush,
    report,
    tell,
    rise,
    discard,
    promote,
    remove_gone,
    add,
    clean,
    drop,
)
_MAX_STEPS = 100


def stagnation(world: World, rules: Rules, state: State) -> str | None:
    """From here on nothing fails any more, no message is lost, and passes run. In the end all nodes of the world are
    voters, and the guard is gone everywhere. Of the steps that are possible, the first is taken."""
    healthy = replace(world, max_term=99, max_configurations=99, max_incarnation=99)
    if not any(replica.leads for replica in state.replicas):
        elected = next(begin_leading(healthy, rules, state), None)
        if elected is None:
            return "nobody can lead"
        state = elected[1]
    for _ in range(_MAX_STEPS):
        after = _next(healthy, rules, state)
        if after is None:
            return _left(world, state)
        state = after
    return "it never comes to rest"


def stagnation_after_a_change_of_leaders(world: World, rules: Rules, state: State) -> str | None:
    """... even though one of the others, who has everything, is elected at last."""
    healthy = replace(world, max_term=99)
    newest_term = max(replica.term for replica in state.replicas)
    for step, after in begin_leading(healthy, rules, state):
        if not state.replicas[step.node].leads or state.replicas[step.node].term < newest_term:
            found = stagnation(world, rules, after)
            if found is not None:
                return found
    return None


def _next(world: World, rules: Rules, state: State) -> State | None:
    for action in _PROGRESS:
        for _, after in action(world, rules, state):
            return after
    return None


def _left(world: World, state: State) -> str | None:
    """What has not come about."""
    voters = dict(_voters(world, state))
    for node, replica in enumerate(state.replicas):
        if node not in voters:
            return f"{name_of(node)} never votes"
        if replica.holds_guard and not world.never_cleaned:
            return f"{name_of(node)} never drops the guard"
    return None
