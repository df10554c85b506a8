"""Between the three dialects of one thing: raft's values, the lineage's rows and the peers' messages.

`raft` and `storage` do not know each other and neither knows the wire (architecture.md section 1); they meet here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from protocol import peer
from protocol.errors import ProtocolError
from raft.types import (
    AppendRejection,
    AppendReply,
    Configuration,
    InstallSnapshotReply,
    Message,
    RemovalBounds,
    ReplicaId,
    Row,
    RowKind,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from storage.lineage import Row as LineageRow

_COUNTS = struct.Struct(">HH")
_REPLICA = struct.Struct(">i16si")
_REMOVAL_BOUNDS = struct.Struct(">qq")


def encode_configuration(configuration: Configuration, bounds: RemovalBounds | None) -> bytes:
    """Payload of a CONFIGURATION row: counts of voters and learners (uint16 each), then the identities; MTRO and MXRO
    (int64 each), if there are any."""
    packed = [_REPLICA.pack(*replica) for replica in configuration.members]
    if bounds is not None:
        packed.append(_REMOVAL_BOUNDS.pack(*bounds))
    return _COUNTS.pack(len(configuration.voters), len(configuration.learners)) + b"".join(packed)


def decode_configuration(payload: bytes) -> tuple[Configuration, RemovalBounds | None]:
    """Raises ProtocolError; a row from the disk has passed its checksum, one from a peer has not."""
    try:
        voters, learners = _COUNTS.unpack_from(payload)
        end = _COUNTS.size + (voters + learners) * _REPLICA.size
        if len(payload) < end:
            raise ProtocolError(f"configuration row of {voters + learners} replicas has {len(payload)} bytes")
        replicas = tuple(ReplicaId(*each) for each in _REPLICA.iter_unpack(payload[_COUNTS.size : end]))
        bounds = RemovalBounds(*_REMOVAL_BOUNDS.unpack(payload[end:])) if len(payload) != end else None
    except struct.error as error:
        raise ProtocolError(f"configuration row: {error}") from error
    if bounds is not None and min(bounds) < -1:
        raise ProtocolError(f"configuration row with {bounds}")
    return Configuration(replicas[:voters], replicas[voters:]), bounds


def row_payload(row: Row) -> bytes:
    return b"" if row.configuration is None else encode_configuration(row.configuration, row.removal_bounds)


def row_from_log(row: LineageRow) -> Row:
    kind = RowKind(row.kind)
    if kind is not RowKind.CONFIGURATION:
        return Row(row.index, row.term, kind, None)
    return Row(row.index, row.term, kind, *decode_configuration(row.payload))


def row_to_wire(row: LineageRow) -> peer.AppendRow:
    return peer.AppendRow(
        index=row.index, term=row.term, offset=row.offset, kind=row.kind, payload=row.payload
    )


def row_from_wire(row: peer.AppendRow) -> Row:
    """Raises ProtocolError."""
    if row.kind == RowKind.LEADER and row.payload:
        raise ProtocolError(f"leader row with {len(row.payload)} bytes")
    try:
        return row_from_log(log_row_from_wire(row))
    except ValueError as error:
        raise ProtocolError(f"row of unknown kind {row.kind}") from error


def log_row_from_wire(row: peer.AppendRow) -> LineageRow:
    return LineageRow(row.index, row.term, row.offset, row.kind, bytes(row.payload))


def message_to_wire(topic_id: UUID, partition: int, self_id: ReplicaId, message: Message) -> peer.PeerMessage:
    """A group's message to another replica, addressed by topic id and partition (replication.md section 4)."""
    incarnation = self_id.incarnation
    if isinstance(message, AppendReply):  # one for every record
        return peer.AppendReply(
            topic_id=topic_id,
            partition=partition,
            incarnation=incarnation,
            term=message.term,
            match_end=message.match_end,
            log_start=message.log_start,
        )
    group: dict[str, Any] = {"topic_id": topic_id, "partition": partition, "term": message.term}
    match message:
        case VoteRequest():
            return peer.VoteRequest(
                **group,
                incarnation=incarnation,
                last_term=message.last_term,
                end_index=message.end_index,
                pre_vote=message.pre_vote,
                transfer=message.transfer,
            )
        case VoteReply():
            return peer.VoteReply(
                **group,
                incarnation=incarnation,
                granted=message.granted,
                pre_vote=message.pre_vote,
                log_start=message.watermarks.log_start,
                mtro=message.watermarks.mtro,
                mxro=message.watermarks.mxro,
            )
        case AppendRejection():
            return peer.AppendRejection(
                **group,
                incarnation=incarnation,
                start_index=message.start_index,
                hint_index=message.hint_index,
                hint_term=message.hint_term,
                log_start=message.log_start,
            )
        case TimeoutNow():
            return peer.TimeoutNow(**group, incarnation=incarnation)
        case InstallSnapshotReply():
            return peer.InstallSnapshotReply(
                **group, incarnation=incarnation, match_end=message.match_end, log_start=message.log_start
            )


def founding_configuration(replicas: Iterable[tuple[int, UUID]]) -> Configuration:
    """Row 0 of a group: the same on every founding replica, because it is computed from one committed record."""
    return Configuration(tuple(ReplicaId(node_id, directory.bytes, 0) for node_id, directory in replicas), ())
