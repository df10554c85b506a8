"""Log starts between nodes, many in one message (replication.md section 6).

A leader tells its followers the log starts that it has raised (an update). A follower tells its leader those that are
durable with it (an acknowledgement).

DeleteRecords comes every 100 ms for hundreds of partitions (KIP-811). A range and its answer for each of them would
cost several times as much. Nothing depends on these messages: the ranges of the slow tick carry log starts, too, and
make up for a message that is lost, or that its receiver cannot use (`Replicas.tell_commits`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.replication.events import Directory, directory_of
from protocol import peer
from raft.types import ReplicaId

if TYPE_CHECKING:
    from broker.replication.replica import Replica


class LogStartExchange:
    """Gathers what a loop iteration has to say. Each directory is sent one message at its end."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, send_to: Callable[[Directory, peer.PeerMessage], None]
    ) -> None:
        self._loop = loop
        self._send_to = send_to
        #: Replicas whose log start has risen, in that order.
        self._replicas: dict[Replica, None] = {}

    def add_replica(self, replica: Replica) -> None:
        """Its log start has risen, durably: a leader tells its followers, a follower tells its leader."""
        if not self._replicas:
            self._loop.call_soon(self._send)
        self._replicas[replica] = None

    def discard_replica(self, replica: Replica) -> None:
        """It is being closed."""
        self._replicas.pop(replica, None)

    def _send(self) -> None:
        replicas, self._replicas = self._replicas, {}
        updates: dict[Directory, list[peer.LogStartUpdate]] = {}
        acks: dict[Directory, list[peer.LogStartAck]] = {}
        for replica in replicas:
            if replica.is_leader:
                for follower in replica.group.lacking_log_start():
                    updates.setdefault(directory_of(follower), []).append(_update(replica, follower))
            elif (leader := replica.group.leader) is not None:
                acks.setdefault(directory_of(leader), []).append(_ack(replica))
        for directory, of_leaders in updates.items():
            self._send_to(directory, peer.LogStartUpdates(groups=of_leaders))
        for directory, of_followers in acks.items():
            self._send_to(directory, peer.LogStartAcks(groups=of_followers))


def _update(replica: Replica, follower: ReplicaId) -> peer.LogStartUpdate:
    group = replica.group
    return peer.LogStartUpdate(
        topic_id=replica.key.topic_id,
        partition=replica.key.partition,
        incarnation=group.self_id.incarnation,
        follower_incarnation=follower.incarnation,
        term=group.term,
        commit_end=group.commit_end,
        log_start=group.watermarks.log_start,
    )


def _ack(replica: Replica) -> peer.LogStartAck:
    group = replica.group
    return peer.LogStartAck(
        topic_id=replica.key.topic_id,
        partition=replica.key.partition,
        incarnation=group.self_id.incarnation,
        term=group.term,
        log_start=group.watermarks.log_start,
    )
