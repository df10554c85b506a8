"""REPORT and BOUNDS: what members tell their leader, and what it tells them (L1 to L5, F1 to F3)."""

from __future__ import annotations

from tests.model.members import counted, is_clean, own_report, report_of
from tests.model.raft_steps import elect, leaders_of
from tests.model.rules import Rules
from tests.model.state import LateReport, Member, Replica, Report, State, Step
from tests.model.world import Steps, World


def begin_leading(world: World, rules: Rules, state: State) -> Steps:
    """L4: a new leader starts from the bound that it knows, and tells it at once, even if it has not risen."""
    for step, after in elect(world, rules, state):
        leader = after.replicas[step.node]
        if not rules.starts_from_known:
            leader = leader._replace(knows_bound=False)
        if rules.new_leader_tells and not rules.told_until_known and leader.knows_bound:
            leader = leader._replace(to_tell=_others(state, step.node))
        yield step, after.with_replica(step.node, leader)


def report(world: World, rules: Rules, state: State) -> Steps:
    """A follower reports to its leader. An empty log says nothing: it would look like one from before (F5)."""
    for node, replica in enumerate(state.replicas):
        if not replica.log:
            continue
        for leader_node, leader in leaders_of(state):
            if node == leader_node or (rules.report_of_this_term and replica.term != leader.term):
                continue
            after = _counting(world, rules, leader, state.member(node), own_report(rules, replica))
            if after != leader:
                yield Step("report", node, leader_node), state.with_replica(leader_node, after)


def _counting(world: World, rules: Rules, leader: Replica, member: Member, told: Report) -> Replica:
    """L1: a report counts if it is of a member, under the incarnation that has built it."""
    reports = dict(leader.reports)
    for each in counted(rules, world.founding, leader):
        is_meant = each == member or (each.node == member.node and not rules.report_of_this_incarnation)
        if is_meant:
            reports[each] = told
    return leader._replace(reports=tuple(sorted(reports.items())))


def send_late_report(world: World, rules: Rules, state: State) -> Steps:
    """A report of a node that may be added again is under way for long."""
    if state.late is not None:
        return
    for node in world.movable:
        replica = state.replicas[node]
        for leader_node, leader in leaders_of(state):
            if node != leader_node and replica.log and replica.term == leader.term:
                late = LateReport(state.member(node), leader_node, replica.term, own_report(rules, replica))
                yield Step("send_late_report", node, leader_node), state._replace(late=late)


def late_report_arrives(world: World, rules: Rules, state: State) -> Steps:
    """... and arrives. It may arrive again."""
    late = state.late
    if late is None or not state.replicas[late.leader].leads:
        return
    leader = state.replicas[late.leader]
    if rules.report_of_this_term and late.term != leader.term:
        return
    after = _counting(world, rules, leader, late.member, late.report)
    if after != leader:
        yield (
            Step("late_report_arrives", late.leader, late.member.node),
            state.with_replica(late.leader, after),
        )


def rise(world: World, rules: Rules, state: State) -> Steps:
    """The bound is the least of all members, if all have reported (L3). It never falls."""
    for node, leader in leaders_of(state):
        if leader.knows_bound:
            continue
        for member in counted(rules, world.founding, leader):
            told = report_of(rules, state, node, member)
            if told is None or not is_clean(rules, world.founding, leader.log, member, told):
                break
        else:
            to_tell = () if rules.told_until_known else _others(state, node)
            after = leader._replace(knows_bound=True, to_tell=to_tell)
            yield Step("rise", node), state.with_replica(node, after)


def tell(world: World, rules: Rules, state: State) -> Steps:
    """A leader tells a member the bound. F1: an older leader is not heard. F2: the member's own value stays."""
    for leader_node, leader in leaders_of(state):
        for member in counted(rules, world.founding, leader):
            node = member.node
            replica = state.replicas[node]
            if node == leader_node or member != state.member(node):
                continue
            if replica.term != leader.term and rules.bounds_of_this_term:
                continue
            if not rules.told_until_known and node not in leader.to_tell:
                continue
            after = _told(rules, replica, leader.knows_bound)
            told = leader._replace(to_tell=tuple(each for each in leader.to_tell if each != node))
            if after != replica or told != leader:
                yield (
                    Step("tell", leader_node, node),
                    state.with_replica(node, after).with_replica(leader_node, told),
                )


def _told(rules: Rules, replica: Replica, bound: bool) -> Replica:
    if not rules.own_value_is_its_own and bound:
        replica = replica._replace(is_clean=True)
    if bound or not rules.bounds_never_fall:
        replica = replica._replace(knows_bound=bound)
    return replica


def lose_bounds(world: World, rules: Rules, state: State) -> Steps:
    """What a leader tells once does not arrive."""
    del world
    if rules.told_until_known:
        return
    for node, leader in leaders_of(state):
        for other in leader.to_tell:
            left = tuple(each for each in leader.to_tell if each != other)
            yield Step("lose_bounds", node, other), state.with_replica(node, leader._replace(to_tell=left))


def bounds_of_another_topic_arrive(world: World, rules: Rules, state: State) -> Steps:
    """The topic was deleted and made anew under its name. Bounds of the first lie above everything in the second."""
    del world
    if rules.bounds_of_this_topic:
        return
    for node, replica in enumerate(state.replicas):
        if not replica.knows_bound:
            yield (
                Step("bounds_of_another_topic_arrive", node),
                state.with_replica(node, replica._replace(knows_bound=True)),
            )


def _others(state: State, node: int) -> tuple[int, ...]:
    return tuple(each for each in range(len(state.replicas)) if each != node)
