"""Values that a consensus group takes in and gives out.

All ends are exclusive upper bounds; indexes start at 0. A log entry is a record or a lineage row; raft knows
rows by value and records only by count: the term of any entry is the term of the last row at or before it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

#: The term of row 0, the founding configuration, which exists before any election. The first election is in term 0:
#: terms are the leader epochs that clients see, and Kafka's first epoch is 0 (-1 means "no epoch" there). In
#: directories from before this rule row 0 has term 0, which works as well.
FOUNDING_TERM = -1
#: Terms are int32 on the wire and on disk. Nobody campaigns for a term above.
MAX_TERM = 2**31 - 1
#: Below every term: before the first row. What a range that starts at index 0 names as the term before it.
NO_TERM = -2


class ReplicaId(NamedTuple):
    """A member's identity (replication.md section 3): a wiped or re-created log is another replica."""

    node_id: int
    directory_id: bytes
    incarnation: int


class Configuration(NamedTuple):
    """Members of a group. Voters count; learners only receive. No replica is in both."""

    voters: tuple[ReplicaId, ...]
    learners: tuple[ReplicaId, ...]

    def names(self, replica: ReplicaId) -> bool:
        return replica in self.voters or replica in self.learners

    @property
    def members(self) -> tuple[ReplicaId, ...]:
        return self.voters + self.learners


class RowKind(IntEnum):
    CONFIGURATION = 0
    LEADER = 1


class RemovalBounds(NamedTuple):
    """Offsets below which every member may remove tombstones, and transaction markers. -1: unset."""

    mtro: int
    mxro: int


class Row(NamedTuple):
    """A lineage row: an entry of the Raft log that clients never see."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which a row has no use for
    term: int
    kind: RowKind
    configuration: Configuration | None
    """Set iff kind is CONFIGURATION."""
    removal_bounds: RemovalBounds | None = None
    """Of a configuration: those that its leader knew. A member that begins with it copies a log that is clean below
    them (coordinated-compaction.md, L7). None: the founding one, which nothing precedes."""


class HardState(NamedTuple):
    """Durable before any message that depends on it leaves (Raft, figure 2)."""

    term: int
    voted_for: ReplicaId | None


class Watermarks(NamedTuple):
    """Offsets that the members agree on beside the log; vote grants carry them (replication.md section 6)."""

    log_start: int
    mtro: int
    mxro: int

    def maximum(self, other: Watermarks) -> Watermarks:
        return Watermarks(
            max(self.log_start, other.log_start), max(self.mtro, other.mtro), max(self.mxro, other.mxro)
        )


class Timing(NamedTuple):
    """Times and windows of a group. `validate` names the relations that must hold."""

    election_timeout_s: float = 1.0
    """A leader that was silent for this long is suspected. `raft.liveness` decides that; a group uses it for
    retries."""
    campaign_spread_s: float = 0.15
    """Replicas that lose a leader at the same moment campaign at random points of this interval."""
    resend_timeout_s: float = 2.0
    """A follower that has owed an answer for one to two of these is probed. Open links lose nothing, so this is only a
    safety net. It must be longer than a slow flush at the follower."""
    snapshot_timeout_s: float = 5.0
    """An unanswered snapshot is sent again after this long: the follower's disk may have been full. Installing it costs
    an empty log and some flushes. A repeated one is only acknowledged again."""
    max_inflight_ranges: int = 8
    """Unacknowledged ranges per follower."""
    max_inflight_bytes: int = 16 << 20
    """Unacknowledged bytes per follower; the range that crosses the limit is still sent."""
    append_batch_bytes: int = 0
    """Appends for deferred followers, which the majority does not need, are batched until they have this many bytes,
    one append has a quarter of it, or the host calls send_deferred. 0: no follower is deferred."""

    def validate(self) -> Timing:
        assert 0 < self.campaign_spread_s <= self.election_timeout_s
        assert self.resend_timeout_s > 0
        assert self.max_inflight_ranges >= 1
        assert self.max_inflight_bytes >= 1
        assert self.append_batch_bytes >= 0
        return self


class Role(IntEnum):
    FOLLOWER = 0
    PRE_CANDIDATE = 1
    CANDIDATE = 2
    LEADER = 3


class VoteRequest(NamedTuple):
    term: int
    """The term to be voted for; in a pre-vote, one that nobody has entered yet."""
    last_term: int
    end_index: int
    pre_vote: bool
    transfer: bool
    """The leader itself asked for this election (TimeoutNow), so voters do not refuse because it is alive."""


class VoteReply(NamedTuple):
    term: int
    """Granted: the term of the request. Refused: the voter's own term."""
    granted: bool
    pre_vote: bool
    watermarks: Watermarks


class AppendReply(NamedTuple):
    """A range is accepted."""

    term: int
    match_end: int
    """End of what is durable here and verified against this leader in this term."""
    log_start: int
    """The follower's own log start (offset), durable."""


class AppendRejection(NamedTuple):
    """A range is rejected: the entry before it is not in the follower's log, or the leader's term is over."""

    term: int
    """The follower's own term."""
    start_index: int
    """Start of the rejected range. It distinguishes a late rejection from a new one."""
    hint_index: int
    """The logs can agree at most up to this end."""
    hint_term: int
    """Term of the follower's last entry below hint_index."""
    log_start: int
    """The follower's own log start (offset), durable."""


class TimeoutNow(NamedTuple):
    """The leader of this term transfers its leadership: campaign now, without pre-vote (thesis section 3.10)."""

    term: int


class InstallSnapshotReply(NamedTuple):
    """The follower holds all entries below the end of a snapshot: it has installed it, or had them already."""

    term: int
    match_end: int
    """End of what is durable there and verified against this leader in this term."""
    log_start: int
    """The follower's own log start (offset), durable. Below the snapshot's if the follower had the entries already."""


Message = VoteRequest | VoteReply | AppendReply | AppendRejection | TimeoutNow | InstallSnapshotReply


class Send(NamedTuple):
    """Order to the leader's host: read whole batches and rows of [start_index, at most end_limit) and send them.

    Report with `Group.sent` what was sent. start_index == end_limit: send an empty range (commit index, heartbeat).
    Term and commit index are the group's own at the moment of sending.
    """

    to: ReplicaId
    start_index: int
    end_limit: int
    prev_term: int
    """Term of the entry before start_index; NO_TERM at the start of the log."""


class InstallSnapshot(NamedTuple):
    """A follower whose log ends below the leader's install offset begins anew there (replication.md section 7). The
    snapshot is an empty log that starts there, with its rows; records follow as ranges."""

    replica: ReplicaId
    """Order to a leader: the follower to send it to. Order to a follower: the leader that sent it."""
    log_start: int
    """Offset of the first record that the follower will hold."""
    rows: tuple[Row, ...]
    """All rows with an offset below log_start."""

    @property
    def end_index(self) -> int:
        return self.log_start + len(self.rows)


class ProposalRefusedError(Exception):
    """A proposal that the group cannot take now; the reason is the message. Nothing has changed."""


class Output:
    """Orders of one call. A field that is empty orders nothing.

    The host carries them out in this order: hard_state, truncate_to, rows and range data from write_from, sends and
    messages. Then messages_after_flush, when everything that was written so far (vote journal, lineage, data) is
    durable. That holds also if this output wrote nothing: what an earlier one wrote may not be durable yet. Before it
    sends them, the host reports that hard_state is durable (`hard_state_persisted`).
    """

    __slots__ = (
        "commit_advanced",
        "hard_state",
        "messages",
        "messages_after_flush",
        "role_changed",
        "rows",
        "sends",
        "snapshot",
        "snapshots",
        "truncate_to",
        "watermarks",
        "write_from",
    )

    def __init__(self) -> None:
        self.hard_state: HardState | None = None
        #: Cut the log to this end, durably, before anything else is appended.
        self.truncate_to: int | None = None
        #: Append to the lineage: rows of a leader's own, or missing rows of the received range.
        self.rows: list[Row] = []
        #: Follower: append the batches of the received range from this index on. The log has those below already.
        self.write_from: int | None = None
        self.sends: list[Send] = []
        #: Leader: snapshots to send.
        self.snapshots: list[InstallSnapshot] = []
        #: Follower: replace the own log by this, then call `snapshot_installed` (or `snapshot_install_failed`).
        self.snapshot: InstallSnapshot | None = None
        self.messages: list[tuple[ReplicaId, Message]] = []
        self.messages_after_flush: list[tuple[ReplicaId, Message]] = []
        self.commit_advanced = False
        #: The role, term, known leader or is_established has changed, or a transfer was given up.
        self.role_changed = False
        #: Set on winning an election: raise the own watermarks to these before serving.
        self.watermarks: Watermarks | None = None
