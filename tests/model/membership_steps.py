"""Members are removed and added, and learners are judged (L6, L7)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.members import configurations, is_legitimate, newest
from tests.model.raft_steps import leaders_of, with_commit
from tests.model.rules import Rules
from tests.model.state import Configuration, Entry, Kind, Member, Replica, State, Step, begun_anew
from tests.model.world import Steps, World


def _changing(world: World, state: State) -> Iterator[tuple[int, Replica]]:
    """Leaders that may append a configuration: all that they have is committed, the last in their term."""
    for node, leader in leaders_of(state):
        is_ready = leader.commit_end == len(leader.log) and leader.log[-1].term == leader.term
        if is_ready and len(configurations(world.founding, leader.log)) < world.max_configurations:
            yield node, leader


def _change(world: World, state: State, node: int, changed: Configuration, *, seed: bool = False) -> State:
    leader = state.replicas[node]
    log = (*leader.log, Entry(leader.term, Kind.CONFIGURATION, changed, seed))
    return with_commit(world, state.with_replica(node, leader._replace(log=log)), node)


def remove(world: World, rules: Rules, state: State) -> Steps:
    """A member is removed by a row, which counts when it is committed."""
    del rules
    for node, leader in _changing(world, state):
        for member in newest(world.founding, leader.log).members:
            if member.node in world.movable and member.node != node:
                yield Step("remove", node, member.node), _without(world, state, node, member)


def remove_gone(world: World, rules: Rules, state: State) -> Steps:
    """A member is removed whose node has begun anew as somebody else."""
    del rules
    for node, leader in _changing(world, state):
        for member in newest(world.founding, leader.log).members:
            if member != state.member(member.node):
                yield Step("remove_gone", node, member.node), _without(world, state, node, member)


def _without(world: World, state: State, node: int, member: Member) -> State:
    voters, learners = newest(world.founding, state.replicas[node].log)
    changed = Configuration(
        tuple(each for each in voters if each != member), tuple(each for each in learners if each != member)
    )
    return _change(world, state, node, changed)


def add(world: World, rules: Rules, state: State) -> Steps:
    """A replica is added as a learner. L7: the row holds the bound of this moment."""
    for node, leader in _changing(world, state):
        voters, learners = newest(world.founding, leader.log)
        for other in world.movable:
            member = state.member(other)
            if member not in voters + learners:
                changed = Configuration(voters, (*learners, member))
                seed = leader.knows_bound and rules.row_has_bound
                yield Step("add", node, other), _change(world, state, node, changed, seed=seed)


def promote(world: World, rules: Rules, state: State) -> Steps:
    """A learner that has all becomes a voter. L6: it has shown before that its log is a legitimate copy."""
    for node, leader in _changing(world, state):
        voters, learners = newest(world.founding, leader.log)
        for member in learners:
            has_all = member == state.member(member.node) and state.replicas[member.node].log == leader.log
            may_vote = (
                not (leader.knows_bound or rules.begun_without_bound)
                or not rules.copy_before_vote
                or is_legitimate(rules, world.founding, state, node, member) is True
            )
            if has_all and may_vote:
                changed = Configuration(
                    tuple(sorted((*voters, member))), tuple(each for each in learners if each != member)
                )
                yield Step("promote", node, member.node), _change(world, state, node, changed)


def discard(world: World, rules: Rules, state: State) -> Steps:
    """L6: a learner whose log is no legitimate copy is told to discard it, and begins anew as another incarnation."""
    if not rules.no_copy_is_discarded:
        return
    for leader_node, leader in leaders_of(state):
        for member in newest(world.founding, leader.log).learners:
            replica = state.replicas[member.node]
            is_there = member == state.member(member.node) and replica.term == leader.term
            if not is_there or replica.incarnation >= world.max_incarnation:
                continue
            if is_legitimate(rules, world.founding, state, leader_node, member) is False:
                after = state.with_replica(member.node, begun_anew(replica))
                yield Step("discard", member.node, leader_node), after
