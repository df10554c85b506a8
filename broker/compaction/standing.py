"""How a replica's log stands with compaction: what is dirty, whether a pass is due, and if not, why not.

For users (`DescribeCompaction`). The worker decides by the same plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from broker.compaction.facts import log_facts, settings_of
from broker.replication.replica import Replica
from broker.replication.watermarks.blocked_by import BlockedBy
from raft.types import RemovalBounds
from storage.compaction.counts import PassCounts
from storage.compaction.held_back import HeldBack
from storage.compaction.plan import Obstacle, Plan, make_plan


@dataclass
class LogCompaction:
    """What the worker remembers of a log since the node started."""

    held: HeldBack
    failure_count: int = 0
    """Passes since the last one that came to an end."""
    failure: str = ""
    """Of the last one. Empty: it came to an end."""
    retry_at: float = 0.0
    """Loop time, seconds."""
    counts: PassCounts | None = None
    """Of the last pass. None: there was none yet."""
    is_map_full: bool = False
    """The key map of the last pass did not hold all keys. The next pass goes on."""


class Standing(NamedTuple):
    plan: Plan
    blocked_by: BlockedBy
    """Why no pass is due. NOTHING: one is due or under way."""
    is_running: bool
    """A pass is under way. There is never another one beside it."""
    limit: BlockedBy
    """What keeps the next pass from going further."""
    size_bytes: int
    """Of the whole log."""
    memory: LogCompaction
    """Of the last pass."""


def why_not(replica: Replica) -> BlockedBy | None:
    """Why the log may not be compacted at all now. None: it may be.

    After a restart, a replica learns anew what is committed. Until then it does not know which batches the producers
    wrote last, of those that it has cleaned.
    """
    if not replica.config.is_compacted:
        return BlockedBy.POLICY
    if not replica.is_open or replica.high_watermark < replica.bounds.cleaned_end:
        return BlockedBy.UNCOMMITTED
    return None


def blocked_by(obstacle: Obstacle | None) -> BlockedBy:
    return BlockedBy.NOTHING if obstacle is None else BlockedBy[obstacle.name]


def standing_of(
    replica: Replica,
    recorded_end: int,
    removable: RemovalBounds,
    memory: LogCompaction | None,
    *,
    is_running: bool,
    is_cleaner_on: bool,
    now: float,
    now_ms: int,
) -> Standing:
    """`recorded_end`: see `cleanable_end`. `removable`: see `removal_bounds`. `memory` None: the worker has not looked
    at the log yet. Reads timestamps of the log if max.compaction.lag.ms is set. Raises CorruptLogError."""
    if memory is None:
        memory = LogCompaction(HeldBack())
    # Without the snapshot of producers that a pass needs: the worker writes one when it looks at the log.
    facts = log_facts(replica, min(replica.high_watermark, recorded_end), removable, memory.held)
    plan = make_plan(facts, settings_of(replica.config), now_ms)
    if is_running:
        blocked = BlockedBy.NOTHING
    elif (reason := why_not(replica)) is not None:
        blocked = reason
    elif not is_cleaner_on:
        blocked = BlockedBy.CLEANER_OFF
    elif now < memory.retry_at and memory.failure:
        blocked = BlockedBy.FAILED
    else:
        blocked = blocked_by(plan.obstacle)
    limit = blocked_by(plan.range_limit)
    return Standing(plan, blocked, is_running, limit, replica.log.size_bytes, memory)
