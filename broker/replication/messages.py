"""Messages between replicas: each names its group and finds the replica here, or nobody."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar
from uuid import UUID

from broker.network.peers import PeerIdentity
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from protocol import peer
from protocol.peer import PeerMessage
from raft.types import AppendRejection, InstallSnapshotReply, ReplicaId, VoteReply, VoteRequest, Watermarks
from storage.log_types import GroupKey

#: Groups of which a leader's and a candidate's word is kept for a replica to come; beyond that the oldest is forgotten,
#: and who spoke it speaks again after a timeout.
MAX_EARLY = 10_000


class GroupMessages:
    """Takes what peers say of groups to the groups."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        #: The last range for a group without a replica here, emptied. A leader speaks as soon as there is a link, which
        #: is before a node that starts has opened its partitions, and then waits for an answer.
        self._early: dict[GroupKey, tuple[PeerIdentity, peer.Append]] = {}
        #: The last question for a vote, likewise: nodes open a new topic's partitions each at its own pace.
        self._early_votes: dict[GroupKey, tuple[PeerIdentity, peer.VoteRequest]] = {}

    def received(self, sender: PeerIdentity, message: PeerMessage) -> None:
        """A message for a group. The sender's identity is its connection's directory and the message's incarnation."""
        match message:
            case peer.Append():
                self._append(sender, message)
            case peer.AppendReply():
                replica = self._find(message.topic_id, message.partition)
                if replica is not None:
                    replica.driver.append_replied(_identity(sender, message.incarnation), message)
                    self._replicas.reply_arrived(replica)
            case peer.AppendRejection():
                replica = self._find(message.topic_id, message.partition)
                if replica is not None:
                    rejected = AppendRejection(
                        message.term,
                        message.start_index,
                        message.hint_index,
                        message.hint_term,
                        message.log_start,
                    )
                    replica.driver.append_rejected(_identity(sender, message.incarnation), rejected)
                    self._replicas.reply_arrived(replica)
            case peer.AppendError():
                replica = self._find(message.topic_id, message.partition)
                if replica is not None:
                    replica.driver.append_error_received(_identity(sender, message.incarnation), message)
                    self._replicas.reply_arrived(replica)
            case peer.LogStartUpdates():
                for update in message.groups:
                    replica = self._find(update.topic_id, update.partition)
                    if (
                        replica is not None
                        and update.follower_incarnation == replica.group.self_id.incarnation
                    ):
                        leader = _identity(sender, update.incarnation)
                        replica.driver.log_start_update_received(
                            leader, update.term, update.commit_end, update.log_start
                        )
            case peer.LogStartAcks():
                for ack in message.groups:
                    replica = self._find(ack.topic_id, ack.partition)
                    if replica is not None:
                        follower = _identity(sender, ack.incarnation)
                        replica.driver.log_start_ack_received(follower, ack.term, ack.log_start)
            case peer.VoteRequest():
                self._vote_request(sender, message)
            case peer.VoteReply():
                self._vote_reply(sender, message)
            case peer.TimeoutNow():
                replica = self._find(message.topic_id, message.partition)
                if replica is not None:
                    identity = _identity(sender, message.incarnation)
                    replica.driver.timeout_now(identity, message.term)
            case peer.InstallSnapshot():
                replica = self._find(message.topic_id, message.partition)
                if replica is not None and message.follower_incarnation == replica.group.self_id.incarnation:
                    replica.driver.install_snapshot_received(_identity(sender, message.incarnation), message)
            case peer.InstallSnapshotReply():
                replica = self._find(message.topic_id, message.partition)
                if replica is not None:
                    identity = _identity(sender, message.incarnation)
                    reply = InstallSnapshotReply(message.term, message.match_end, message.log_start)
                    replica.driver.install_snapshot_replied(identity, reply)

    def opened(self, key: GroupKey) -> None:
        """There is a replica now. Who spoke to it is heard as if it had spoken only now: Raft allows any delay."""
        vote = self._early_votes.pop(key, None)
        if vote is not None:
            self._vote_request(*vote)
        early = self._early.pop(key, None)
        if early is not None:
            self._append(*early)

    def _append(self, sender: PeerIdentity, message: peer.Append) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is None:
            self._keep(sender, message)
        elif message.follower_incarnation == replica.group.self_id.incarnation:
            replica.driver.append_received(_identity(sender, message.incarnation), message)

    def _keep(self, sender: PeerIdentity, message: peer.Append) -> None:
        """Without what it carries, whose memory is the link's: the answer makes the leader send it again."""
        message.to_index, message.rows, message.records = message.start_index, [], None
        _keep_last(self._early, sender, message)

    def _find(self, topic_id: UUID, partition: int) -> Replica | None:
        return self._replicas.by_number.get((topic_id.int, partition))

    def _vote_request(self, sender: PeerIdentity, message: peer.VoteRequest) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is None:
            _keep_last(self._early_votes, sender, message)
            return
        request = VoteRequest(
            message.term, message.last_term, message.end_index, message.pre_vote, message.transfer
        )
        identity = _identity(sender, message.incarnation)
        replica.driver.vote_requested(identity, request)

    def _vote_reply(self, sender: PeerIdentity, message: peer.VoteReply) -> None:
        replica = self._find(message.topic_id, message.partition)
        if replica is None:
            return
        watermarks = Watermarks(message.log_start, message.mtro, message.mxro)
        reply = VoteReply(message.term, message.granted, message.pre_vote, watermarks)
        identity = _identity(sender, message.incarnation)
        replica.driver.vote_replied(identity, reply)


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
