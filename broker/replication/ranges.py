"""Ranges of the Raft log as messages: built by the leader, checked by the follower before anything believes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.replication.wire import row_to_wire
from protocol import peer
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import (
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    check_crc,
    iter_batches,
    parse_header,
)
from protocol.records.builder import build_filler
from raft.types import Send
from storage.disk import Buffer
from storage.errors import CorruptLogError
from storage.lineage import Row as LineageRow
from storage.log import Log

if TYPE_CHECKING:
    from broker.replication.replica import Replica

#: A range sent to a follower holds at most this many bytes of batches (or one larger batch).
MAX_APPEND_BYTES = 1 << 20
#: Of the metadata log, whose followers read every record before they do anything else: some ten milliseconds' worth.
MAX_METADATA_APPEND_BYTES = 1 << 16


def append_message(
    replica: Replica, send: Send, records: Sequence[Buffer], row: LineageRow | None, to_index: int
) -> peer.Append:
    group = replica.group
    return peer.Append(
        topic_id=replica.key.topic_id,
        partition=replica.key.partition,
        incarnation=group.self_id.incarnation,
        follower_incarnation=send.to.incarnation,
        term=group.term,
        start_index=send.start_index,
        prev_term=send.prev_term,
        to_index=to_index,
        commit_end=group.commit_end,
        log_start=replica.log.start_offset,
        start_offset=replica.log.lineage.offset_of_index(send.start_index),
        rows=[] if row is None else [row_to_wire(row)],
        records=records,
    )


def corrupt_range(replica: Replica, message: peer.Append) -> peer.AppendError:
    """Says that the leader's bytes are damaged; it will look at its own."""
    return _append_error(replica, ErrorCode.CORRUPT_MESSAGE, message.term, message.start_index)


def send_again(replica: Replica) -> peer.AppendError:
    """Says that there may be room now for what the leader sent and this follower could not keep."""
    group = replica.group
    return _append_error(replica, ErrorCode.KAFKA_STORAGE_ERROR, group.term, group.end_index)


def _append_error(replica: Replica, error: ErrorCode, term: int, start_index: int) -> peer.AppendError:
    return peer.AppendError(
        topic_id=replica.key.topic_id,
        partition=replica.key.partition,
        incarnation=replica.group.self_id.incarnation,
        term=term,
        start_index=start_index,
        error_code=error,
    )


class Batches(NamedTuple):
    """The batches of a range, in order: what their headers say, and their bytes."""

    headers: list[BatchHeader]
    views: list[memoryview]

    def fresh(self, end_offset: int) -> Batches:
        """Those that a log lacks that ends there."""
        if not self.headers or self.headers[0].base_offset >= end_offset:
            return self
        count = sum(header.next_offset <= end_offset for header in self.headers)
        return Batches(self.headers[count:], self.views[count:]).beginning_at(end_offset)

    def beginning_at(self, offset: int) -> Batches:
        """Without that part of the first one that lies below `offset`: it is a filler then."""
        if not self.headers or self.headers[0].base_offset >= offset:
            return self
        first = self.headers[0]
        assert first.is_filler and offset < first.next_offset
        part = build_filler(offset, first.next_offset, first.leader_epoch)
        return Batches([parse_header(part), *self.headers[1:]], [memoryview(part), *self.views[1:]])

    def spans(self, offset: int) -> bool:
        """Whether one that is no filler begins below `offset` and goes on above it."""
        return any(
            header.base_offset < offset < header.next_offset and not header.is_filler
            for header in self.headers
        )


def check_range(message: peer.Append) -> Batches:
    """The batches of a received range, each checked: framing, CRC, continuity, epoch (replication.md section 2).

    A range holds at most one row, as its last entry, so all its batches are of the term before its start.
    Raises KafkaError(CORRUPT_MESSAGE).
    """
    records = message.records
    return _check_whole(
        records if isinstance(records, memoryview) else None,
        message.start_offset,
        message.prev_term,
        message.to_index - message.start_index - len(message.rows),
    )


def check_own_range(log: Log, start_index: int) -> None:
    """Read again what a follower found damaged. Raises CorruptLogError where it is this log that is bad."""
    if not 0 < start_index < log.end_index:
        return
    if log.lineage.offset_of_index(start_index) < log.first_stored_offset:
        return  # deleted since
    part = log.read_range(start_index, log.end_index, MAX_APPEND_BYTES)
    lineage = log.lineage
    try:
        _check_whole(
            None if part.data is None else part.data.view(),
            lineage.offset_of_index(start_index),
            lineage.rows[lineage.rows_below_index(start_index) - 1].term,
            part.end_index - start_index - (part.row is not None),
        )
    except KafkaError as error:
        raise CorruptLogError(log.directory, start_index, str(error)) from error


def _check_whole(records: memoryview | None, start_offset: int, term: int, offset_count: int) -> Batches:
    """All batches of a range, which hold so many offsets. The first may be a filler that begins below the range: this
    leader has compacted across the end of what the follower has."""
    headers: list[BatchHeader] = []
    views: list[memoryview] = []
    records = records or memoryview(b"")
    if term < 0 and records:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batches in term {term}, in which nobody leads")
    end_offset, end_position = start_offset, 0
    for position, header in iter_batches(records):
        if header.magic != MAGIC or header.leader_epoch != term:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"batch at {header.base_offset} has a wrong epoch or magic"
            )
        if header.last_offset_delta < 0:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch at {header.base_offset} holds no offset")
        if header.base_offset != end_offset and (headers or not _is_filler_across(header, start_offset)):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"batch at {header.base_offset} instead of {end_offset}"
            )
        if not check_crc(records, position, header):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"batch at {header.base_offset} has a wrong CRC")
        end_offset = header.next_offset
        end_position = position + header.length + LENGTH_PREFIX_BYTES
        headers.append(header)
        views.append(records[position:end_position])
    if end_position != len(records):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a range ends inside a batch")
    if end_offset - start_offset != offset_count:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"a range of {offset_count} offsets from {start_offset} on ends at {end_offset}",
        )
    return Batches(headers, views).beginning_at(start_offset)


def _is_filler_across(header: BatchHeader, offset: int) -> bool:
    return header.is_filler and header.base_offset < offset < header.next_offset
