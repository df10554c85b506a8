"""The one door to a replica's Raft group: facts go in here, and what the group orders is carried out here.

Nobody else tells the group a fact, but for the parts of the replica that do it with every batch (`leader_appends`,
`sender`) and the log start, which keeps the group's watermarks. A test holds that (tests/test_tidy.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import structlog

from broker.replication import wire
from broker.replication.message_checks import check_batches, check_corruption_report, cuts
from broker.replication.ranges import Batches, check_range, corrupt_range
from broker.replication.sender import RangeSender
from protocol import peer
from protocol.errors import ErrorCode, KafkaError
from raft.types import (
    AppendRejection,
    Configuration,
    HardState,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    Output,
    ProposalRefusedError,
    ReplicaId,
    Row,
    VoteReply,
    VoteRequest,
)
from storage.disk import DiskFullError
from storage.log import Log

if TYPE_CHECKING:
    from broker.replication.replica import Replica

logger = structlog.get_logger()


class RaftDriver:
    """Of one replica. Its log may be replaced in the meantime, its group never is. Every public method is one fact, and
    runs to its end without waiting."""

    __slots__ = ("_group", "_host", "_replica", "_sender", "_waits", "timer_at")

    def __init__(self, replica: Replica, sender: RangeSender) -> None:
        self._replica = replica
        self._host = replica.host
        self._group = replica.group
        self._waits = replica.waits
        self._sender = sender
        #: Deadline that the host's timer heap knows of.
        self.timer_at: float | None = None

    # -- from the disk ---------------------------------------------------------------------------------

    def persisted(self, end_index: int) -> None:
        """A flush round finished: everything below `end_index` is durable here."""
        self.carry_out(self._group.persisted(end_index, self._host.now()))
        self._replica.log_start.advance_to_target()
        if self._waits.flush:
            self._waits.release_flushes()
        if self._waits.commit:
            self._waits.release_commits()

    def prepare_reply(self, end_index: int) -> Callable[[], None] | None:
        """Before a flush up to `end_index` that the loop waits for: prepare the reply to the leader, so that it
        leaves as soon as the flush is over. The bookkeeping follows with `persisted`."""
        acknowledgement = self._group.take_acknowledgement(end_index)
        if acknowledgement is None:
            return None
        leader, reply = acknowledgement
        return self._host.prepare(leader, self._to_wire(reply))

    def hard_state_persisted(self, state: HardState) -> None:
        """A term and a vote that the group ordered to be written are durable here."""
        self.carry_out(self._group.hard_state_persisted(state, self._host.now()))

    # -- ranges, between a leader and its followers ----------------------------------------------------

    def append_received(self, leader: ReplicaId, message: peer.Append, rows: list[Row]) -> None:
        """A range from the leader, with the rows in it, as `message_checks.check_range_message` gave them. Everything
        is checked before the group hears of it (replication.md section 2). Raises ProtocolError, ContradictionError."""
        replica, group = self._replica, self._group
        try:
            batches = check_range(message)
        except KafkaError as error:
            topic, partition, reason = replica.topic, replica.partition, error.message
            logger.warning(
                "range refused", topic=topic, partition=partition, leader=leader.node_id, reason=reason
            )
            self._host.send(leader, corrupt_range(replica, message))
            return
        check_batches(replica, message, batches, rows)
        if cuts(replica, message, rows) and not self._host.space.may_truncate(replica):
            self.leader_heard(leader, message.term)
            return
        known_commit = group.commit_end
        out = group.append_received(
            leader,
            message.term,
            message.start_index,
            message.prev_term,
            message.to_index,
            rows,
            message.commit_end,
            self._host.now(),
        )
        if not self._carry_out_range(out, batches, known_commit):
            return
        if message.log_start > replica.log.start_offset and message.term == group.term:
            replica.log_start.raise_target(message.log_start)

    def append_replied(self, sender: ReplicaId, message: peer.AppendReply) -> None:
        """A follower accepted a range."""
        log_start = message.log_start
        self.carry_out(
            self._group.append_replied(sender, message.term, message.match_end, log_start, self._host.now())
        )
        if self._waits.commit:
            self._waits.release_commits()
        self._follower_log_start_named(log_start)

    def append_rejected(self, sender: ReplicaId, rejected: AppendRejection) -> None:
        """A follower rejected a range."""
        self.carry_out(self._group.append_rejected(sender, rejected, self._host.now()))
        self._follower_log_start_named(rejected.log_start)

    def append_error_received(self, sender: ReplicaId, message: peer.AppendError) -> None:
        """A follower could not take a range. Raises ContradictionError."""
        if message.error_code == ErrorCode.CORRUPT_MESSAGE:
            # A late one is of a range that is not here any more: reading there what is, would look like corruption.
            if self._group.progress_of(sender) is not None and message.term == self._group.term:
                check_corruption_report(self._replica, message.start_index)
                self._host.range_refused(self._replica, sender, message.start_index)
        elif message.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            self.carry_out(self._group.resend_requested(sender, message.term, self._host.now()))

    def send_deferred(self) -> None:
        """Send the deferred followers what was batched for them."""
        self.carry_out(self._group.send_deferred(self._host.now()))
        self._sender.release()

    def send_commits(self) -> bool:
        """Tell followers the commit index and the log start where nothing else is on its way to them. True: some lack
        it still."""
        self.carry_out(self._group.send_commits(self._host.now()))
        return self._group.leading is not None and self._group.commit_unsent

    # -- log starts outside of ranges ------------------------------------------------------------------

    def log_start_update_received(
        self, leader: ReplicaId, term: int, commit_end: int, log_start: int
    ) -> None:
        """Follower: the leader's log start."""
        out = self._group.commit_received(leader, term, commit_end)
        if out is not None:
            self.carry_out(out)
            self._replica.log_start.raise_target(log_start)

    def log_start_ack_received(self, follower: ReplicaId, term: int, log_start: int) -> None:
        """Leader: a follower's log start is durable."""
        if self._group.log_start_replied(follower, term, log_start):
            self._follower_log_start_named(log_start)

    def _follower_log_start_named(self, log_start: int) -> None:
        if self._group.leading is not None:
            self._replica.log_start.raise_target(log_start)
            self._replica.log_start.advance_committed()

    # -- elections, links, liveness --------------------------------------------------------------------

    @property
    def _may_campaign(self) -> bool:
        """A leader on a full disk could not write its first row. Each try would use up what room is left for votes."""
        return self._host.may_campaign and not self._host.space.is_full

    def space_is_back(self) -> None:
        """The disk is full no longer: campaign soon where nobody leads. The timer may have fired meanwhile."""
        if self._group.leader is None:
            self.leader_suspected()
            self._host.timer_changed(self._replica)

    def timer_fired(self) -> None:
        """The group's deadline has passed."""
        if self._group.leading is not None or self._may_campaign:
            self.carry_out(self._group.tick(self._host.now()))

    def vote_requested(self, candidate: ReplicaId, request: VoteRequest) -> None:
        self.carry_out(self._group.vote_requested(candidate, request, self._host.now()))

    def vote_replied(self, voter: ReplicaId, reply: VoteReply) -> None:
        self.carry_out(self._group.vote_replied(voter, reply, self._host.now()))

    def timeout_now(self, leader: ReplicaId, term: int) -> None:
        """The leader transfers its leadership to this replica."""
        if self._may_campaign:
            self.carry_out(self._group.timeout_now(leader, term, self._host.now()))

    def peer_reachable(self, node_id: int) -> None:
        """A new link to this node is open."""
        self.carry_out(self._group.peer_reachable(node_id, self._host.now()))

    def peer_lost(self, node_id: int) -> None:
        """The link to this node is gone."""
        self._group.peer_lost(node_id)

    def leader_suspected(self) -> None:
        """The leader seems to be gone, or there is none yet: campaign soon."""
        self.carry_out(self._group.leader_suspected(self._host.now()))

    def leader_heard(self, leader: ReplicaId, term: int) -> None:
        """`leader` leads in `term` and is alive."""
        self.carry_out(self._group.leader_heard(leader, term, self._host.now()))

    def term_seen(self, term: int) -> None:
        """Some member is in this term."""
        self.carry_out(self._group.term_seen(term, self._host.now()))

    def quorum_lost(self) -> None:
        """This replica must not lead any longer: no majority answers it (CheckQuorum), or its log is damaged."""
        self.carry_out(self._group.quorum_lost(self._host.now()))

    def transfer_leadership(self, to: ReplicaId) -> bool:
        """Begin to transfer the leadership. False: one is under way already, or `to` is no reachable voter."""
        self._replica.append_pending()  # what is accepted already is not lost to the transfer
        try:
            self.carry_out(self._group.transfer_leadership(to, self._host.now()))
        except ProposalRefusedError:
            return False
        return True

    def propose_configuration(self, change: Configuration) -> bool:
        """Begin a change of members. False: it must wait (`may_become`), or the change before is not committed yet."""
        if not self._replica.may_become(change):
            return False
        # What is staged was accepted before the row, and nothing may follow a row that is not durable.
        self._replica.append_pending()
        try:
            self.carry_out(self._group.propose_configuration(change, self._host.now()))
        except ProposalRefusedError:
            return False
        return True

    # -- snapshot installs -----------------------------------------------------------------------------

    def install_snapshot_received(
        self, sender: ReplicaId, message: peer.InstallSnapshot, rows: list[Row]
    ) -> None:
        """Follower: the leader has deleted what this log lacks. `rows` are the message's."""
        out = self._group.install_snapshot_received(
            sender, message.term, message.log_start, rows, self._host.now()
        )
        snapshot, out.snapshot = out.snapshot, None
        self.carry_out(out)
        if snapshot is not None:
            self._host.install_snapshot(self._replica, snapshot, message)

    def snapshot_installed(self, snapshot: InstallSnapshot, log: Log) -> None:
        """The log was replaced by this one, durably, as `ReplicaHost.install_snapshot` was told."""
        if self._replica.log.end_index == 0:
            self._replica.bounds.copying_begins(self._group.term)
        self._replica.replace_log(log)
        self._sender.discard()
        self.carry_out(self._group.snapshot_installed(snapshot, self._host.now()))

    def snapshot_install_failed(self) -> None:
        """There was no room; the old log stands."""
        self._group.snapshot_install_failed()

    def install_snapshot_replied(self, sender: ReplicaId, reply: InstallSnapshotReply) -> None:
        """Leader: a follower holds what it was sent a snapshot for."""
        self.carry_out(self._group.install_snapshot_replied(sender, reply, self._host.now()))

    # -- orders ----------------------------------------------------------------------------------------

    def carry_out(self, out: Output) -> None:
        """In the order that `Output` promises: the log is changed before anything is said, and what depends on the disk
        is handed to the flush, never sent here."""
        assert out.truncate_to is None and out.write_from is None, "a range comes with its batches"
        assert out.snapshot is None, "a snapshot is installed by the one that has its message"
        if out.hard_state is not None:
            self._host.persist_vote(self._replica, out.hard_state)
        if self._append_rows(out.rows):
            for send in out.sends:
                self._sender.send(send)
        else:
            ended = self._group.append_failed(self._replica.log.end_index, self._host.now())
            out.role_changed |= ended.role_changed
        for to, message in out.messages:
            self._host.send(to, self._to_wire(message))
        if out.messages_after_flush:
            messages = out.messages_after_flush
            self._host.after_flush_of(self._replica, lambda: self._send_durable(messages))
        for snapshot in out.snapshots:
            self._host.send_snapshot(self._replica, snapshot)
        if out.watermarks is not None and self._group.leading is not None:
            # A new leader whose row did not fit on the disk leads no more, and has nothing to take over.
            self._replica.log_start.inherit(out.watermarks.log_start)
        if out.commit_advanced:
            self._replica.commit_advanced()
        self._finish(out)

    def _carry_out_range(self, out: Output, batches: Batches, known_commit: int) -> bool:
        """Orders of `Group.append_received`. `batches` are those of the range; `known_commit` is the commit index from
        before it. False: the disk is full, and the range counts as not received; or the log is corrupt, and the replica
        is closed."""
        if out.hard_state is not None:
            self._host.persist_vote(self._replica, out.hard_state)
            out.hard_state = None
        if out.truncate_to is not None and not self._truncate(out.truncate_to, known_commit):
            return False
        out.truncate_to = None
        if not ((out.write_from is None or self._write(batches)) and self._append_rows(out.rows)):
            self._host.space.lacks_space(self._replica)
            self._group.write_failed(self._replica.log.end_index, known_commit)
            self._finish(out)  # the rest would speak of what is not here
            return False
        out.write_from = None
        out.rows = []
        self.carry_out(out)
        return True

    def _finish(self, out: Output) -> None:
        """The last steps, which hold also where the rest of an output must be thrown away."""
        if out.role_changed:
            self._replica.role_changed()
        if self._group.deadline != self.timer_at:
            self._host.timer_changed(self._replica)

    # -- changes of the log ----------------------------------------------------------------------------

    def _truncate(self, to_index: int, known_commit: int) -> bool:
        """False: the log is corrupt, and the replica is closed."""
        replica = self._replica
        logger.info("truncating", topic=replica.topic, partition=replica.partition, to_index=to_index)
        is_done = self._host.truncate(replica, to_index, known_commit)
        if is_done:
            replica.reload()
        return is_done

    def _write(self, batches: Batches) -> bool:
        """Append those batches of the range that the log lacks. False: the disk is full, nothing was written."""
        replica = self._replica
        headers, views = batches.fresh(replica.log.end_offset)
        if not headers:
            return True
        if replica.must_leave_reserve:
            self._refuse("follower stops", "less than log.min.free.bytes is left")
            return False
        try:
            replica.log.append_batches(views, headers)
        except DiskFullError as error:
            self._refuse("follower stops", error)
            self._host.space.found_full(error)
            return False
        replica.log.start_writeback()
        replica.log.drop_cached()  # clients read from leaders
        for header, view in zip(headers, views, strict=True):
            replica.producers.record_stored(view, header)
        replica.next_offset = replica.log.end_offset
        replica.log_grew(len(headers))
        return True

    def _refuse(self, what: str, reason: object) -> None:
        topic, partition, key = self._replica.topic, self._replica.partition, self._replica.key
        logger.error(f"{what}: disk full", topic=topic, partition=partition, error=str(reason), cause=key)

    def _append_rows(self, rows: Sequence[Row]) -> bool:
        """False: the disk is full, and the log lacks the last of them."""
        try:
            for row in rows:
                self._append_row(row)
        except DiskFullError as error:
            self._refuse("row refused", error)
            self._host.space.found_full(error)
            return False
        return True

    def _append_row(self, row: Row) -> None:
        written = self._replica.log.append_row(row.term, row.kind, wire.row_payload(row))
        assert written.index == row.index, "the lineage and the group agree on indexes"
        if not row.index:
            self._replica.bounds.copying_begins(self._group.term)
        self._sender.discard()
        self._host.log_dirty(self._replica)

    # -- messages --------------------------------------------------------------------------------------

    def _send_durable(self, messages: Sequence[tuple[ReplicaId, Message]]) -> None:
        """What these messages depend on is on disk."""
        for to, message in messages:
            self._host.send(to, self._to_wire(message))

    def _to_wire(self, message: Message) -> peer.PeerMessage:
        key = self._replica.key
        return wire.message_to_wire(key.topic_id, key.partition, self._group.self_id, message)
