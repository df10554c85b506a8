"""One partition on this node: where Raft group, log and producer state meet.

The group decides, the log keeps, this class carries facts and orders between them. Every public method is one
fact (an append arrived, a flush finished, a vote came in) and runs to its end without waiting.

Leader, per turn:  append() stages stamped batches -> send_pending() tells the group, which has them sent to the
followers from memory -> write_pending() writes them at once, while the followers are at work -> persisted() and append
replies move the commit index -> acknowledgements and long polls are released.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from broker.config.topic_config import TopicConfig
from broker.metadata.ids import METADATA_TOPIC_ID
from broker.replication import wire
from broker.replication.producer_state_maintenance import ProducerStateMaintenance
from broker.replication.receiver import RangeReceiver
from broker.replication.replica_host import ReplicaHost
from broker.replication.sender import RangeSender
from broker.replication.waits import Acknowledged, AckQueue, FetchWaiter
from broker.replication.watermarks.log_start import LogStart
from protocol import peer
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader, TimestampType, stamp
from protocol.records.validate import RecordRules
from raft.group import Group
from raft.types import (
    AppendRejection,
    Configuration,
    HardState,
    Message,
    Output,
    ProposalRefusedError,
    ReplicaId,
    Role,
    Row,
    RowKind,
)
from storage.disk import Buffer, DiskFullError
from storage.errors import CorruptLogError
from storage.log import Log
from storage.log_types import GroupKey
from storage.producer_snapshot import load_producers
from storage.producer_state import Duplicate, ProducerStates

logger = structlog.get_logger()

#: A member that has had, within so long, all that the leader had then is one to count on when members change.
CAUGHT_UP_S = 1.0


class Replica:
    """One partition's replica. Created with its log opened and its group restored."""

    def __init__(
        self,
        host: ReplicaHost,
        key: GroupKey,
        topic: str,
        log: Log,
        group: Group,
        producers: ProducerStates,
        config: TopicConfig,
    ) -> None:
        self.host = host
        self.key = key
        self.topic = topic
        self.is_metadata = key.topic_id == METADATA_TOPIC_ID
        self.log = log
        self.group = group
        self.producers = producers
        self._producer_maintenance = ProducerStateMaintenance(log)
        self._use_config(config)
        #: Offset of the next record; log.end_offset <= next_offset, the difference is staged for this turn.
        self.next_offset = log.end_offset
        #: First offset clients may not see yet. Never goes back while the process lives.
        self.high_watermark = log.start_offset
        self._log_start = LogStart(self)
        #: Until `stop`: a late flush or timer must not wake a replica that is gone.
        self.is_open = True
        #: Deadline that the host's timer heap knows of.
        self.timer_at: float | None = None
        #: Batches of this turn that are not in the log yet. Invariant: nothing is staged and no leadership ends between
        #: `send_pending` and `write_pending`.
        self._staged: list[Buffer] = []
        self._staged_headers: list[BatchHeader] = []
        self._sender = RangeSender(self)
        self._receiver = RangeReceiver(self)
        self._commit_waits = AckQueue()
        self._flush_waits = AckQueue()
        self._fetch_waiters: dict[FetchWaiter, None] = {}

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's settings have changed: they count from the next batch on, and for who waits now."""
        self._use_config(config)
        # Holes that are there stay, whatever the policy is now.
        self.log.config = replace(config.log_config, may_have_holes=self.log.config.may_have_holes)
        if self._commit_waits:
            self._commit_waits.release(self._acknowledged_offset())

    def _use_config(self, config: TopicConfig) -> None:
        """The topic's settings, and what the produce path asks of them with every batch."""
        self.config = config
        self.group.min_durable = config.min_insync_replicas
        self.record_rules = RecordRules(
            config.is_compacted,
            TimestampType.LOG_APPEND_TIME if config.is_log_append_time else TimestampType.CREATE_TIME,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )

    def log_replaced(self, log: Log, producers: ProducerStates) -> None:
        """An install put another log in the place of the old one."""
        self.log = log
        self.producers = producers
        self._producer_maintenance = ProducerStateMaintenance(log)
        self.next_offset = log.end_offset
        self._sender.forget()
        self._log_start.log_replaced()

    # -- what clients and handlers ask -------------------------------------------------------------------

    @property
    def partition(self) -> int:
        return self.key[1]

    @property
    def is_leader(self) -> bool:
        return self.group.leading is not None

    @property
    def leader_epoch(self) -> int:
        return self.group.term

    @property
    def committed_configuration_index(self) -> int:
        """Index of the row of the newest committed configuration; what leadership announcements carry."""
        if self.group.configuration_index < self.group.commit_end:
            return self.group.configuration_index
        rows = (row.index for row in reversed(self.log.lineage.rows) if row.kind == RowKind.CONFIGURATION)
        return next((index for index in rows if index < self.group.commit_end), -1)

    @property
    def is_serving(self) -> bool:
        """Leader whose first row is committed: only now may it answer for the partition."""
        return self.group.is_established

    @property
    def last_stable_offset(self) -> int:
        """No transactions yet, so nothing is ever open below the high watermark."""
        return self.high_watermark

    @property
    def log_start_offset(self) -> int:
        """The committed log start: durable on a majority (replication.md section 6). -1 while a leader that has just
        won does not know what readers were shown."""
        return self._log_start.committed if self._log_start.establish_committed() else -1

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Of who reads. Fencing by KIP-320: -1 is no check."""
        if not (self.is_serving and self._log_start.establish_committed()):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch >= 0 and current_leader_epoch != self.group.term:
            older = current_leader_epoch < self.group.term
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def may_become(self, configuration: Configuration) -> bool:
        """Whether a majority of these voters is there, where some go, and has the log start that readers were shown:
        otherwise, some changes later, a majority might be of those that lack it. Not while this leader does not know
        what that is."""
        group, log_start, voters = self.group, self._log_start, configuration.voters
        if len(voters) < len(group.configuration.voters):
            now = self.host.now()
            there = [voter for voter in voters if group.is_caught_up(voter, now, CAUGHT_UP_S)]
            if 2 * len(there) <= len(voters):
                return False
        return log_start.establish_committed() and group.majority_log_start(voters) >= log_start.committed

    @property
    def must_leave_reserve(self) -> bool:
        """What is left of the disk is not for this log, but for votes, rows and metadata (replication.md section 2)."""
        return self.host.is_low_on_space and not self.is_metadata

    def check_in_sync(self) -> None:
        """min.insync.replicas before the append; beyond a majority it also delays the answer."""
        required = self.config.min_insync_replicas
        if required > 1:
            if not self.is_serving:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            in_sync = self.group.in_sync(self.host.now(), self.host.replica_lag_time_max_s)
            if len(in_sync) < required:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    # -- leader: produce ---------------------------------------------------------------------------------

    def append(self, header: BatchHeader, batch: bytearray | memoryview) -> tuple[int, int]:
        """Stage one validated batch for this turn's write.

        Returns (base offset, end offset): of the batch, or of the one that it repeats (idempotent producers);
        the caller waits for the end offset in both cases, because a duplicate may be of a batch that is not
        committed yet. `batch` is writable and the caller's own; it is kept until written and sent.
        Raises KafkaError: not leader, sequence and epoch errors of the producer.
        """
        group = self.group
        if not (group.is_established and group.can_propose):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if header.producer_id >= 0:
            seen = self.producers.check(header)
            if isinstance(seen, Duplicate):
                return seen.base_offset, seen.last_offset + 1
        base_offset = self.next_offset
        stamped = stamp(batch, header, base_offset, group.term)
        self.producers.record(stamped)
        if not self._staged:
            self.host.note_writer(self)
        self._staged.append(batch)
        self._staged_headers.append(stamped)
        self.next_offset = base_offset + header.last_offset_delta + 1
        return base_offset, self.next_offset

    def wait_committed(self, end_offset: int, waiter: Acknowledged, slot: int) -> None:
        """Call the waiter when everything below `end_offset` is committed (acks=all)."""
        if end_offset <= self.high_watermark and self._acknowledged_offset() >= end_offset:
            waiter.partition_done(slot, ErrorCode.NONE)
        else:
            self._commit_waits.add(end_offset, waiter, slot)

    def wait_flushed(self, end_offset: int, waiter: Acknowledged, slot: int) -> None:
        """Call the waiter when everything below `end_offset` is durable here (acks=1)."""
        if self._offset_of(self.group.persisted_end) >= end_offset:
            waiter.partition_done(slot, ErrorCode.NONE)
        else:
            self._flush_waits.add(end_offset, waiter, slot)

    def add_fetch_waiter(self, waiter: FetchWaiter) -> None:
        """Wake it once. Adding it again changes nothing."""
        self._fetch_waiters[waiter] = None

    def remove_fetch_waiter(self, waiter: FetchWaiter) -> None:
        self._fetch_waiters.pop(waiter, None)

    def delete_records(self, offset: int) -> int:
        """Have everything below `offset` deleted (DeleteRecords; -1: all that clients may see). Returns the offset for
        which to `wait_deleted`. Raises KafkaError: not leader, topic without the policy, offset not within the log."""
        self.check_leader_epoch(-1)
        if not self.config.is_deleted_by_retention:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy is not delete")
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self._log_start.raise_target(offset)
        return offset

    def wait_deleted(self, offset: int, waiter: Acknowledged, slot: int) -> None:
        """Call the waiter when a majority has a log start at or above `offset`."""
        self._log_start.wait_committed(offset, waiter, slot)

    def log_start_persisted(self, offset: int) -> None:
        """What the journal was given is durable."""
        self._log_start.persisted(offset)

    def log_start_update_received(
        self, leader: ReplicaId, term: int, commit_end: int, log_start: int
    ) -> None:
        """Follower: the leader's log start."""
        out = self.group.commit_told(leader, term, commit_end)
        if out is not None:
            self.apply(out)
            self._log_start.raise_target(log_start)

    def log_start_ack_received(self, follower: ReplicaId, term: int, log_start: int) -> None:
        """Leader: a follower's log start is durable."""
        if self.group.log_start_replied(follower, term, log_start):
            self._log_start.raise_target(log_start)
            self._log_start.advance_committed()

    def send_pending(self) -> None:
        """Have the group replicate what this turn staged. `write_pending` follows in the same turn: the leader's own
        copy counts no more than theirs, so followers need not wait for it (Raft thesis, section 10.2.1)."""
        if not self._staged:
            return
        group = self.group
        end_index = group.end_index + self.next_offset - self.log.end_offset
        size_bytes = self._sender.keep(self._staged, self._staged_headers, group.end_index, end_index)
        self.apply(group.appended(end_index, size_bytes, self.host.now()))
        if group.has_deferred:
            self.host.note_deferred(self)

    def write_pending(self) -> None:
        """Write what this turn staged and `send_pending` has told the group of, as one vectored write."""
        staged, self._staged = self._staged, []
        headers, self._staged_headers = self._staged_headers, []
        if not staged:
            return
        try:
            self.log.append_batches(staged, headers)
        except DiskFullError as error:
            self._write_refused(error)
            return
        assert self.log.end_offset == self.next_offset, "offsets were handed out gap-free"
        assert self.log.end_index == self.group.end_index, "what is written was sent"
        # Who waits for others, too, has to hear them, and lets the one that it sent to have this processor meanwhile.
        may_block = bool(self._flush_waits) or not self.group.has_voting_followers
        self.log_grew(len(headers), may_block=may_block)

    def settle_pending(self) -> None:
        """What was accepted before a row is in the log before it."""
        self.send_pending()
        self.write_pending()

    def log_grew(self, batches: int, *, may_block: bool = True) -> None:
        """So many batches were appended; nothing is flushed yet. `may_block`: only this flush is waited for."""
        self._producer_maintenance.batches_appended(self.log, self.producers, batches)
        self.host.log_dirty(self, may_block=may_block)

    def _write_refused(self, error: DiskFullError) -> None:
        """Disk full: nothing of this turn is in the log. It is answered KAFKA_STORAGE_ERROR, and who was sent some of
        it ends this leadership."""
        logger.error(
            "append refused: disk full", topic=self.topic, partition=self.partition, error=str(error)
        )
        self.reload()
        self._sender.forget()
        self._fail_waits(ErrorCode.KAFKA_STORAGE_ERROR, self.log.end_offset)
        self.apply(self.group.append_failed(self.log.end_index, self.host.now()))

    def reload(self) -> None:
        """Offsets and producers as the log has them: what was staged, or cut off, never was."""
        self.next_offset = self.log.end_offset
        self._producer_maintenance.log_truncated(self.log)
        try:
            self.producers = load_producers(self.log)
        except CorruptLogError as error:
            self.host.log_corrupt(self, error)

    # -- follower ----------------------------------------------------------------------------------------

    def append_received(self, sender: ReplicaId, message: peer.Append) -> None:
        """A range from the leader."""
        if not self._receiver.received(sender, message):
            return
        if message.log_start > self.log.start_offset and message.term == self.group.term:
            self._log_start.raise_target(message.log_start)

    # -- facts from the disk and from peers --------------------------------------------------------------

    def persisted(self, end_index: int) -> None:
        """A flush round finished: everything below `end_index` is durable here."""
        self.apply(self.group.persisted(end_index, self.host.now()))
        self._log_start.advance_to_target()
        if self._flush_waits:
            self._flush_waits.release(self._offset_of(self.group.persisted_end))
        if self._commit_waits:
            self._commit_waits.release(self._acknowledged_offset())

    def hard_state_persisted(self, state: HardState) -> None:
        """A term and a vote that the group ordered to be written are durable here."""
        self.apply(self.group.hard_state_persisted(state, self.host.now()))

    def prepare_reply(self, end_index: int) -> Callable[[], None] | None:
        """Before a flush up to `end_index` that the loop waits for: prepare the reply to the leader, so that it
        leaves as soon as the flush is over. The bookkeeping follows with `persisted`."""
        acknowledgement = self.group.take_acknowledgement(end_index)
        if acknowledgement is None:
            return None
        leader, reply = acknowledgement
        return self.host.prepare(leader, self._to_wire(reply))

    def append_error(self, sender: ReplicaId, message: peer.AppendError) -> None:
        """A follower could not take a range."""
        if message.error_code == ErrorCode.CORRUPT_MESSAGE:
            # A late one is of a range that is not here any more: reading there what is, would look like corruption.
            if self.is_leader and message.term == self.group.term:
                self.host.range_refused(self, sender, message.start_index)
        elif message.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            self.apply(self.group.resend_requested(sender, message.term, self.host.now()))

    def append_reply(self, sender: ReplicaId, message: peer.AppendReply) -> None:
        """A follower accepted a range."""
        log_start = message.log_start
        self.apply(
            self.group.append_replied(sender, message.term, message.match_end, log_start, self.host.now())
        )
        if self._commit_waits:
            self._commit_waits.release(self._acknowledged_offset())
        self._follower_log_start_named(log_start)

    def append_rejection(self, sender: ReplicaId, message: peer.AppendRejection) -> None:
        """A follower rejected a range."""
        rejected = AppendRejection(
            message.term, message.start_index, message.hint_index, message.hint_term, message.log_start
        )
        self.apply(self.group.append_rejected(sender, rejected, self.host.now()))
        self._follower_log_start_named(message.log_start)

    def _follower_log_start_named(self, log_start: int) -> None:
        if self.is_leader:
            self._log_start.raise_target(log_start)
            self._log_start.advance_committed()

    def transfer_leadership(self, to: ReplicaId) -> bool:
        """Begin to transfer the leadership. False: one is under way already, or `to` is no reachable voter."""
        self.settle_pending()  # what is accepted already is not lost to the transfer
        try:
            self.apply(self.group.transfer_leadership(to, self.host.now()))
        except ProposalRefusedError:
            return False
        return True

    def timer_fired(self) -> None:
        if not self.is_leader and not self.host.may_campaign:
            return
        self.apply(self.group.tick(self.host.now()))

    # -- orders of the group -----------------------------------------------------------------------------

    def apply(self, out: Output) -> None:
        """Carry out what the group ordered. The order of the steps is part of the promise: the log is changed
        before anything is said, and what depends on the disk is handed to the flush, never sent here."""
        assert out.truncate_to is None, "truncation is carried out with the range that caused it"
        if out.hard_state is not None:
            self.host.persist_vote(self, out.hard_state)
        for row in out.rows:
            self._append_row(row)
        for send in out.sends:
            self._sender.send(send)
        for to, message in out.messages:
            self.host.send(to, self._to_wire(message))
        if out.messages_after_flush:
            messages = out.messages_after_flush
            self.host.after_flush(lambda: self._send_durable(messages))
        for snapshot in out.snapshots:
            self.host.send_snapshot(self, snapshot)
        if out.watermarks is not None:
            self._log_start.inherit(out.watermarks.log_start)
        if out.commit_advanced:
            self._commit_advanced()
        self.settle(out)

    def settle(self, out: Output) -> None:
        """What an output brings about last, and also where the rest of it must be thrown away."""
        if out.role_changed:
            self._role_changed()
        if self.group.deadline != self.timer_at:
            self.host.timer_changed(self)

    def _send_durable(self, messages: Sequence[tuple[ReplicaId, Message]]) -> None:
        """What these messages depend on is on disk."""
        for to, message in messages:
            self.host.send(to, self._to_wire(message))

    def _to_wire(self, message: Message) -> peer.PeerMessage:
        return wire.message_to_wire(self.key.topic_id, self.key.partition, self.group.self_id, message)

    def _append_row(self, row: Row) -> None:
        written = self.log.append_row(row.term, row.kind, wire.row_payload(row))
        assert written.index == row.index, "the lineage and the group agree on indexes"
        self._sender.forget()
        self.host.log_dirty(self)

    def send_deferred(self) -> None:
        """Send the deferred followers what was batched for them."""
        self.apply(self.group.send_deferred(self.host.now()))
        self._sender.release()

    # -- watermarks and roles ----------------------------------------------------------------------------

    def _offset_of(self, end_index: int) -> int:
        """The offset of the first record at or above an index end."""
        return self.log.lineage.offset_of_index(end_index)

    def _acknowledged_offset(self) -> int:
        """Below this, records are committed and durable on max(majority, min.insync.replicas) voters."""
        voters = len(self.group.configuration.voters)
        if self.config.min_insync_replicas <= voters // 2 + 1:
            return self.high_watermark
        if not self.is_leader:
            return 0  # deposed by what it has just committed, its own removal: nobody reports to it any more
        durable = self.group.durable_end(min(self.config.min_insync_replicas, voters))
        return self._offset_of(min(self.group.commit_end, durable))

    def _commit_advanced(self) -> None:
        offset = self._offset_of(self.group.commit_end)
        assert offset >= self.high_watermark, "the high watermark never goes back"
        self.high_watermark = offset
        self._sender.release()
        if self._producer_maintenance.pending is not None:
            self._producer_maintenance.high_watermark_advanced(self.log, offset)
        self._log_start.advance_to_target()
        if self._commit_waits:
            self._commit_waits.release(self._acknowledged_offset())
        self.wake_fetches()
        self.host.commit_moved(self)

    def _role_changed(self) -> None:
        if self.group.role is not Role.LEADER:
            self._discard_staged()
            self._fail_waits(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._log_start.fail_waits(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._sender.forget()
        self.wake_fetches()
        self.host.role_changed(self)

    def _discard_staged(self) -> None:
        """Leadership ended before this turn's write: the clients are told, nothing was appended."""
        if self._staged:
            self._staged = []
            self._staged_headers = []
            self.reload()

    def _fail_waits(self, error: ErrorCode, above_offset: int = -1) -> None:
        self._commit_waits.fail(error, above_offset)
        self._flush_waits.fail(error, above_offset)

    def wake_fetches(self) -> None:
        if self._fetch_waiters:
            waiters, self._fetch_waiters = self._fetch_waiters, {}
            for waiter in waiters:
                waiter.wake()

    # -- maintenance, and the end ----------------------------------------------------------------------

    def apply_retention(self) -> None:
        """The leader alone decides what is too old or too much, and only below the high watermark. What has only to
        do with this copy is done on every replica."""
        self._producer_maintenance.expire_producers(
            self.producers, self.host.now(), self.host.producer_expiration_s
        )
        try:
            if self.log.is_due_to_roll(self.host.now_ms()) and not self.log.dirty():
                self.log.roll()
            if self.is_serving and self.config.is_deleted_by_retention:
                self._log_start.apply_retention()
            self._log_start.delete_segments(delete_active_from_bytes=1)
        except DiskFullError as error:
            logger.error(
                "not rolled: disk full", topic=self.topic, partition=self.partition, error=str(error)
            )
        except CorruptLogError as error:
            self.host.log_corrupt(self, error)

    def close(self, *, is_clean: bool) -> None:
        """After `stop`. A clean close leaves a snapshot where there is something to remember."""
        end_offset = self.log.end_offset
        if (
            is_clean
            and self.producers.entries
            and self.producers.end_offset == end_offset == self.high_watermark
        ):
            self._producer_maintenance.write_snapshot(self.log, self.producers, end_offset)
        self.log.close(is_clean=is_clean)

    def stop(self) -> None:
        """Answer everybody who still waits: this replica is gone (deleted, quarantined or shut down)."""
        self.is_open = False
        self._discard_staged()
        self._fail_waits(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._log_start.fail_waits(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wake_fetches()
