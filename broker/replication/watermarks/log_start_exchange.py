"""Log starts on their way between nodes, many in one message: to the followers what leaders here have raised, and
back what is durable (replication.md section 6).

DeleteRecords comes every 100 ms for hundreds of partitions (KIP-811); a range and its answer for each of them would
cost several times as much. Nothing depends on these messages: one that is lost, or comes to who cannot use it, is made
up for by the ranges of the slow tick (`Replicas.tell_commits`), which carry log starts, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol import peer
from raft.types import ReplicaId

if TYPE_CHECKING:
    from broker.replication.replica import Replica

#: A node's directory: to whom a message goes.
Directory = tuple[int, bytes]


class LogStartExchange:
    """What this turn has to say. Each directory is sent one message when the turn is over."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, send_to: Callable[[Directory, peer.PeerMessage], None]
    ) -> None:
        self._loop = loop
        self._send_to = send_to
        #: In the order noted; each once.
        self._replicas: dict[Replica, None] = {}

    def persisted(self, replica: Replica) -> None:
        """Its log start has risen, durably: a leader tells its followers, a follower its leader."""
        if not self._replicas:
            self._loop.call_soon(self._send)
        self._replicas[replica] = None

    def closed(self, replica: Replica) -> None:
        self._replicas.pop(replica, None)

    def _send(self) -> None:
        replicas, self._replicas = self._replicas, {}
        told: dict[Directory, list[peer.ToldLogStart]] = {}
        held: dict[Directory, list[peer.HeldLogStart]] = {}
        for replica in replicas:
            if replica.is_leader:
                for follower in replica.group.lacking_log_start():
                    told.setdefault(_directory(follower), []).append(_told(replica, follower))
            elif (leader := replica.group.leader) is not None:
                held.setdefault(_directory(leader), []).append(_held(replica))
        for directory, groups in told.items():
            self._send_to(directory, peer.LogStarts(groups=groups))
        for directory, answers in held.items():
            self._send_to(directory, peer.LogStartsReply(groups=answers))


def _directory(replica: ReplicaId) -> Directory:
    return replica.node_id, replica.directory_id


def _told(replica: Replica, follower: ReplicaId) -> peer.ToldLogStart:
    group = replica.group
    return peer.ToldLogStart(
        topic_id=replica.key.topic_id,
        partition=replica.key.partition,
        incarnation=group.self_id.incarnation,
        follower_incarnation=follower.incarnation,
        term=group.term,
        commit_index=group.commit_end,
        log_start=group.watermarks.log_start,
    )


def _held(replica: Replica) -> peer.HeldLogStart:
    group = replica.group
    return peer.HeldLogStart(
        topic_id=replica.key.topic_id,
        partition=replica.key.partition,
        incarnation=group.self_id.incarnation,
        term=group.term,
        log_start=group.watermarks.log_start,
    )
