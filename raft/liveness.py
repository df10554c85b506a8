"""Who is alive, per pair of nodes and not per group (replication.md section 5).

Every node pings every other one, ten times a second. A ping carries the changes of the list of groups that
its sender leads, and an echo: the number of the last ping from the other side, which version of the other
side's list is applied, and which listed leaderships are outdated. From this one exchange follow, for all
groups at once:

- at a follower: the leader is live while its node is heard and lists the group in the follower's term;
- at a leader: a majority still follows (CheckQuorum), and still did after a read arrived (ReadIndex);
- at everybody: who leads what.

A ping costs as much as the changes since the last one. `tick`, called at `deadline` or later, costs one look at
each node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raft.leadership_list import Leadership, LeadershipList
from raft.liveness_checks import ping_refusal
from raft.liveness_peer import Peer
from raft.liveness_types import (
    Announcement,
    BootId,
    Challenge,
    GroupKey,
    Led,
    LivenessOutput,
    LivenessTiming,
    Ping,
    Withdrawal,
)
from raft.plausibility import Refusal


class NodeLiveness:
    """The view of one node. Facts in, orders out; `now` in seconds, monotonic."""

    def __init__(self, self_node: int, boot_id: BootId, timing: LivenessTiming, now: float) -> None:
        self.self_node = self_node
        self.boot_id = boot_id
        self.timing = timing.validate()
        self._peers: dict[int, Peer] = {}
        self._number = 0
        #: The groups in which this node has promised something (a vote, an acknowledgement): their term, and the node
        #: of the leader that the replica here follows. An entry costs only memory while no node lists an older
        #: leadership of the group.
        self._groups: dict[GroupKey, tuple[int, int | None]] = {}
        #: Groups whose leader has not listed them in their term yet -> the time by which it must. Ordered by time.
        self._unlisted: dict[GroupKey, float] = {}
        self._led = LeadershipList()
        #: Groups led here for less than check_quorum_s -> the time of their first check. Ordered by time.
        self._young: dict[GroupKey, float] = {}
        self._last_tick = now
        self._next_ping_at = now

    @property
    def deadline(self) -> float:
        """Call tick at this time. It moves when a call changes something: look again after every call."""
        return self._next_ping_at

    def is_stalled(self, now: float) -> bool:
        """The loop has slept longer than an election timeout: call tick before anything is served."""
        return now - self._last_tick > self.timing.election_timeout_s

    # ------------------------------------------------------------------ facts about links

    def connected(self, node: int, boot_id: BootId, now: float) -> LivenessOutput:
        """Our link to the node is open. The handshake named the boot id of its process."""
        out = LivenessOutput()
        peer = self._peer(node)
        if peer.boot_id != boot_id:
            self._end_leaderships(peer, out)
            peer.new_life(boot_id)
        peer.is_connected = True
        peer.sent_version = 0  # pings on the old link may be lost: send the whole list again
        out.pings.append(node)
        return out

    def disconnected(self, node: int, now: float) -> LivenessOutput:
        """Our link to the node is closed, and dialling again did not succeed at once."""
        out = LivenessOutput()
        peer = self._peer(node)
        peer.is_connected = False
        self._end_leaderships(peer, out)
        return out

    # ------------------------------------------------------------------ facts about groups here

    def led_changed(
        self, group: GroupKey, term: int, configuration_index: int, established: bool | None, now: float
    ) -> None:
        """This node leads the group, and serves it if `established`. None: it no longer leads it."""
        if established is None:
            if self._led.drop(group):
                self._young.pop(group, None)
                self._ping_soon(now)
                if self._led.has_many_dropped:
                    self._led.forget_dropped(self._lowest_sent_version())
            return
        led = Led(group, term, configuration_index, established)
        known = self._led.get(group)
        if known is not None and known.led == led:
            return
        first_check_at = now + self.timing.check_quorum_s
        if self._led.set(led, first_check_at):
            self._young.pop(group, None)
            self._young[group] = first_check_at
        self._ping_soon(now)

    def follows(self, group: GroupKey, term: int, leader_node: int | None, now: float) -> None:
        """This node is in `term` of the group, and follows the leader on that node (None or itself: no leader). Report
        it at start and whenever it changes. A closed replica follows no leader, but its term still contradicts leaders
        of lower terms."""
        if leader_node == self.self_node:
            leader_node = None
        before = self._groups.get(group)
        if before == (term, leader_node):
            return
        self._groups[group] = (term, leader_node)
        if before is not None and before[1] is not None:
            self._peer(before[1]).following.pop(group, None)
        self._unlisted.pop(group, None)
        for peer in self._peers.values():
            self._judge(peer, group, term)
        if leader_node is not None:
            leader = self._peer(leader_node)
            leader.following[group] = None
            listed = leader.led.get(group)
            if not leader.is_live or listed is None or listed.term != term:
                self._unlisted[group] = now + self.timing.election_timeout_s

    def group_deleted(self, group: GroupKey) -> None:
        """The group is deleted, and the journal has no term of it: no leader of it is contradicted or confirmed."""
        _, leader_node = self._groups.pop(group, (0, None))
        if leader_node is not None:
            self._peer(leader_node).following.pop(group, None)
        self._unlisted.pop(group, None)
        for peer in self._peers.values():
            peer.challenged.pop(group, None)

    # ------------------------------------------------------------------ pings

    def ping_for(self, node: int, now: float, *, reply_at_once: bool = False) -> Ping:
        """The next ping to this node. It must be sent on the present link, in order."""
        peer = self._peer(node)
        self._number += 1
        base, version = peer.sent_version, self._led.version
        led, dropped = self._led.changes_since(base)
        if base < version:
            peer.sent_version, peer.sent_number = version, self._number
        peer.sent_at.append((self._number, now))
        return Ping(
            number=self._number,
            boot_id=self.boot_id,
            list_version=version,
            base_version=base,
            led=led,
            dropped=dropped,
            echo_number=peer.last_number,
            echo_boot_id=peer.boot_id,
            applied_version=peer.applied_version,
            challenged=tuple(Challenge(group, term) for group, term in peer.challenged.items()),
            reply_at_once=reply_at_once,
        )

    def ping_refusal(self, node: int, ping: Ping) -> Refusal | None:
        """Why this ping cannot be true, or None. To be asked before `ping_received`."""
        return ping_refusal(ping, self._peers.get(node), self.boot_id, self._number, self._led.version)

    def ping_received(self, node: int, ping: Ping, now: float) -> LivenessOutput:
        out = LivenessOutput()
        peer = self._peer(node)
        if ping.boot_id in peer.former_lives:
            return out
        if ping.boot_id != peer.boot_id:
            self._end_leaderships(peer, out)
            peer.new_life(ping.boot_id)
            peer.is_connected = False  # our link leads to the former life
        if ping.number <= peer.last_number:
            return out
        peer.last_number = ping.number
        self._apply_echo(peer, ping, out)
        self._apply_list(peer, ping, out)
        peer.heard_at = now
        if not peer.is_live and peer.is_connected:
            peer.is_live = True
            out.announcements = [Announcement(node, led) for led in peer.led.values()]
            for group in peer.following:
                self._end_grace(peer, group)
        if ping.reply_at_once and peer.is_connected:
            out.pings.append(node)
        return out

    def tick(self, now: float) -> LivenessOutput:
        out = LivenessOutput()
        if self.is_stalled(now):
            self._excuse_others(now)
            out.stalled = True
        self._last_tick = now
        if now >= self._next_ping_at:
            out.pings.extend(peer.node for peer in self._peers.values() if peer.is_connected)
            self._next_ping_at = now + self.timing.ping_interval_s
        for peer in self._peers.values():
            if peer.is_live and now - peer.heard_at > self.timing.election_timeout_s:
                self._end_leaderships(peer, out)
            if peer.echo_is_fresh and now - peer.confirmed_at > self.timing.check_quorum_s:
                peer.echo_is_fresh = False
                out.quorum_checks.append(peer.node)
        for group in _expired(self._unlisted, now):
            self._suspect(group, out)
        out.quorum_due = _expired(self._young, now)
        for group in out.quorum_due:
            del self._young[group]
        return out

    # ------------------------------------------------------------------ questions

    def has_quorum(self, group: GroupKey, term: int, voter_nodes: Sequence[int], now: float) -> bool:
        """CheckQuorum: a majority of the voters has followed this leader within check_quorum_s, or it is that
        young."""
        leadership = self._led.get(group)
        if leadership is None or leadership.led.term != term:
            return False
        oldest = now - self.timing.check_quorum_s
        return now < leadership.first_check_at or self._is_majority(
            leadership, voter_nodes, lambda peer: peer.confirmed_at >= oldest
        )

    def begin_round(self) -> int:
        """ReadIndex: the number that pings from now on have at least. The host sends one to every node
        (`connected_nodes`) with reply_at_once; reads that arrive before they are sent can share them."""
        return self._number + 1

    def quorum_confirmed_since(
        self, group: GroupKey, term: int, voter_nodes: Sequence[int], first_number: int
    ) -> bool:
        """ReadIndex: a majority followed this leader when it received a ping numbered first_number or
        later."""
        leadership = self._led.get(group)
        if leadership is None or leadership.led.term != term:
            return False
        return self._is_majority(leadership, voter_nodes, lambda peer: peer.confirmed_number >= first_number)

    def connected_nodes(self) -> list[int]:
        return [peer.node for peer in self._peers.values() if peer.is_connected]

    def listed(self, group: GroupKey) -> list[Announcement]:
        """The announcements of a group that were made before the caller could use them."""
        return [
            Announcement(peer.node, peer.led[group])
            for peer in self._peers.values()
            if peer.is_live and group in peer.led
        ]

    def is_live(self, node: int) -> bool:
        return node == self.self_node or (node in self._peers and self._peers[node].is_live)

    # ------------------------------------------------------------------ steps

    def _peer(self, node: int) -> Peer:
        peer = self._peers.get(node)
        if peer is None:
            assert node != self.self_node
            peer = self._peers[node] = Peer(node)
        return peer

    def _ping_soon(self, now: float) -> None:
        """The list has changed."""
        self._next_ping_at = min(self._next_ping_at, now + self.timing.change_delay_s)

    def _lowest_sent_version(self) -> int:
        """The list version that was sent on all open links. A new link starts with the whole list."""
        sent = (peer.sent_version for peer in self._peers.values() if peer.is_connected)
        return min(sent, default=self._led.version)

    def _apply_echo(self, peer: Peer, ping: Ping, out: LivenessOutput) -> None:
        if ping.echo_boot_id != self.boot_id or ping.echo_number == 0:
            return  # an echo for an earlier life of this node
        if peer.echoed(ping.echo_number):
            peer.echo_is_fresh = True
        peer.confirmed_version = ping.applied_version
        if ping.echo_number >= peer.sent_number and ping.applied_version < peer.sent_version:
            peer.sent_version = 0  # it could not apply the changes: send the whole list again
        peer.challenges = dict(ping.challenged)
        for group, term in ping.challenged:
            leadership = self._led.get(group)
            if leadership is not None and term > leadership.led.term:
                out.challenges.append(Challenge(group, term))

    def _apply_list(self, peer: Peer, ping: Ping, out: LivenessOutput) -> None:
        """Apply the changes of a ping, if they follow the version that is applied."""
        if ping.base_version == 0:
            named = {led.group for led in ping.led}
            dropped: Sequence[GroupKey] = [group for group in peer.led if group not in named]
        elif ping.base_version <= peer.applied_version < ping.list_version:
            dropped = ping.dropped
        else:
            return
        peer.applied_version = ping.list_version
        for group in dropped:
            led = peer.led.pop(group, None)
            peer.challenged.pop(group, None)
            if led is None:
                continue
            out.withdrawals.append(Withdrawal(peer.node, group, led.term))
            # A listing of a lower term than the followed one says nothing about the present leadership.
            if group in peer.following and self._groups[group][0] == led.term:
                self._suspect(group, out)
        for led in ping.led:
            if peer.led.get(led.group) == led:
                continue
            peer.led[led.group] = led
            followed = self._groups.get(led.group)
            if followed is not None:
                self._judge(peer, led.group, followed[0])
                if peer.is_live:
                    self._end_grace(peer, led.group)
            if peer.is_live:
                out.announcements.append(Announcement(peer.node, led))

    def _judge(self, peer: Peer, group: GroupKey, term: int) -> None:
        """Challenge the leadership that the peer lists, if the term here is higher."""
        listed = peer.led.get(group)
        if listed is not None and listed.term < term:
            peer.challenged[group] = term
        else:
            peer.challenged.pop(group, None)

    def _end_grace(self, peer: Peer, group: GroupKey) -> None:
        """The peer is live. If it lists the leadership that is followed here, the deadline of `_unlisted` is met."""
        listed = peer.led.get(group)
        if listed is not None and self._groups.get(group) == (listed.term, peer.node):
            self._unlisted.pop(group, None)

    def _suspect(self, group: GroupKey, out: LivenessOutput) -> None:
        term, leader_node = self._groups[group]
        assert leader_node is not None
        self._peer(leader_node).following.pop(group, None)
        self._groups[group] = (term, None)
        self._unlisted.pop(group, None)
        out.suspects.append(group)

    def _end_leaderships(self, peer: Peer, out: LivenessOutput) -> None:
        """Treat all leaderships of the node as ended."""
        if peer.is_live or peer.following:
            out.ended.append(peer.node)
        peer.is_live = False
        for group in list(peer.following):
            self._suspect(group, out)

    def _excuse_others(self, now: float) -> None:
        """This loop did not run for a while, so the silence of other nodes in that time says nothing about them."""
        for peer in self._peers.values():
            if peer.is_live:
                peer.heard_at = now
        for group in self._unlisted:
            self._unlisted[group] = now + self.timing.election_timeout_s

    def _is_majority(
        self, leadership: Leadership, voter_nodes: Sequence[int], answered: Callable[[Peer], bool]
    ) -> bool:
        """Count this node, if it votes, and the voters that answered, had applied the leadership and do not challenge
        it."""
        group, term = leadership.led.group, leadership.led.term
        count = 0
        for node in voter_nodes:
            if node == self.self_node:
                count += 1
                continue
            peer = self._peers.get(node)
            if (
                peer is not None
                and peer.confirmed_version >= leadership.term_version
                and peer.challenges.get(group, term) <= term
                and answered(peer)
            ):
                count += 1
        return count > len(voter_nodes) // 2


def _expired(deadlines: dict[GroupKey, float], now: float) -> list[GroupKey]:
    """The groups whose deadline has passed. The dict is ordered by time, so only those are visited."""
    due: list[GroupKey] = []
    for group, deadline in deadlines.items():
        if deadline > now:
            break
        due.append(group)
    return due
