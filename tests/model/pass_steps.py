"""Passes of compaction: the old record goes, and then its guard."""

from __future__ import annotations

from tests.model.rules import Rules
from tests.model.state import GUARD_INDEX, Kind, Replica, State, Step
from tests.model.world import Steps, World


def clean(world: World, rules: Rules, state: State) -> Steps:
    """A pass over a prefix that covers the guard. It removes the old record, if the guard is there, and its checkpoint
    lies above the guard then. No pass goes beyond what is committed."""
    for node, replica in enumerate(state.replicas):
        end = replica.commit_end if rules.clean_below_high_watermark else len(replica.log)
        has_guard = end > GUARD_INDEX and replica.log[GUARD_INDEX].kind is Kind.GUARD
        if not has_guard or not replica.is_flushed or node in world.never_cleaned:
            continue
        after = _passed(world, rules, replica)
        if after != replica:
            yield Step("clean", node), state.with_replica(node, after)


def _passed(world: World, rules: Rules, replica: Replica) -> Replica:
    if not rules.clean_means_old_is_gone and not replica.is_clean:
        return replica._replace(is_clean=True)  # nothing but the guard was looked at
    holds_old = replica.holds_old and not replica.holds_guard
    if replica.is_clean and rules.clean_means_old_is_gone:
        return replica
    if world.has_page_cache:
        return replica._replace(holds_old=holds_old, is_flushed=False, is_clean=not rules.flag_after_pass)
    return replica._replace(holds_old=holds_old, is_clean=True)


def flush(world: World, rules: Rules, state: State) -> Steps:
    """A pass is durable, and then its checkpoint (F3)."""
    del world, rules
    for node, replica in enumerate(state.replicas):
        if not replica.is_flushed:
            yield (
                Step("flush", node),
                state.with_replica(node, replica._replace(is_flushed=True, is_clean=True)),
            )


def drop(world: World, rules: Rules, state: State) -> Steps:
    """A later pass drops the guard, below the bound. What else it would remove is still there if a crash ends it."""
    del world
    for node, replica in enumerate(state.replicas):
        may_drop = replica.is_clean and (replica.knows_bound or not rules.guard_below_bound)
        if not rules.clean_means_old_is_gone:
            may_drop = may_drop and not replica.holds_old
        if may_drop and replica.holds_guard and replica.is_flushed:
            yield Step("drop", node), state.with_replica(node, replica._replace(holds_guard=False))
