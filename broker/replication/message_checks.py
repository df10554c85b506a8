"""What of a peer's message is checked before the group hears of it: whether it can be true at all.

`raft.plausibility` knows what a group can tell. Here is what takes the wire, the log and the metadata to tell. A
malformed message closes its connection (ProtocolError). One that contradicts what is known here is passed over, as if
it had been lost (ContradictionError). In both cases nothing was done about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.metadata.record_codec import MetadataRecordError, decode
from broker.replication import wire
from broker.replication.digest_state import DigestState
from broker.replication.watermarks.blocked_by import BlockedBy
from broker.replication.watermarks.compaction_bounds import CleanedReport
from protocol import peer
from protocol.errors import KafkaError, ProtocolError
from protocol.records.batch import BatchHeader
from protocol.records.control import read_marker
from protocol.records.record import iter_records
from raft import plausibility
from raft.plausibility import Refusal
from raft.types import ReplicaId, Row
from storage.errors import CorruptLogError
from storage.journal_records import UNSET
from storage.producer_snapshot import SnapshotDamagedError, decode_snapshot

if TYPE_CHECKING:
    from broker.replication.ranges import Batches
    from broker.replication.replica import Replica


class ContradictionError(Exception):
    """A message contradicts what is known here. Whether its sender is wrong, or this replica, cannot be known."""


def check(refusal: Refusal | None) -> None:
    """Raises ContradictionError, or ProtocolError for what is malformed."""
    if refusal is not None:
        raise (ContradictionError if refusal.is_contradiction else ProtocolError)(refusal.reason)


def check_log_start(replica: Replica, log_start: int) -> None:
    """Beyond `raft.plausibility`: nothing of the metadata is ever deleted. A node that began it anew would end."""
    if log_start > 0 and replica.is_metadata:
        raise ProtocolError(f"a log start of {log_start}, of metadata")


def cleaned_report(message: peer.BoundsReport) -> CleanedReport:
    """Raises ProtocolError."""
    try:
        blocked_by = BlockedBy(message.blocked_by)
    except ValueError as error:
        raise ProtocolError(str(error)) from None
    if message.dirty_bytes < 0:
        raise ProtocolError(f"{message.dirty_bytes} dirty bytes")
    return CleanedReport(
        message.first_offset,
        message.mcco,
        message.mxfo,
        message.mtro,
        message.mxro,
        message.copied_in_term,
        blocked_by,
        message.dirty_bytes,
    )


def check_cleaned_report(replica: Replica, term: int, report: CleanedReport) -> None:
    """What a follower says of its compaction: nobody compacts what is not committed."""
    check(plausibility.log_start_ack_refusal(replica.group, term, report.first_offset))
    cleaned_end = max(report.mcco, report.mxfo)
    if min(report.mcco, report.mxfo, report.mtro, report.mxro, report.copied_in_term) < UNSET:
        raise ProtocolError(f"{report}")
    if max(cleaned_end, report.mtro, report.mxro) > plausibility.MAX_INDEX or report.copied_in_term > term:
        raise ProtocolError(f"{report} in term {term}")
    if cleaned_end > replica.log.end_offset and replica.is_leader and term == replica.group.term:
        raise ContradictionError(
            f"cleaned up to {cleaned_end} where the log ends at {replica.log.end_offset}"
        )


def check_removal_bounds(replica: Replica, leader: ReplicaId, term: int, mtro: int, mxro: int) -> None:
    """What a leader says that everybody may remove. A follower may be behind all of it."""
    check(plausibility.leadership_refusal(replica.group, leader, term))
    if min(mtro, mxro) < UNSET or max(mtro, mxro) > plausibility.MAX_INDEX:
        raise ProtocolError(f"bounds of {mtro} and {mxro}")


def check_digest_request(replica: Replica, leader: ReplicaId, message: peer.DigestRequest) -> None:
    """A follower may be behind all of it."""
    check(plausibility.leadership_refusal(replica.group, leader, message.term))
    ends = message.start_offset, message.focus_start, message.focus_end, message.end_offset
    if list(ends) != sorted(ends) or not 0 <= ends[0] <= ends[-1] <= plausibility.MAX_INDEX:
        raise ProtocolError(f"a digest of {ends[1:3]} in [{ends[0]}, {ends[3]})")


def check_digest_reply(replica: Replica, message: peer.DigestReply) -> None:
    """The digest itself is looked at by whoever asked for it."""
    check(plausibility.log_start_ack_refusal(replica.group, message.term, message.log_start))
    check_log_start(replica, message.log_start)
    try:
        DigestState(message.state)
    except ValueError as error:
        raise ProtocolError(str(error)) from None


def check_range_message(replica: Replica, leader: ReplicaId, message: peer.Append) -> list[Row]:
    """The rows of a range, which may be true as far as the group can tell."""
    check_log_start(replica, message.log_start)
    rows: list[Row] = []
    if message.rows:
        rows = _rows(message.rows)
        # A range has one row at most, as its last entry.
        if message.rows[-1].offset != message.start_offset + message.to_index - message.start_index - 1:
            raise ProtocolError(f"a row at offset {message.rows[-1].offset}")
    refusal = plausibility.append_refusal(
        replica.group,
        leader,
        message.term,
        message.start_index,
        message.start_offset,
        message.prev_term,
        message.to_index,
        rows,
        message.commit_end,
        message.log_start,
    )
    if refusal is not None:
        check(refusal)
    return rows


def check_batches(replica: Replica, message: peer.Append, batches: Batches, rows: list[Row]) -> None:
    """The batches of a range that passed `check_range_message` and `check_range`: where the log goes on with them, a
    batch ends on both sides. What is metadata can be read."""
    if replica.is_metadata:
        check_metadata(batches.views)
    check_markers(batches)
    end = _kept_end(replica, message, rows)
    if end is None:
        return
    offset = replica.log.lineage.offset_of_index(end)
    # What is committed is never truncated, so not even a filler here goes on beyond a difference.
    is_cut = end < replica.group.end_index and _batch_across(replica, offset) is not None
    if batches.spans(offset) or is_cut:
        raise ContradictionError(f"a batch across offset {offset}, up to where the logs agree")


def cuts(replica: Replica, message: peer.Append, rows: list[Row]) -> bool:
    """Whether the log is truncated if the group hears of this range, which passed `check_range_message`."""
    end = _kept_end(replica, message, rows)
    return end is not None and end < replica.group.end_index


def _kept_end(replica: Replica, message: peer.Append, rows: list[Row]) -> int | None:
    """The end of what stays of the log. None: the range begins at its end, or is not going to be taken."""
    group, start_index = replica.group, message.start_index
    if start_index >= group.end_index or message.term < group.term or group.is_installing:
        return None
    if group.term_before(start_index) != message.prev_term:
        return None  # it is going to be rejected: the logs differ before it, so it may begin anywhere
    return plausibility.kept_end(group, start_index, message.to_index, rows)


def check_metadata(batches: Iterable[memoryview]) -> None:
    """Whether every record can be read: one that cannot would end every node, and again at every start."""
    try:
        for batch in batches:
            for record in iter_records(batch):
                if record.key is None:
                    raise ProtocolError("a metadata record without a key")
                decode(bytes(record.key), None if record.value is None else bytes(record.value))
    except (KafkaError, MetadataRecordError) as error:
        raise ProtocolError(f"metadata that cannot be read: {error}") from error


def check_markers(batches: Batches) -> None:
    """Whether every transaction marker can be read: the state of the producers follows from them."""
    for header, batch in zip(batches.headers, batches.views, strict=True):
        if header.is_control:
            if header.compression_id or header.last_offset_delta:
                raise ProtocolError(f"a control batch at {header.base_offset} that no leader writes")
            try:
                read_marker(batch)
            except KafkaError as error:
                raise ProtocolError(f"a marker that cannot be read: {error}") from error


def check_match(replica: Replica, follower: ReplicaId, match_end: int) -> None:
    """The end of what a follower has: it holds whole batches. Of what is on its way to it that is known."""
    progress = replica.group.progress_of(follower)
    if progress is None or match_end <= progress.match_end:
        return
    if not any(end == match_end for end, _ in progress.inflight) and _is_inside_records(replica, match_end):
        raise ContradictionError(f"a log that ends inside a batch, at {match_end}")


def check_corruption_report(replica: Replica, start_index: int) -> None:
    """Where a follower found damage: a range begins with a batch or a row."""
    if start_index < 0 or _is_inside_records(replica, start_index):
        raise ContradictionError(f"damage in a range that begins inside a batch, at {start_index}")


def check_snapshot(replica: Replica, leader: ReplicaId, message: peer.InstallSnapshot) -> list[Row]:
    """The rows of a snapshot, which may be true and can be read again."""
    check_log_start(replica, message.log_start)
    rows = _rows(message.rows)
    if any(row.offset != row.index - at for at, row in enumerate(message.rows)):
        raise ProtocolError("rows at offsets that are not theirs")
    check(plausibility.install_snapshot_refusal(replica.group, leader, message.term, message.log_start, rows))
    try:
        decode_snapshot(message.producer_snapshot, message.log_start)
    except SnapshotDamagedError as error:
        raise ProtocolError(f"the producers' state: {error}") from error
    return rows


def _is_inside_records(replica: Replica, index: int) -> bool:
    """Whether a batch goes on beyond this index. A filler may: another replica may have what it stands for in part."""
    across = _batch_across(replica, replica.log.lineage.offset_of_index(index))
    return across is not None and not across.is_filler


def _batch_across(replica: Replica, offset: int) -> BatchHeader | None:
    """Raises ContradictionError where the own log cannot tell, because it is corrupt."""
    try:
        return replica.log.batch_across(offset)
    except CorruptLogError as error:
        replica.host.log_corrupt(replica, error)
        raise ContradictionError(f"the log here is corrupt: {error}") from error


def _rows(rows: Iterable[peer.AppendRow]) -> list[Row]:
    return [wire.row_from_wire(row) for row in rows]
