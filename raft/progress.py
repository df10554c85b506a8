"""What a leader knows of one follower, and how much it may send to it."""

from __future__ import annotations

from collections import deque
from enum import IntEnum

from raft.types import ReplicaId, Timing


class ProgressState(IntEnum):
    """PROBE --accepted--> REPLICATE --rejected, silent, link lost--> PROBE --log start passed--> SNAPSHOT
    --done--> PROBE."""

    PROBE = 0
    """The common point is not known: one range at a time."""
    REPLICATE = 1
    """Ranges are sent ahead of the acknowledgements, within the window."""
    SNAPSHOT = 2
    """The follower is being rebuilt at the log start; nothing is sent."""


class Progress:
    """Invariants: 0 <= match_end <= next_index (REPLICATE); match_end never falls; inflight ends are
    ascending and in (match_end, next_index]."""

    __slots__ = (
        "awaiting",
        "barrier_end",
        "caught_up_at",
        "commit_sent",
        "inflight",
        "inflight_bytes",
        "is_deferred",
        "is_open",
        "last_contact",
        "log_start",
        "mark_at",
        "mark_end",
        "match_end",
        "max_inflight_bytes",
        "max_inflight_ranges",
        "next_index",
        "overdue",
        "reachable",
        "replica",
        "snapshot_sent_at",
        "state",
    )

    def __init__(
        self, replica: ReplicaId, next_index: int, end_index: int, reachable: bool, timing: Timing, now: float
    ) -> None:
        """The log ends at end_index; the search for the common point begins at next_index."""
        self.replica = replica
        self.match_end = 0
        self.next_index = next_index
        self.state = ProgressState.PROBE
        self.reachable = reachable
        #: Ranges sent and not acknowledged: (end, size in bytes).
        self.inflight: deque[tuple[int, int]] = deque()
        self.inflight_bytes = 0
        #: End of a row that was sent and is not acknowledged, or 0: until it is durable there, nothing
        #: follows.
        self.barrier_end = 0
        #: A range may be sent now.
        self.is_open = reachable
        #: Small appends for this follower are batched: enough other followers make the majority.
        self.is_deferred = False
        #: Highest commit index that was sent on the present link.
        self.commit_sent = 0
        #: The follower owes an answer; overdue: it has owed one for a whole resend timeout at least.
        self.awaiting = False
        self.overdue = False
        self.last_contact = now
        self.log_start = 0
        #: The log ended at mark_end at time mark_at. The follower holds all that the log held at
        #: caught_up_at: in particular the row that made it a member.
        self.mark_end = end_index
        self.mark_at = now
        self.caught_up_at = float("-inf")
        self.snapshot_sent_at = 0.0
        self.max_inflight_ranges = timing.max_inflight_ranges
        self.max_inflight_bytes = timing.max_inflight_bytes

    def reset(self, next_index: int) -> None:
        """Drop the ranges in flight, and search for the common point again from `next_index`."""
        self.state = ProgressState.PROBE
        self.next_index = next_index
        self.inflight.clear()
        self.inflight_bytes = 0
        self.barrier_end = 0
        self.commit_sent = 0
        self.awaiting = False
        self.overdue = False
        self.is_deferred = False
        self.is_open = self.reachable

    def sent(self, end: int, size_bytes: int, ends_with_row: bool) -> None:
        """A range [next_index, end) has left."""
        self.awaiting = True
        if self.state is not ProgressState.REPLICATE:
            self.is_open = False
            return
        if end == self.next_index:
            return
        self.next_index = end
        self.inflight.append((end, size_bytes))
        self.inflight_bytes += size_bytes
        if ends_with_row:
            self.barrier_end = end
        self.is_open = (
            self.reachable
            and self.barrier_end == 0
            and len(self.inflight) < self.max_inflight_ranges
            and self.inflight_bytes < self.max_inflight_bytes
        )

    def acknowledged(self, match_end: int) -> None:
        """The follower holds everything below match_end, durably and verified."""
        assert self.state is not ProgressState.SNAPSHOT
        if match_end > self.match_end:
            self.match_end = match_end
        inflight = self.inflight
        while inflight and inflight[0][0] <= match_end:
            self.inflight_bytes -= inflight.popleft()[1]
        self.overdue = False
        if self.state is ProgressState.PROBE:
            self.state = ProgressState.REPLICATE
            self.next_index = self.match_end
        elif self.next_index < self.match_end:
            self.next_index = self.match_end
        if self.barrier_end <= match_end:
            self.barrier_end = 0
        self.awaiting = bool(inflight)
        self.is_open = (  # as in `sent`; a call would cost more than the condition
            self.reachable
            and self.barrier_end == 0
            and len(inflight) < self.max_inflight_ranges
            and self.inflight_bytes < self.max_inflight_bytes
        )
