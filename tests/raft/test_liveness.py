"""Liveness by node pair, sentence by sentence (replication.md section 5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raft.leadership_list import MAX_DROPPED
from raft.liveness import NodeLiveness
from raft.liveness_types import Announcement, Challenge, Led, LivenessOutput, LivenessTiming, Ping

TIMING = LivenessTiming()
VOTERS = (1, 2, 3)


class Pair:
    """Nodes with links between all; time passes in ping intervals. What each node is told is kept."""

    def __init__(self, nodes: int = 3) -> None:
        self.now = 0.0
        self.lives = dict.fromkeys(range(1, nodes + 1), 0)
        self.nodes: dict[int, NodeLiveness] = {}
        self.told: dict[int, LivenessOutput] = {}
        #: Directed links that lose everything, and nodes that do nothing.
        self.cut: list[tuple[int, int]] = []
        self.paused: list[int] = []
        for node in self.lives:
            self._start(node)
        for node in self.lives:
            self._link(node)
        self.exchange()
        self.exchange()
        self.forget()

    def _start(self, node: int) -> None:
        self.nodes[node] = NodeLiveness(node, f"{node}.{self.lives[node]}", TIMING, self.now)
        self.told[node] = LivenessOutput()

    def _link(self, node: int) -> None:
        for other in self.nodes:
            if other != node:
                self.tell(node, self.nodes[node].connected(other, self.nodes[other].boot_id, self.now))

    def forget(self) -> None:
        for node in self.nodes:
            self.told[node] = LivenessOutput()

    def tell(self, node: int, out: LivenessOutput) -> None:
        told = self.told[node]
        for field in LivenessOutput.__slots__:
            setattr(told, field, getattr(told, field) or getattr(out, field))

    def send(self, from_: int, to: int, *, reply_at_once: bool = False) -> Ping:
        ping = self.nodes[from_].ping_for(to, self.now, reply_at_once=reply_at_once)
        if (from_, to) not in self.cut:
            self.tell(to, self.nodes[to].ping_received(from_, ping, self.now))
        return ping

    def exchange(self) -> None:
        """One interval: everybody ticks, then pings."""
        self.now += TIMING.ping_interval_s
        alive = [node for node in self.nodes if node not in self.paused]
        for node in alive:
            self.tell(node, self.nodes[node].tick(self.now))
        for node in alive:
            for other in self.nodes[node].connected_nodes():
                if other in alive:
                    self.send(node, other)

    def exchange_for(self, seconds: float) -> None:
        for _ in range(round(seconds / TIMING.ping_interval_s)):
            self.exchange()

    def lead(self, node: int, term: int, *followers: int) -> None:
        """The node leads group g, everybody knows, the followers follow."""
        self.nodes[node].led_changed("g", term, 0, True, self.now)
        self.exchange()
        self.exchange()
        for follower in followers:
            self.nodes[follower].follows("g", term, node, self.now)
        self.forget()


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_everybody_learns_who_leads_what(pair: Pair) -> None:
    pair.nodes[1].led_changed("g", 5, 7, False, pair.now)
    pair.exchange()
    led = Led("g", 5, 7, False)
    assert pair.told[2].announcements == [Announcement(1, led)]
    assert pair.told[3].announcements == [Announcement(1, led)]
    pair.forget()
    pair.exchange()
    assert pair.told[2].announcements == []
    pair.nodes[1].led_changed("g", 5, 7, True, pair.now)
    pair.exchange()
    assert pair.told[2].announcements == [Announcement(1, led._replace(established=True))]


def test_a_change_is_sent_soon(pair: Pair) -> None:
    pair.nodes[1].tick(pair.now)
    pair.nodes[1].led_changed("g", 5, 7, False, pair.now)
    assert pair.nodes[1].deadline == pair.now + TIMING.change_delay_s


def test_a_ping_carries_only_what_changed(pair: Pair) -> None:
    for number in range(50):
        pair.nodes[1].led_changed(number, 1, 0, True, pair.now)
    assert len(pair.send(1, 2).led) == 50
    assert pair.send(1, 2).led == ()
    pair.nodes[1].led_changed(7, 1, 0, None, pair.now)
    pair.nodes[1].led_changed(8, 2, 0, True, pair.now)
    ping = pair.send(1, 2)
    assert ping.led == (Led(8, 2, 0, True),)
    assert ping.dropped == (7,)
    # A new link begins with everything.
    pair.tell(1, pair.nodes[1].connected(2, pair.nodes[2].boot_id, pair.now))
    assert len(pair.send(1, 2).led) == 49


def test_a_receiver_that_misses_changes_gets_the_whole_list(pair: Pair) -> None:
    pair.nodes[1].led_changed("lost", 1, 0, True, pair.now)
    pair.cut.append((1, 2))
    pair.exchange()
    pair.cut.clear()
    pair.nodes[1].led_changed("g", 1, 0, True, pair.now)
    pair.exchange()  # refused: it does not follow on what is applied
    assert pair.told[2].announcements == []
    pair.exchange_for(0.3)
    assert {one.led.group for one in pair.told[2].announcements} == {"lost", "g"}


def test_resigning_is_leaving_the_list(pair: Pair) -> None:
    pair.lead(1, 5, 2, 3)
    pair.nodes[1].led_changed("g", 5, 0, None, pair.now)
    pair.exchange()
    assert pair.told[2].suspects == ["g"]
    assert [(one.node, one.term) for one in pair.told[3].withdrawals] == [(1, 5)]


def test_a_silent_node_leads_nothing_after_an_election_timeout(pair: Pair) -> None:
    pair.lead(1, 5, 2)
    pair.paused.append(1)
    pair.exchange_for(0.9)
    assert pair.told[2].suspects == []
    pair.exchange_for(0.3)
    assert pair.told[2].suspects == ["g"]
    assert pair.told[2].ended == [1]


def test_a_silent_node_that_is_heard_again_leads_again(pair: Pair) -> None:
    pair.lead(1, 5, 2)
    pair.cut.append((1, 2))
    pair.exchange_for(1.2)
    assert pair.told[2].suspects == ["g"]
    pair.forget()
    pair.cut.clear()
    pair.exchange()
    assert pair.told[2].announcements == [Announcement(1, Led("g", 5, 0, True))]


def test_a_closed_connection_ends_all_leaderships_at_once(pair: Pair) -> None:
    pair.lead(1, 5, 2, 3)
    late = pair.nodes[1].ping_for(2, pair.now)
    pair.tell(2, pair.nodes[2].disconnected(1, pair.now))
    assert pair.told[2].suspects == ["g"]
    pair.forget()
    # What the dead node had sent before does not revive it.
    pair.tell(2, pair.nodes[2].ping_received(1, late, pair.now))
    assert pair.told[2].announcements == []
    assert not pair.nodes[2].is_live(1)


@pytest.mark.parametrize("by_ping", [True, False])
def test_a_new_boot_id_ends_all_leaderships_at_once(pair: Pair, by_ping: bool) -> None:
    """Leader killed and back in 0.5 s: everybody looks alive, and yet somebody must campaign."""
    pair.lead(1, 5, 2)
    late = pair.nodes[1].ping_for(2, pair.now)
    pair.lives[1] += 1
    pair._start(1)
    pair._link(1)
    if by_ping:
        pair.send(1, 2)
    else:
        pair.tell(2, pair.nodes[2].connected(1, pair.nodes[1].boot_id, pair.now))
    assert pair.told[2].suspects == ["g"]
    pair.tell(2, pair.nodes[2].connected(1, pair.nodes[1].boot_id, pair.now))
    pair.tell(2, pair.nodes[2].ping_received(1, late, pair.now))
    assert pair.told[2].announcements == []


def test_the_last_words_of_an_earlier_life_do_not_silence_the_present_one(pair: Pair) -> None:
    """Node 2 starts, hears the present life of 1, and only then an earlier one answers its handshake."""
    earlier = pair.nodes[1].boot_id
    pair.lives[1] += 1
    pair._start(1)
    pair._start(2)
    pair._link(1)
    pair.send(1, 2)
    pair.tell(2, pair.nodes[2].connected(1, earlier, pair.now))
    pair.send(1, 2)
    assert not pair.nodes[2].is_live(1)
    pair.tell(2, pair.nodes[2].connected(1, pair.nodes[1].boot_id, pair.now))
    pair.send(1, 2)
    assert pair.nodes[2].is_live(1)


def test_a_leader_that_never_lists_the_group_is_suspected(pair: Pair) -> None:
    """It won, was followed because of its first append, and resigned before its list named the group."""
    pair.nodes[2].follows("g", 6, 1, pair.now)
    pair.exchange_for(0.9)
    assert pair.told[2].suspects == []
    pair.exchange_for(0.3)
    assert pair.told[2].suspects == ["g"]


def test_leaving_an_older_leadership_says_nothing_about_the_present_one(pair: Pair) -> None:
    pair.lead(1, 5, 2)
    pair.nodes[1].led_changed("g", 5, 0, None, pair.now)
    pair.nodes[2].follows("g", 7, 1, pair.now)  # its append of term 7 came before the ping
    pair.exchange()
    assert pair.told[2].suspects == []
    pair.nodes[1].led_changed("g", 7, 0, True, pair.now)
    pair.exchange_for(2.0)
    assert pair.told[2].suspects == []


def test_a_leader_of_an_older_term_is_challenged(pair: Pair) -> None:
    """A leader of term 6 was never heard; the one of term 5, in an idle group, must not lead for ever."""
    pair.lead(1, 5, 2)
    pair.nodes[2].follows("g", 6, None, pair.now)
    pair.exchange_for(0.2)
    assert pair.told[1].challenges == [Challenge("g", 6)]
    assert not pair.nodes[1].quorum_confirmed_since("g", 5, (1, 2), 1)


def test_a_promise_contradicts_an_older_leader_also_when_the_replica_is_closed(pair: Pair) -> None:
    pair.lead(1, 5, 2, 3)
    pair.nodes[2].follows("g", 6, 3, pair.now)
    pair.nodes[2].follows("g", 6, None, pair.now)  # closed
    pair.exchange_for(0.2)
    assert pair.told[1].challenges == [Challenge("g", 6)]
    pair.nodes[2].group_deleted("g")
    pair.forget()
    pair.exchange_for(0.2)
    assert pair.told[1].challenges == []


def test_promises_that_nobody_contradicts_cost_no_ping_anything(pair: Pair) -> None:
    """A node may have given up thousands of replicas."""
    for number in range(5000):
        pair.nodes[2].follows(number, 3, None, pair.now)
    pair.nodes[1].led_changed(7, 3, 0, True, pair.now)
    pair.exchange_for(1.5)
    ping = pair.send(2, 1)
    assert ping.challenged == () and ping.led == () and ping.dropped == ()
    assert pair.told[2].suspects == []


class TestQuorum:
    def test_holds_while_a_majority_echoes(self, pair: Pair) -> None:
        pair.lead(1, 5, 2, 3)
        pair.exchange_for(3)
        assert pair.nodes[1].has_quorum("g", 5, VOTERS, pair.now)
        pair.paused.append(3)
        pair.exchange_for(3)
        assert pair.told[1].quorum_checks == [3]
        assert pair.nodes[1].has_quorum("g", 5, VOTERS, pair.now)

    def test_is_lost_in_isolation_before_two_election_timeouts(self, pair: Pair) -> None:
        pair.lead(1, 5, 2, 3)
        pair.exchange_for(3)
        pair.paused += [2, 3]
        pair.exchange_for(1.2)
        assert pair.nodes[1].has_quorum("g", 5, VOTERS, pair.now)
        pair.exchange_for(2 * TIMING.election_timeout_s - 1.2)
        assert sorted(pair.told[1].quorum_checks) == [2, 3]
        assert not pair.nodes[1].has_quorum("g", 5, VOTERS, pair.now)

    def test_is_not_fed_by_a_link_in_one_direction(self, pair: Pair) -> None:
        pair.lead(1, 5, 2, 3)
        pair.exchange_for(3)
        pair.cut += [(1, 2), (1, 3)]  # it still hears both
        pair.exchange_for(2)
        assert not pair.nodes[1].has_quorum("g", 5, VOTERS, pair.now)
        pair.forget()
        pair.exchange_for(2)
        assert pair.told[1].quorum_checks == []  # the old echoes that still come lapse once

    def test_is_checked_once_a_young_leader_had_time(self, pair: Pair) -> None:
        pair.paused += [2, 3]
        pair.exchange_for(3)
        pair.nodes[1].led_changed("g", 5, 0, False, pair.now)
        assert pair.nodes[1].has_quorum("g", 5, VOTERS, pair.now)
        pair.exchange_for(1.6)
        assert pair.told[1].quorum_due == ["g"]
        assert not pair.nodes[1].has_quorum("g", 5, VOTERS, pair.now)

    def test_of_a_single_voter_needs_nobody(self, pair: Pair) -> None:
        pair.lead(1, 5)
        pair.paused += [2, 3]
        pair.exchange_for(3)
        assert pair.nodes[1].has_quorum("g", 5, (1,), pair.now)

    def test_is_that_of_one_term(self, pair: Pair) -> None:
        pair.lead(1, 5)
        assert not pair.nodes[1].has_quorum("g", 4, VOTERS, pair.now)


class TestReadRound:
    def confirm(self, pair: Pair, first_number: int) -> bool:
        return pair.nodes[1].quorum_confirmed_since("g", 5, VOTERS, first_number)

    def test_needs_an_echo_of_a_ping_sent_after_the_read_arrived(self, pair: Pair) -> None:
        pair.lead(1, 5, 2, 3)
        before = pair.nodes[1].ping_for(2, pair.now)
        first_number = pair.nodes[1].begin_round()
        pair.tell(2, pair.nodes[2].ping_received(1, before, pair.now))
        pair.send(2, 1)
        assert not self.confirm(pair, first_number)  # the same instant, but before
        pair.send(1, 2, reply_at_once=True)
        assert pair.told[2].pings == [1]
        assert not self.confirm(pair, first_number)
        pair.send(2, 1)
        assert self.confirm(pair, first_number)

    def test_counts_only_nodes_that_know_of_the_leadership(self, pair: Pair) -> None:
        pair.nodes[1].led_changed("g", 5, 0, True, pair.now)
        pair.nodes[1].ping_for(2, pair.now)  # lost, and with it the list
        first_number = pair.nodes[1].begin_round()
        pair.send(1, 2)
        pair.send(2, 1)
        assert not self.confirm(pair, first_number)
        pair.send(1, 2)  # the whole list
        pair.send(2, 1)
        assert self.confirm(pair, first_number)

    def test_does_not_count_an_echo_for_an_earlier_life(self, pair: Pair) -> None:
        pair.lead(1, 5, 2, 3)
        echo = pair.nodes[2].ping_for(1, pair.now)
        pair.lives[1] += 1
        pair._start(1)
        pair._link(1)
        pair.nodes[1].led_changed("g", 5, 0, True, pair.now)
        pair.tell(1, pair.nodes[1].ping_received(2, echo, pair.now))
        assert not self.confirm(pair, 0)

    def test_still_holds_when_only_the_announcement_changes(self, pair: Pair) -> None:
        pair.lead(1, 5, 2, 3)
        pair.exchange_for(0.2)
        pair.nodes[1].led_changed("g", 5, 9, True, pair.now)
        assert self.confirm(pair, 1)


def test_a_loop_that_slept_says_so_and_accuses_nobody(pair: Pair) -> None:
    pair.lead(2, 5, 1)
    pair.now += 3.0
    assert pair.nodes[1].is_stalled(pair.now)
    out = pair.nodes[1].tick(pair.now)
    assert out.stalled
    assert out.suspects == []
    assert not pair.nodes[1].is_stalled(pair.now)


def test_old_pings_are_ignored(pair: Pair) -> None:
    pair.nodes[1].led_changed("g", 5, 0, True, pair.now)
    old = pair.nodes[1].ping_for(2, pair.now)
    pair.nodes[1].led_changed("g", 5, 0, None, pair.now)
    new = pair.nodes[1].ping_for(2, pair.now)
    for ping in (new, old, new):
        pair.tell(2, pair.nodes[2].ping_received(1, ping, pair.now))
    pair.exchange_for(0.3)
    assert pair.told[2].announcements == []


def test_dropped_groups_are_forgotten_once_everybody_knows(pair: Pair) -> None:
    for number in range(3 * MAX_DROPPED):
        pair.nodes[1].led_changed(number, 1, 0, True, pair.now)
        pair.nodes[1].led_changed(number, 1, 0, None, pair.now)
        if number % 100 == 0:
            pair.exchange()
    assert len(pair.nodes[1]._led._changes) <= MAX_DROPPED + 200


def test_a_forgotten_group_is_neither_suspected_nor_challenged(pair: Pair) -> None:
    pair.lead(1, 5, 2, 3)
    pair.nodes[2].follows("g", 6, None, pair.now)
    for node, act in ((2, pair.nodes[2].group_deleted), (3, pair.nodes[3].group_deleted)):
        act("g")
        pair.tell(node, pair.nodes[node].disconnected(1, pair.now))
        assert pair.told[node].suspects == []
    assert pair.send(2, 1).challenged == ()


def test_timing_relations_are_checked() -> None:
    broken: list[Callable[[], LivenessTiming]] = [
        lambda: LivenessTiming(ping_interval_s=2.0).validate(),
        lambda: LivenessTiming(check_quorum_s=2.0).validate(),
    ]
    for make in broken:
        with pytest.raises(AssertionError):
            make()
