"""Drives `raft.liveness`: sends its pings in time, and takes what they tell to the groups and the table of leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

import structlog

from broker.metadata.leaders import LeaderTable
from broker.replication import liveness_wire
from broker.replication.events import ReplicaEvents
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from protocol import peer
from protocol.errors import ProtocolError
from raft.liveness import NodeLiveness
from raft.liveness_types import Led, LivenessOutput
from raft.plausibility import leadership_refusal, term_refusal
from raft.types import ReplicaId
from storage.journal import Journal
from storage.log_types import GroupKey

logger = structlog.get_logger()

#: A node that never answers.
NOBODY = -1


class Links(Protocol):
    """What liveness needs of `broker.membership.cluster.Cluster`."""

    def directory_of(self, node_id: int) -> UUID | None:
        """The directory of a node that is connected now."""

    def send(self, node_id: int, message: peer.PeerMessage) -> None: ...


class Heartbeat:
    """One node's liveness at work."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        liveness: NodeLiveness,
        links: Links,
        journal: Journal,
        replicas: Replicas,
        leaders: LeaderTable,
        events: ReplicaEvents,
        assigned: Callable[[GroupKey], Sequence[int]],
    ) -> None:
        """`assigned`: the nodes that should hold a partition, by the metadata."""
        self._links = links
        self._journal = journal
        self._assigned = assigned
        self._loop = loop
        self._liveness = liveness
        self._replicas = replicas
        self._leaders = leaders
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._round_noted = False
        #: The directory that each node had when it was connected last.
        self._directories: dict[int, bytes] = {}
        #: Called when a peer has answered: a read that waits for a round may be complete.
        self.on_echo: list[Callable[[], None]] = []
        #: Called when a partition has a leader that it had not, or one that serves by now.
        self.on_leader: list[Callable[[], None]] = []
        events.role_changed.append(self.group_changed)
        events.closed.append(self.group_closed)
        events.forgotten.append(self.group_forgotten)

    def start(self) -> None:
        """An echo speaks for all groups, so before the first one liveness knows every term that this node ever promised
        something in: else it would confirm a leader whose successor this node has helped to elect."""
        journal, now = self._journal, self._loop.time()
        for key in journal.groups():
            state = journal.state(key)
            if state is not None and key not in self._replicas.by_key:
                self._liveness.follows(key, state.term, None, now)
        self._arm()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # -- links -------------------------------------------------------------------------------------------

    def connected(self, node_id: int, boot_id: bytes) -> None:
        directory_id = self._links.directory_of(node_id)
        known = self._directories.get(node_id)
        if directory_id is not None:
            self._directories[node_id] = directory_id.bytes
        self._carry_out(self._liveness.connected(node_id, boot_id, self._loop.time()))
        if known is not None and known != self._directories[node_id]:
            self._check_quorums(node_id)  # its voters of before are nobody now

    def disconnected(self, node_id: int) -> None:
        self._carry_out(self._liveness.disconnected(node_id, self._loop.time()))

    def ping_received(self, node_id: int, message: peer.Ping) -> bool:
        """Returns whether the ping can be true; otherwise nothing was done about it. Raises ProtocolError if it is
        malformed."""
        ping = liveness_wire.from_wire(message)
        refusal = self._liveness.ping_refusal(node_id, ping)
        if refusal is not None and not refusal.is_contradiction:
            raise ProtocolError(f"Ping: {refusal.reason}")
        if refusal is not None:
            logger.error(
                "a ping that cannot be true is passed over",
                node_id=node_id,
                reason=refusal.reason,
                cause=node_id,
            )
            return False
        self._carry_out(self._liveness.ping_received(node_id, ping, self._loop.time()))
        for arrived in self.on_echo:
            arrived()
        return True

    # -- groups ------------------------------------------------------------------------------------------

    def group_changed(self, replica: Replica) -> None:
        """Role, term, leader or establishment of a group here are others than before. What configuration is committed
        is told with them, not by itself."""
        group, now = replica.group, self._loop.time()
        key = replica.key
        index = group.committed_configuration_index
        leader = None if group.leader is None else group.leader.node_id
        self._liveness.led_changed(
            key, group.term, index, replica.is_serving if replica.is_leader else None, now
        )
        self._liveness.follows(key, group.term, leader, now)
        own = group.self_id.node_id
        if replica.is_leader:
            if self._leaders.announce(*key, own, group.term, index, replica.is_serving, assigned=(own,)):
                self._leaders_changed()
        else:
            self._leaders.resigned(*key, own)
        self._arm()

    def configuration_changed(self, replica: Replica) -> None:
        """A leader has other voters: who was not counted on before, and is not there, lapses no more."""
        self._check_quorum(replica, self._loop.time())

    def group_assigned(self, key: GroupKey) -> None:
        """The image names the group (now): who announced itself before was not heard, and says it only once."""
        now = self._loop.time()
        for announcement in self._liveness.listed(key):
            led = announcement.led
            assert isinstance(led, Led)
            self._announced(announcement.node, key, led, now)

    def group_closed(self, key: GroupKey) -> None:
        """The replica here is closed: given up, quarantined, or its topic is deleted. What it promised still counts. A
        leader of an older term that has this node among its voters would be confirmed otherwise, and serve stale reads.
        """
        now = self._loop.time()
        self._liveness.led_changed(key, 0, 0, None, now)
        state = self._journal.state(key)
        assert state is not None and state.has_vote, "a replica's term is recorded before it is opened"
        self._liveness.follows(key, state.term, None, now)

    def group_forgotten(self, key: GroupKey) -> None:
        """The journal has forgotten the group, durably: its topic is deleted, and its id never comes back."""
        self._liveness.group_deleted(key)

    # -- reads (broker.replication.reads.Rounds) ----------------------------------------------------------

    def begin_round(self) -> int:
        """Begin a round of pings with this turn; reads of one turn share it. Returns its first number."""
        if not self._round_noted:
            self._round_noted = True
            self._loop.call_soon(self._send_round)
        return self._liveness.begin_round()

    def confirmed(self, replica: Replica, first_number: int) -> bool:
        voters = self._voter_nodes(replica)
        return self._liveness.quorum_confirmed_since(replica.key, replica.group.term, voters, first_number)

    def _send_round(self) -> None:
        self._round_noted = False
        for node_id in self._liveness.connected_nodes():
            self._ping(node_id, reply_at_once=True)

    # -- steps -------------------------------------------------------------------------------------------

    def _ping(self, node_id: int, *, reply_at_once: bool = False) -> None:
        ping = self._liveness.ping_for(node_id, self._loop.time(), reply_at_once=reply_at_once)
        self._links.send(node_id, liveness_wire.to_wire(ping))

    def _arm(self) -> None:
        deadline = self._liveness.deadline
        if self._timer is not None:
            if deadline >= self._timer_at:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._tick)

    def wake(self) -> None:
        """To be called before anything is served: sockets come before timers, so after a long sleep of this loop the
        tick that ends its leaderships would come too late."""
        now = self._loop.time()
        if self._liveness.is_stalled(now):
            self._carry_out(self._liveness.tick(now))

    def _tick(self) -> None:
        self._timer = None
        self._carry_out(self._liveness.tick(self._loop.time()))

    def _carry_out(self, out: LivenessOutput) -> None:
        """Carry out the orders, a stall first: a loop that slept may serve nothing as the leader it was."""
        now = self._loop.time()
        if out.stalled:
            for replica in list(self._replicas.by_key.values()):
                if replica.is_leader:
                    replica.driver.quorum_lost()
        for node_id in out.pings:
            self._ping(node_id)
        for node_id in out.ended:
            self._leaders.node_lost(node_id)
        for withdrawal in out.withdrawals:
            self._leaders.resigned(*_key(withdrawal.group), withdrawal.node)
        for suspect in out.suspects:
            replica_ = self._find(suspect)
            if replica_ is not None:
                replica_.driver.leader_suspected()
        for announcement in out.announcements:
            self._announced(announcement.node, _key(announcement.led.group), announcement.led, now)
        for challenge in out.challenges:
            challenged = self._find(challenge.group)
            if challenged is not None and term_refusal(challenged.group, challenge.term) is None:
                challenged.driver.term_seen(challenge.term)
        for group in out.quorum_due:
            due = self._find(group)
            if due is not None:
                self._check_quorum(due, now)
        for node_id in out.quorum_checks:
            self._check_quorums(node_id)
        self._arm()

    def _announced(self, node_id: int, key: GroupKey, led: Led, now: float) -> None:
        assigned = self._assigned(key)
        if not assigned:
            return  # deleted, and nothing may be kept of it; or not known yet, then `group_assigned` comes
        if self._leaders.announce(
            *key, node_id, led.term, led.configuration_index, led.established, assigned=assigned
        ):
            self._leaders_changed()
        replica = self._replicas.by_key.get(key)
        if replica is None:
            return
        voters = replica.group.configuration.voters
        leader = next((voter for voter in voters if voter.node_id == node_id), None)
        if leader is not None and leadership_refusal(replica.group, leader, led.term) is None:
            replica.driver.leader_heard(leader, led.term)

    def _leaders_changed(self) -> None:
        for changed in self.on_leader:
            changed()

    def _check_quorums(self, node_id: int) -> None:
        for replica in list(self._replicas.by_key.values()):
            if any(voter.node_id == node_id for voter in replica.group.configuration.voters):
                self._check_quorum(replica, self._loop.time())

    def _check_quorum(self, replica: Replica, now: float) -> None:
        group = replica.group
        if replica.is_leader and not self._liveness.has_quorum(
            replica.key, group.term, self._voter_nodes(replica), now
        ):
            replica.driver.quorum_lost()

    def _voter_nodes(self, replica: Replica) -> list[int]:
        """Where the voters live. Whose node has another directory by now is NOBODY: with its disk it lost its votes,
        and may have elected somebody else (replication.md section 3)."""
        return [
            voter.node_id if self._is_home(voter, replica) else NOBODY
            for voter in replica.group.configuration.voters
        ]

    def _is_home(self, voter: ReplicaId, replica: Replica) -> bool:
        own = replica.group.self_id
        if voter.node_id == own.node_id:
            return voter.directory_id == own.directory_id
        return self._directories.get(voter.node_id) == voter.directory_id

    def _find(self, group: object) -> Replica | None:
        return self._replicas.by_key.get(_key(group))


def _key(group: object) -> GroupKey:
    assert isinstance(group, GroupKey)
    return group
