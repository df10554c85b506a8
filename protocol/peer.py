"""What our nodes say to each other once both have proved themselves (`protocol.peer_handshake`): declared like Kafka's
messages. `protocol.peer_frames` makes frames of them.

A group is named by topic id and partition; indexes, watermarks and ends are exclusive upper bounds (docs of `raft`).
"""

from __future__ import annotations

import uuid

from protocol.messages.produce import RecordData
from protocol.peer_frames import message_codec
from protocol.schema import (
    BOOLEAN,
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID,
    Message,
    array,
    field,
)  # fmt: skip


class PeerMessage(Message):
    """Root of what may be sent as a frame of its own."""


class Hello(PeerMessage):
    """The first frame behind the proofs, from the node that opened the connection."""

    cluster_id: str | None = field(STRING, nullable="0+")
    """None: this node belongs to no cluster yet."""
    node_id: int = field(INT32)
    directory_id: uuid.UUID = field(UUID)
    boot_id: uuid.UUID = field(UUID)
    """Made anew at each start of the process."""


class HelloReply(PeerMessage):
    error_code: int = field(INT16, default=0)
    message: str | None = field(STRING, nullable="0+", default=None)
    cluster_id: str | None = field(STRING, nullable="0+")
    node_id: int = field(INT32)
    directory_id: uuid.UUID = field(UUID)
    boot_id: uuid.UUID = field(UUID)


class GroupId(Message):
    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)


class Led(Message):
    """A group that the sender leads and the receiver replicates."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    term: int = field(INT32)
    configuration_index: int = field(INT64)
    established: bool = field(BOOLEAN)
    """Whether the first row of the leader's own term is committed."""


class Challenge(Message):
    """A listed group whose term at the sender is higher than the one that was listed."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    term: int = field(INT32)


class Ping(PeerMessage):
    """Liveness of a pair of nodes: both directions in one message (replication.md, section 5)."""

    number: int = field(INT64)
    boot_id: uuid.UUID = field(UUID)
    list_version: int = field(INT64)
    base_version: int = field(INT64)
    """The list version that `led` and `dropped` change; 0: `led` is the full list."""
    led: list[Led] = field(array(Led), default_factory=list)
    dropped: list[GroupId] = field(array(GroupId), default_factory=list)
    echo_number: int = field(INT64)
    """The number of the receiver's last ping that the sender saw; only this counts as a sign of life."""
    echo_boot_id: uuid.UUID = field(UUID)
    applied_version: int = field(INT64)
    reply_at_once: bool = field(BOOLEAN, default=False)
    """The receiver answers with a ping of its own at once: somebody waits for this round."""
    challenged: list[Challenge] = field(array(Challenge), default_factory=list)


class VoteRequest(PeerMessage):
    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    """Of the candidate's log."""
    term: int = field(INT32)
    last_term: int = field(INT32)
    end_index: int = field(INT64)
    pre_vote: bool = field(BOOLEAN)
    transfer: bool = field(BOOLEAN)
    """The leader asked for this election (TimeoutNow): a live leader is no reason to refuse."""


class VoteReply(PeerMessage):
    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    term: int = field(INT32)
    granted: bool = field(BOOLEAN)
    pre_vote: bool = field(BOOLEAN)
    log_start: int = field(INT64)
    mtro: int = field(INT64)
    mxro: int = field(INT64)


class AppendRow(Message):
    """A row of the lineage within an appended range."""

    index: int = field(INT64)
    term: int = field(INT32)
    offset: int = field(INT64)
    kind: int = field(INT8)
    payload: bytes = field(BYTES)


class Append(PeerMessage):
    """The index range [start_index, to_index): whole batches and rows. Compaction may have left holes in it."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    """Of the leader's log."""
    follower_incarnation: int = field(INT32)
    term: int = field(INT32)
    start_index: int = field(INT64)
    prev_term: int = field(INT32)
    """Of the entry before start_index."""
    to_index: int = field(INT64)
    commit_end: int = field(INT64)
    log_start: int = field(INT64)
    start_offset: int = field(INT64)
    """Of the first record at or above start_index."""
    rows: list[AppendRow] = field(array(AppendRow), default_factory=list)
    records: RecordData = field(RECORDS, nullable="0+", default=None)


class AppendReply(PeerMessage):
    """A range is accepted."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    term: int = field(INT32)
    match_end: int = field(INT64)
    """The durable end of the follower's log that is verified against this leader in this term."""
    log_start: int = field(INT64)
    """The follower's own, durable; so in the messages below."""


class AppendRejection(PeerMessage):
    """A range is rejected: the entry before it is not in the follower's log, or the leader's term is over."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    term: int = field(INT32)
    start_index: int = field(INT64)
    """Of the range."""
    hint_index: int = field(INT64)
    """The logs can agree at most up to this end, ..."""
    hint_term: int = field(INT32)
    """... below which the follower's last entry has this term."""
    log_start: int = field(INT64)


class AppendError(PeerMessage):
    """The receiver of an Append could not take it, for a reason that Raft knows nothing of. Says nothing of its log."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    term: int = field(INT32)
    """Of the Append, or of the leader that is asked to send again."""
    start_index: int = field(INT64)
    """Where the range started, or where the log ends that is to go on."""
    error_code: int = field(INT16)
    """CORRUPT_MESSAGE: the bytes are damaged. KAFKA_STORAGE_ERROR: there was no room, and there may be by now."""


class LogStartUpdate(Message):
    """A leader's log start, with what a follower needs to take it."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    """Of the leader's log."""
    follower_incarnation: int = field(INT32)
    term: int = field(INT32)
    commit_end: int = field(INT64)
    log_start: int = field(INT64)


class LogStartUpdates(PeerMessage):
    """What the sender leads and the receiver replicates begins later now."""

    groups: list[LogStartUpdate] = field(array(LogStartUpdate))


class LogStartAck(Message):
    """A follower's log start, durable."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    term: int = field(INT32)
    log_start: int = field(INT64)


class LogStartAcks(PeerMessage):
    groups: list[LogStartAck] = field(array(LogStartAck))


class BoundsReport(Message):
    """How far a follower has compacted its log, durably (coordinated-compaction.md, REPORT). -1: not at all."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    term: int = field(INT32)
    first_offset: int = field(INT64)
    """What lies below, nobody gets from it any more."""
    mcco: int = field(INT64)
    """Below it every key has one record at most."""
    mxfo: int = field(INT64)
    """Below it nothing carries the transactional bit but markers."""
    mtro: int = field(INT64)
    """The leader's bounds, as far as the follower knows them."""
    mxro: int = field(INT64)
    copied_in_term: int = field(INT32)
    """The term of the leader that sent the first entry of this log. -1: it was founded with the group."""
    blocked_by: int = field(INT8)
    """Why its next pass of compaction is not due: a number of `broker.replication.watermarks.blocked_by`."""
    dirty_bytes: int = field(INT64)
    """What its next pass would read anew."""


class BoundsReports(PeerMessage):
    groups: list[BoundsReport] = field(array(BoundsReport))


class BoundsUpdate(Message):
    """Below which offsets all members may remove tombstones and transaction markers (BOUNDS). -1: nowhere."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    """Of the leader's log."""
    follower_incarnation: int = field(INT32)
    term: int = field(INT32)
    mtro: int = field(INT64)
    mxro: int = field(INT64)
    must_discard: bool = field(BOOLEAN)
    """The follower's log is no copy of the group's: others have removed what would delete records in it."""


class BoundsUpdates(PeerMessage):
    groups: list[BoundsUpdate] = field(array(BoundsUpdate))


class DigestRequest(PeerMessage):
    """A leader asks a member for a digest of what its log says (broker/verification)."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    """Of the leader's log."""
    follower_incarnation: int = field(INT32)
    term: int = field(INT32)
    number: int = field(INT64)
    """Of the question. It is repeated under the same number until it is answered."""
    start_offset: int = field(INT64)
    """The view in [start_offset, end_offset) is compared, ..."""
    end_offset: int = field(INT64)
    focus_start: int = field(INT64)
    """... and there are digests of the parts of [focus_start, focus_end)."""
    focus_end: int = field(INT64)
    is_by_key: bool = field(BOOLEAN)
    """The newest record of each key counts. False: every batch does, because the topic is not compacted."""
    is_background: bool = field(BOOLEAN)
    """Nobody waits for it: it is made slowly."""


class DigestReply(PeerMessage):
    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    term: int = field(INT32)
    number: int = field(INT64)
    state: int = field(INT8)
    """A number of `broker.replication.digest_state`."""
    log_start: int = field(INT64)
    digest: bytes = field(BYTES, default=b"")
    """Count and sum of each part of the focus, if the digest is ready."""


class TimeoutNow(PeerMessage):
    """Leadership transfer: campaign at once."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    term: int = field(INT32)


class InstallSnapshot(PeerMessage):
    """Begins the rebuilding of a follower below the leader's log start (replication.md, section 7)."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    follower_incarnation: int = field(INT32)
    term: int = field(INT32)
    log_start: int = field(INT64)
    rows: list[AppendRow] = field(array(AppendRow))
    producer_snapshot: bytes = field(BYTES)
    """At `log_start`."""


class InstallSnapshotReply(PeerMessage):
    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)
    term: int = field(INT32)
    match_end: int = field(INT64)
    """The durable end of the follower's log that is verified against this leader in this term."""
    log_start: int = field(INT64)


class ControllerRequest(PeerMessage):
    """A request that another node has to carry out: the controller, or a partition's leader (protocol.controller)."""

    request_id: int = field(INT64)
    operation: int = field(INT16)
    body: bytes | None = field(BYTES, nullable="0+")
    """The request, encoded by itself: one that cannot be read is refused, and the connection goes on."""


class ControllerResponse(PeerMessage):
    request_id: int = field(INT64)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    image_end: int = field(INT64, default=0)
    """The offset behind the metadata records that were decided, or that the answer rests on: who asked passes the
    answer on when its own image has come so far."""
    body: bytes | None = field(BYTES, nullable="0+", default=None)
    """The result; None with an error."""


class FormVoter(Message):
    node_id: int = field(INT32)
    directory_id: uuid.UUID = field(UUID)


class Form(PeerMessage):
    """All configured voters answered and are empty: become a cluster (replication.md, section 10)."""

    cluster_id: str = field(STRING)
    voters: list[FormVoter] = field(array(FormVoter))


PEER_KINDS: dict[int, type[PeerMessage]] = {
    1: Hello,
    2: HelloReply,
    3: Ping,
    4: VoteRequest,
    5: VoteReply,
    6: Append,
    7: AppendReply,
    8: TimeoutNow,
    9: InstallSnapshot,
    10: InstallSnapshotReply,
    11: ControllerRequest,
    12: ControllerResponse,
    13: Form,
    15: LogStartUpdates,
    16: LogStartAcks,
    17: AppendError,
    18: AppendRejection,
    19: BoundsReports,
    20: BoundsUpdates,
    21: DigestRequest,
    22: DigestReply,
}
encode_peer, decode_peer = message_codec(PEER_KINDS)
