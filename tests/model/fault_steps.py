"""What fails: processes, power and disks."""

from __future__ import annotations

from tests.model.raft_steps import following
from tests.model.rules import Rules
from tests.model.state import State, Step, begun_anew
from tests.model.world import Steps, World


def restart(world: World, rules: Rules, state: State) -> Steps:
    """A process is killed and starts again. It leads no longer, and does not know any more what is committed."""
    del world, rules
    if state.faults_left:
        for node, replica in enumerate(state.replicas):
            after = following(replica, replica.term)._replace(commit_end=0)
            yield Step("restart", node), _with_fault(state.with_replica(node, after))


def cut_power(world: World, rules: Rules, state: State) -> Steps:
    """What is in the page cache only is lost: the old record is there again. What the journal says of the pass stays,
    if it was written before the pass was durable (F3)."""
    del world, rules
    if state.faults_left:
        for node, replica in enumerate(state.replicas):
            after = following(replica, replica.term)._replace(commit_end=0)
            if not replica.is_flushed:
                after = after._replace(holds_old=True, is_flushed=True)
            yield Step("cut_power", node), _with_fault(state.with_replica(node, after))


def damage(world: World, rules: Rules, state: State) -> Steps:
    """A disk loses a log that was durable. F4: what is begun there is another incarnation. Otherwise it keeps its name,
    and what its journal says of its passes. Where members may change, only such a node's log is lost."""
    if not state.faults_left:
        return
    for node in world.movable or range(len(state.replicas)):
        replica = state.replicas[node]
        if not rules.lost_log_is_another:
            after = following(replica, replica.term)._replace(
                log=(), commit_end=0, holds_old=False, holds_guard=False
            )
        elif replica.incarnation < world.max_incarnation:
            after = begun_anew(replica)
        else:
            continue
        yield Step("damage", node), _with_fault(state.with_replica(node, after))


def _with_fault(state: State) -> State:
    return state._replace(faults_left=state.faults_left - 1)
