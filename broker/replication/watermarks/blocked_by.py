"""Why a replica is not compacted further: what it tells its leader, and what its leader finds."""

from __future__ import annotations

from enum import IntEnum


class BlockedBy(IntEnum):
    """The numbers stand in messages. The first ones are those of `storage.compaction.plan.Obstacle`, by name."""

    NOTHING = 0
    """A pass is due or under way, or the node has not looked at the log since it started."""
    POLICY = 1
    NOTHING_DIRTY = 2
    ACTIVE_SEGMENT = 3
    HIGH_WATERMARK = 4
    LAST_STABLE_OFFSET = 5
    MIN_LAG = 6
    DIRTY_RATIO = 7
    CLEANER_OFF = 8
    """log.cleaner.enable is false on the node."""
    FAILED = 9
    """The last pass failed. It is tried again."""
    UNCOMMITTED = 10
    """After a restart, the replica does not know yet that what it has compacted is committed."""
    OFFLINE = 11
    """The leader sees that the replica's node is away."""
    UNREPORTED = 12
    """The replica has told this leader nothing yet."""
    BEHIND = 13
    """The replica lacks records that the leader has."""
    STALE_LOG = 14
    """The replica's log is from before it was added (rule F5 of coordinated-compaction.md). It begins anew."""

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    BlockedBy.NOTHING: "compacts soon",
    BlockedBy.POLICY: "cleanup.policy",
    BlockedBy.NOTHING_DIRTY: "clean",
    BlockedBy.ACTIVE_SEGMENT: "active segment",
    BlockedBy.HIGH_WATERMARK: "uncommitted records",
    BlockedBy.LAST_STABLE_OFFSET: "open transaction",
    BlockedBy.MIN_LAG: "min.compaction.lag.ms",
    BlockedBy.DIRTY_RATIO: "dirty ratio",
    BlockedBy.CLEANER_OFF: "log.cleaner.enable",
    BlockedBy.FAILED: "failed",
    BlockedBy.UNCOMMITTED: "just restarted",
    BlockedBy.OFFLINE: "offline",
    BlockedBy.UNREPORTED: "unreported",
    BlockedBy.BEHIND: "behind",
    BlockedBy.STALE_LOG: "stale log",
}
assert _WORDS.keys() == set(BlockedBy)
