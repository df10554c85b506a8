"""Elections, copying and commit, as Raft has them."""

from __future__ import annotations

from itertools import combinations

from tests.model.members import newest
from tests.model.rules import Rules
from tests.model.state import GUARD_INDEX, Entry, Kind, Member, Replica, State, Step
from tests.model.world import Steps, World


def elect(world: World, rules: Rules, state: State) -> Steps:
    """A voter is elected by a majority of its newest configuration, of which none has a log that is more up to date
    (Raft, section 5.4.1), and appends a row of its term. Terms are new ones: no two leaders in one."""
    del rules
    replicas = state.replicas
    term = 1 + max(replica.term for replica in replicas)
    if term > world.max_term:
        return
    for node in world.electable or range(len(replicas)):
        replica = replicas[node]
        voters = newest(world.founding, replica.log).voters
        if state.member(node) not in voters or (replica.leads and replica.term == term - 1):
            continue
        position = _position(replica)
        others = [
            voter.node
            for voter in voters
            if voter.node != node
            and voter == state.member(voter.node)
            and _position(replicas[voter.node]) <= position
        ]
        for granting in combinations(others, len(voters) // 2):
            after = list(replicas)
            for each in granting:
                after[each] = following(replicas[each], term)
            log = (*replica.log, Entry(term, Kind.LEADER))
            after[node] = replica._replace(log=log, term=term, leads=True, reports=(), to_tell=())
            yield Step("elect", node), with_commit(world, state._replace(replicas=tuple(after)), node)


def hear(world: World, rules: Rules, state: State) -> Steps:
    """A member hears its leader: it cuts off what the leader does not have, copies what comes next, and knows then what
    is committed. Records are copied one by one, rows together. What the leader has dropped is not copied."""
    del rules
    for leader_node, leader in leaders_of(state):
        for member in _members(world, leader):
            node = member.node
            replica = state.replicas[node]
            if node == leader_node or member != state.member(node) or replica.term > leader.term:
                continue
            after = state.with_replica(node, _copied(replica, leader))
            after = with_commit(world, after, leader_node)
            heard = after.replicas[node]
            commit_end = max(
                heard.commit_end, min(after.replicas[leader_node].commit_end, _common_end(heard, leader))
            )
            after = after.with_replica(node, heard._replace(commit_end=commit_end))
            if after != state:
                yield Step("hear", node, leader_node), after


def _copied(replica: Replica, leader: Replica) -> Replica:
    common = _common_end(replica, leader)
    log, holds_old, holds_guard = replica.log, replica.holds_old, replica.holds_guard
    begun_in = replica.begun_in
    if common < len(leader.log):
        entry = leader.log[common]
        if not log:
            begun_in = max(begun_in, leader.term)
        holds_old = holds_old and common > 0
        holds_guard = holds_guard and common > GUARD_INDEX
        if entry.kind is Kind.OLD:
            holds_old = leader.holds_old
        elif entry.kind is Kind.GUARD:
            holds_guard = leader.holds_guard
        is_row = entry.kind > Kind.GUARD
        log = leader.log if is_row else leader.log[: common + 1]
    return following(replica, leader.term)._replace(
        log=log, holds_old=holds_old, holds_guard=holds_guard, begun_in=begun_in
    )


def following(replica: Replica, term: int) -> Replica:
    return replica._replace(term=term, leads=False, reports=(), to_tell=())


def _position(replica: Replica) -> tuple[int, int]:
    return (replica.log[-1].term if replica.log else 0, len(replica.log))


def _common_end(one: Replica, other: Replica) -> int:
    if one.log is other.log:
        return len(one.log)
    count = 0
    for mine, theirs in zip(one.log, other.log, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def with_commit(world: World, state: State, node: int) -> State:
    """Entries of the leader's own term are committed that a majority has, and all that is below (Raft, figure 8)."""
    leader = state.replicas[node]
    voters = newest(world.founding, leader.log).voters
    for end in range(len(leader.log), leader.commit_end, -1):
        if leader.log[end - 1].term != leader.term:
            break
        having = 0
        for voter in voters:
            replica = state.replicas[voter.node]
            is_there = voter == state.member(voter.node) and replica.term == leader.term
            having += is_there and _common_end(replica, leader) >= end
        if 2 * having > len(voters):
            return state.with_replica(node, leader._replace(commit_end=end))
    return state


def leaders_of(state: State) -> list[tuple[int, Replica]]:
    return [(node, replica) for node, replica in enumerate(state.replicas) if replica.leads]


def _members(world: World, leader: Replica) -> tuple[Member, ...]:
    return newest(world.founding, leader.log).members
