"""Messages between replicas: each names its group and finds the replica here, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar
from uuid import UUID

import structlog

from broker.metadata.ids import METADATA_TOPIC_ID
from broker.network.peers import PeerIdentity
from broker.replication.message_checks import (
    ContradictionError,
    check,
    check_cleaned_report,
    check_digest_reply,
    check_digest_request,
    check_log_start,
    check_match,
    check_range_message,
    check_removal_bounds,
    check_snapshot,
    cleaned_report,
)
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from protocol import peer
from protocol.errors import ProtocolError
from protocol.peer import PeerMessage
from raft import plausibility
from raft.types import AppendRejection, InstallSnapshotReply, ReplicaId, VoteReply, VoteRequest, Watermarks
from storage.log_types import GroupKey

logger = structlog.get_logger()

#: Groups of which a leader's and a candidate's word is kept for a replica to come; beyond that the oldest is forgotten,
#: and who spoke it speaks again after a timeout.
MAX_EARLY = 10_000
#: Between two lines in the log about messages that are passed over.
LOG_PAUSE_S = 10.0


class GroupMessages:
    """Takes what peers say of groups to the groups, if it can be true (`message_checks`)."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        #: The last range for a group without a replica here, emptied. A leader speaks as soon as there is a link, which
        #: is before a node that starts has opened its partitions, and then waits for an answer.
        self._early: dict[GroupKey, tuple[PeerIdentity, peer.Append]] = {}
        #: The last question for a vote, likewise: nodes open a new topic's partitions each at its own pace.
        self._early_votes: dict[GroupKey, tuple[PeerIdentity, peer.VoteRequest]] = {}
        #: Called with the replica that is asked for a digest of its log, and who asks; or with the leader's replica and
        #: the member that answers. They raise ProtocolError for a message that cannot be right.
        self.on_digest_request: list[Callable[[Replica, ReplicaId, peer.DigestRequest], None]] = []
        self.on_digest_reply: list[Callable[[Replica, ReplicaId, peer.DigestReply], None]] = []
        #: When a message about this partition was logged as passed over. They come again and again.
        self._logged_at: dict[tuple[UUID, int], float] = {}

    def received(self, sender: PeerIdentity, message: PeerMessage) -> None:
        """A message for a group. The sender's identity is its connection's directory and the message's incarnation.
        Raises ProtocolError if the message is malformed; then nothing was done about it."""
        try:
            match message:
                case peer.Append():
                    self._append(sender, message)
                case peer.AppendReply():
                    self._append_reply(sender, message)
                case peer.AppendRejection():
                    self._append_rejection(sender, message)
                case peer.AppendError():
                    self._append_error(sender, message)
                case peer.LogStartUpdates():
                    self._log_start_updates(sender, message)
                case peer.LogStartAcks():
                    self._log_start_acks(sender, message)
                case peer.DigestRequest():
                    self._digest_request(sender, message)
                case peer.DigestReply():
                    self._digest_reply(sender, message)
                case peer.BoundsReports():
                    self._bounds_reports(sender, message)
                case peer.BoundsUpdates():
                    self._bounds_updates(sender, message)
                case peer.VoteRequest():
                    self._vote_request(sender, message)
                case peer.VoteReply():
                    self._vote_reply(sender, message)
                case peer.TimeoutNow():
                    self._timeout_now(sender, message)
                case peer.InstallSnapshot():
                    self._install_snapshot(sender, message)
                case peer.InstallSnapshotReply():
                    self._install_snapshot_reply(sender, message)
                case _:
                    raise ProtocolError("after the handshake")
        except ContradictionError as contradiction:
            self._pass_over(message, contradiction)
        except ProtocolError as error:
            raise ProtocolError(f"{type(message).__name__}: {error}") from error

    def opened(self, key: GroupKey) -> None:
        """There is a replica now. Who spoke to it is heard as if it had spoken only now: Raft allows any delay."""
        for early in (self._early_votes.pop(key, None), self._early.pop(key, None)):
            if early is not None:
                try:
                    self.received(*early)
                except ProtocolError as error:
                    logger.warning("a message from before the replica was opened", reason=str(error))

    def _pass_over(self, message: PeerMessage | _OfGroup, contradiction: ContradictionError) -> None:
        """Log some of them: a replica that was lied to contradicts the others until somebody has it rebuilt."""
        key = getattr(message, "topic_id", METADATA_TOPIC_ID), getattr(message, "partition", 0)
        now = self._replicas.now()
        if now < self._logged_at.get(key, float("-inf")) + LOG_PAUSE_S:
            return
        if len(self._logged_at) >= MAX_EARLY:
            self._logged_at.clear()
        self._logged_at[key] = now
        logger.error(
            "a message that cannot be true is passed over",
            message=type(message).__name__,
            topic_id=str(key[0]),
            partition=key[1],
            reason=str(contradiction),
        )

    # -- leaders and followers ---------------------------------------------------------------------------

    def _append(self, sender: PeerIdentity, message: peer.Append) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is None:
            self._keep(sender, message)
        elif message.follower_incarnation == replica.group.self_id.incarnation:
            leader = _identity(sender, message.incarnation)
            rows = check_range_message(replica, leader, message)
            replica.driver.append_received(leader, message, rows)

    def _keep(self, sender: PeerIdentity, message: peer.Append) -> None:
        """Without what it carries, whose memory is the link's: the answer makes the leader send it again."""
        message.to_index, message.rows, message.records = message.start_index, [], None
        _keep_last(self._early, sender, message)

    def _append_reply(self, sender: PeerIdentity, message: peer.AppendReply) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is None:
            return
        follower = _identity(sender, message.incarnation)
        self._check_reply(replica, follower, message)
        replica.driver.append_replied(follower, message)
        self._replicas.reply_arrived(replica)

    def _check_reply(
        self, replica: Replica, follower: ReplicaId, reply: peer.AppendReply | peer.InstallSnapshotReply
    ) -> None:
        refusal = plausibility.append_reply_refusal(
            replica.group, reply.term, reply.match_end, reply.log_start
        )
        if refusal is not None:
            check(refusal)
        check_log_start(replica, reply.log_start)
        check_match(replica, follower, reply.match_end)

    def _append_rejection(self, sender: PeerIdentity, message: peer.AppendRejection) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is None:
            return
        rejected = AppendRejection(
            message.term, message.start_index, message.hint_index, message.hint_term, message.log_start
        )
        check(plausibility.append_rejection_refusal(replica.group, rejected))
        check_log_start(replica, message.log_start)
        replica.driver.append_rejected(_identity(sender, message.incarnation), rejected)
        self._replicas.reply_arrived(replica)

    def _append_error(self, sender: PeerIdentity, message: peer.AppendError) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is None:
            return
        check(plausibility.term_refusal(replica.group, message.term))
        replica.driver.append_error_received(_identity(sender, message.incarnation), message)
        self._replicas.reply_arrived(replica)

    def _log_start_updates(self, sender: PeerIdentity, message: peer.LogStartUpdates) -> None:
        for update in message.groups:
            replica = self._find(update.topic_id, update.partition)
            if replica is None or update.follower_incarnation != replica.group.self_id.incarnation:
                continue
            leader = _identity(sender, update.incarnation)
            term, commit_end, log_start = update.term, update.commit_end, update.log_start
            try:
                check(
                    plausibility.log_start_update_refusal(replica.group, leader, term, commit_end, log_start)
                )
            except ContradictionError as contradiction:
                self._pass_over(update, contradiction)
                continue
            check_log_start(replica, log_start)
            replica.driver.log_start_update_received(leader, term, commit_end, log_start)

    def _log_start_acks(self, sender: PeerIdentity, message: peer.LogStartAcks) -> None:
        for ack in message.groups:
            replica = self._find(ack.topic_id, ack.partition)
            if replica is None:
                continue
            try:
                check(plausibility.log_start_ack_refusal(replica.group, ack.term, ack.log_start))
            except ContradictionError as contradiction:
                self._pass_over(ack, contradiction)
                continue
            check_log_start(replica, ack.log_start)
            follower = _identity(sender, ack.incarnation)
            replica.driver.log_start_ack_received(follower, ack.term, ack.log_start)

    def _bounds_reports(self, sender: PeerIdentity, message: peer.BoundsReports) -> None:
        for report in message.groups:
            replica = self._find(report.topic_id, report.partition)
            if replica is None:
                continue
            cleaned = cleaned_report(report)
            try:
                check_cleaned_report(replica, report.term, cleaned)
            except ContradictionError as contradiction:
                self._pass_over(report, contradiction)
                continue
            member = _identity(sender, report.incarnation)
            self._replicas.bounds_exchange.reported(replica, member, report.term, cleaned)

    def _bounds_updates(self, sender: PeerIdentity, message: peer.BoundsUpdates) -> None:
        for update in message.groups:
            replica = self._find(update.topic_id, update.partition)
            if replica is None or update.follower_incarnation != replica.group.self_id.incarnation:
                continue
            leader = _identity(sender, update.incarnation)
            try:
                check_removal_bounds(replica, leader, update.term, update.mtro, update.mxro)
            except ContradictionError as contradiction:
                self._pass_over(update, contradiction)
                continue
            if update.must_discard:
                self._replicas.discard_ordered(replica, leader, update.term)
            else:
                self._replicas.bounds_exchange.told(replica, leader, update.term, update.mtro, update.mxro)

    # -- comparisons of replicas -------------------------------------------------------------------------

    def _digest_request(self, sender: PeerIdentity, message: peer.DigestRequest) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is not None and message.follower_incarnation == replica.group.self_id.incarnation:
            leader = _identity(sender, message.incarnation)
            check_digest_request(replica, leader, message)
            for requested in self.on_digest_request:
                requested(replica, leader, message)

    def _digest_reply(self, sender: PeerIdentity, message: peer.DigestReply) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is not None:
            check_digest_reply(replica, message)
            member = _identity(sender, message.incarnation)
            for replied in self.on_digest_reply:
                replied(replica, member, message)

    # -- elections ---------------------------------------------------------------------------------------

    def _vote_request(self, sender: PeerIdentity, message: peer.VoteRequest) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is None:
            _keep_last(self._early_votes, sender, message)
            return
        request = VoteRequest(
            message.term, message.last_term, message.end_index, message.pre_vote, message.transfer
        )
        check(plausibility.vote_request_refusal(replica.group, request))
        replica.driver.vote_requested(_identity(sender, message.incarnation), request)

    def _vote_reply(self, sender: PeerIdentity, message: peer.VoteReply) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is None:
            return
        watermarks = Watermarks(message.log_start, message.mtro, message.mxro)
        reply = VoteReply(message.term, message.granted, message.pre_vote, watermarks)
        check(plausibility.vote_reply_refusal(replica.group, reply))
        check_log_start(replica, message.log_start)
        replica.driver.vote_replied(_identity(sender, message.incarnation), reply)

    def _timeout_now(self, sender: PeerIdentity, message: peer.TimeoutNow) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is not None:
            leader = _identity(sender, message.incarnation)
            check(plausibility.leadership_refusal(replica.group, leader, message.term))
            replica.driver.timeout_now(leader, message.term)

    # -- snapshots ---------------------------------------------------------------------------------------

    def _install_snapshot(self, sender: PeerIdentity, message: peer.InstallSnapshot) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is not None and message.follower_incarnation == replica.group.self_id.incarnation:
            leader = _identity(sender, message.incarnation)
            rows = check_snapshot(replica, leader, message)
            replica.driver.install_snapshot_received(leader, message, rows)

    def _install_snapshot_reply(self, sender: PeerIdentity, message: peer.InstallSnapshotReply) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is None:
            return
        follower = _identity(sender, message.incarnation)
        self._check_reply(replica, follower, message)
        reply = InstallSnapshotReply(message.term, message.match_end, message.log_start)
        replica.driver.install_snapshot_replied(follower, reply)

    def _find(self, topic_id: UUID, partition: int) -> Replica | None:
        return self._replicas.by_number.get((topic_id.int, partition))


class _OfGroup(Protocol):
    """A part of a message that is about a partition of its own."""

    topic_id: UUID
    partition: int


#: As ReplicaId(...), without a call in Python.
_replica_id: Callable[[tuple[int, bytes, int]], ReplicaId] = partial(tuple.__new__, ReplicaId)

M = TypeVar("M", peer.Append, peer.VoteRequest)


def _keep_last(early: dict[GroupKey, tuple[PeerIdentity, M]], sender: PeerIdentity, message: M) -> None:
    key = GroupKey(message.topic_id, message.partition)
    if len(early) >= MAX_EARLY and key not in early:
        del early[next(iter(early))]
    early[key] = (sender, message)


def _identity(sender: PeerIdentity, incarnation: int) -> ReplicaId:
    return _replica_id((sender.node_id, sender.directory, incarnation))
