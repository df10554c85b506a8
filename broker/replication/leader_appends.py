"""Batches of one loop iteration on their way into a leader's log: staged, sent to the followers, then written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from broker.replication.raft_driver import RaftDriver
from broker.replication.sender import RangeSender
from broker.replication.sequence_gaps import SequenceGaps
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader, parse_header, stamp
from protocol.records.control import Marker, build_marker
from storage.disk import Buffer, DiskFullError
from storage.producer_state import NO_ATTEMPT, Duplicate, Gap

if TYPE_CHECKING:
    from broker.replication.replica import Replica

logger = structlog.get_logger()


class LeaderAppends:
    """Of one replica. A `broker.scheduling.turn.Writer`."""

    __slots__ = (
        "_carry_out",
        "_group",
        "_is_noted",
        "_replica",
        "_sender",
        "_staged",
        "_staged_headers",
        "_waits",
        "gaps",
    )

    def __init__(
        self,
        replica: Replica,
        sender: RangeSender,
        driver: RaftDriver,
    ) -> None:
        self._replica = replica
        self._group = replica.group
        self._sender = sender
        self._waits = replica.waits
        self._carry_out = driver.carry_out
        self.gaps = SequenceGaps()
        #: Batches that have offsets and are not in the log yet. Invariant: nothing is staged and no leadership ends
        #: between `send_pending` and `write_pending`.
        self._staged: list[Buffer] = []
        self._staged_headers: list[BatchHeader] = []
        #: The turn will call `send_pending` and `write_pending`, also if nothing is staged by then.
        self._is_noted = False

    def append(self, header: BatchHeader, batch: bytearray | memoryview) -> tuple[int, int]:
        """Stage one validated batch. It is written when the loop iteration ends.

        Returns (base offset, end offset): of the batch, or of the one that it repeats (idempotent producers);
        the caller waits for the end offset in both cases, because a duplicate may be of a batch that is not
        committed yet. `batch` is writable and the caller's own; it is kept until written and sent.
        Raises KafkaError: not leader, sequence and epoch errors of the producer. Whatever refuses a batch before this
        is called, `gaps.arrived` has to be called before that.
        """
        group = self._group
        if not (group.is_established and group.can_propose):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica = self._replica
        if header.producer_id >= 0:
            seen = replica.producers.check(header)
            if isinstance(seen, Duplicate):
                return seen.base_offset, seen.last_offset + 1
            if isinstance(seen, Gap):
                self.gaps.refuse_once(header, seen, replica.host.now())
            self.gaps.appended(header.producer_id)
        traffic = replica.traffic
        traffic.produced_records += header.last_offset_delta + 1
        traffic.produced_bytes += len(batch)
        return self._stage(header, batch, None)

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, attempt: int = NO_ATTEMPT
    ) -> int:
        """Stage a transaction marker. Returns the end offset.

        Raises KafkaError: not leader, or `ProducerStates.check_marker` refuses the marker."""
        group, replica = self._group, self._replica
        if not (group.is_established and group.can_propose):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica.producers.check_marker(producer_id, producer_epoch, marker.coordinator_epoch, attempt)
        batch = build_marker(producer_id, producer_epoch, marker, replica.host.now_ms())
        _, end_offset = self._stage(parse_header(batch), batch, marker)
        if attempt != NO_ATTEMPT:
            replica.producers.note_marker_attempt(producer_id, attempt)
        replica.host.marker_appended(replica, producer_id, end_offset, is_commit=marker.is_commit)
        return end_offset

    def _stage(
        self, header: BatchHeader, batch: bytearray | memoryview, marker: Marker | None
    ) -> tuple[int, int]:
        replica = self._replica
        base_offset = replica.next_offset
        stamped = stamp(batch, header, base_offset, self._group.term)
        replica.producers.record(stamped, marker)
        if not self._is_noted:
            self._is_noted = True
            replica.host.note_writer(self)
        self._staged.append(batch)
        self._staged_headers.append(stamped)
        end_offset = base_offset + header.last_offset_delta + 1
        replica.next_offset = end_offset
        return base_offset, end_offset

    def send_pending(self) -> None:
        """Have the group replicate what is staged. `write_pending` follows in the same loop iteration: the leader's own
        copy counts no more than theirs, so followers need not wait for it (Raft thesis, section 10.2.1)."""
        if not self._staged:
            return
        replica, group = self._replica, self._group
        end_index = group.end_index + replica.next_offset - replica.log.end_offset
        size_bytes = self._sender.keep_appended(
            self._staged, self._staged_headers, group.end_index, end_index
        )
        self._carry_out(group.appended(end_index, size_bytes, replica.host.now()))
        if group.has_deferred:
            replica.host.note_deferred(replica)

    def write_pending(self) -> None:
        """Write what is staged and `send_pending` has told the group of, as one vectored write."""
        self._is_noted = False
        staged, self._staged = self._staged, []
        headers, self._staged_headers = self._staged_headers, []
        if not staged:
            return
        replica = self._replica
        try:
            replica.log.append_batches(staged, headers)
        except DiskFullError as error:
            self._write_refused(error)
            return
        assert replica.log.end_offset == replica.next_offset, "offsets were handed out gap-free"
        assert replica.log.end_index == self._group.end_index, "what is written was sent"
        # An answer that waits for other replicas, too, needs their replies: the loop should be free to read them, and
        # the processor free for a follower on this machine.
        may_block = bool(self._waits.flush) or not self._group.has_voting_followers
        replica.log_grew(len(headers), may_block=may_block)

    def append_pending(self) -> None:
        """Write what is staged now. What was accepted before a row has to be in the log before it."""
        is_noted = self._is_noted
        self.send_pending()
        self.write_pending()
        self._is_noted = is_noted  # the turn comes all the same

    def discard(self) -> None:
        """The leadership ended before the write: nothing of what is staged was appended."""
        self.gaps.clear()
        if self._staged:
            self._staged = []
            self._staged_headers = []
            self._replica.reload()

    def _write_refused(self, error: DiskFullError) -> None:
        """Disk full: nothing of this write is in the log. Clients are answered KAFKA_STORAGE_ERROR. If a follower was
        sent some of it, this leadership ends."""
        replica = self._replica
        logger.error(
            "append refused: disk full",
            topic=replica.topic,
            partition=replica.partition,
            error=str(error),
            cause=replica.key,
        )
        replica.host.space.found_full(error)
        replica.reload()
        self._sender.discard()
        self._waits.fail(ErrorCode.KAFKA_STORAGE_ERROR, replica.log.end_offset)
        self._carry_out(self._group.append_failed(replica.log.end_index, replica.host.now()))
