"""Rules of a single group that no schedule shows as plainly, each driven by hand."""

from __future__ import annotations

import random

import pytest

from raft.group import Group
from raft.progress import ProgressState
from raft.types import (
    FOUNDING_TERM,
    NO_TERM,
    AppendRejection,
    AppendReply,
    Configuration,
    HardState,
    InstallSnapshot,
    InstallSnapshotReply,
    Output,
    ProposalRefusedError,
    ReplicaId,
    Role,
    Row,
    RowKind,
    Send,
    Timing,
    VoteReply,
    VoteRequest,
    Watermarks,
)
from tests.raft.cluster import founding_row, replica

ONE, TWO, THREE = (replica(node_id) for node_id in (1, 2, 3))
FOUNDING = founding_row(Configuration((ONE, TWO, THREE), ()))
NOTHING = Watermarks(0, -1, -1)


def leader_row(index: int, term: int) -> Row:
    return Row(index, term, RowKind.LEADER, None)


def make(*rows: Row, end: int = 0, term: int = 0, watermarks: Watermarks = NOTHING) -> Group:
    """Replica 1 of three after a restart, its first tick over."""
    rows = (FOUNDING, *rows)
    group = Group(
        ONE,
        HardState(term, None),
        rows,
        max(end, rows[-1].index + 1),
        0,
        watermarks=watermarks,
        install_offset=watermarks.log_start,
        timing=Timing(),
        rng=random.Random(1),
    )
    group.tick(0.0)
    return group


def make_leader(*rows: Row, watermarks: Watermarks = NOTHING, granted: Watermarks = NOTHING) -> Group:
    """Replica 1 as leader of the next term, its first row durable here and acknowledged by 2."""
    group = make(*rows, watermarks=watermarks)
    assert group.deadline is not None
    group.tick(group.deadline)
    term = group.term + 1
    group.vote_replied(TWO, VoteReply(term, True, True, granted), 1.0)
    group.hard_state_persisted(HardState(term, ONE), 1.0)
    out = group.vote_replied(TWO, VoteReply(term, True, False, granted), 1.0)
    assert group.role is Role.LEADER
    do_sends(group, out)
    group.persisted(group.end_index, 1.0)
    do_sends(group, acknowledge(group, TWO, group.end_index))
    assert group.is_established
    return group


def do_sends(group: Group, out: Output) -> None:
    for order in out.sends:
        next_order = group.sent(order.to, order.end_limit, 1)
        while next_order is not None:
            next_order = group.sent(next_order.to, next_order.end_limit, 1)


def acknowledge(
    group: Group, replica_id: ReplicaId, end: int, *, log_start: int = 0, now: float = 1.0
) -> Output:
    return group.append_replied(replica_id, group.term, end, log_start, now)


def reject(
    group: Group, replica_id: ReplicaId, start_index: int, hint_index: int, hint_term: int, now: float = 1.0
) -> Output:
    rejected = AppendRejection(group.term, start_index, hint_index, hint_term, 0)
    return group.append_rejected(replica_id, rejected, now)


class TestFollower:
    def test_acknowledges_only_what_this_leader_has_verified_in_this_term(self) -> None:
        """Ten entries of term 1 are durable here; the leader of term 2 has shown that it has the first four."""
        group = make(leader_row(1, 1), end=10, term=1)
        out = group.append_received(TWO, 2, 4, 1, 4, (), 0, 1.0)
        assert out.messages_after_flush == [(TWO, AppendReply(2, 4, 0))]
        assert group.commit_end == 0

    def test_learns_the_commit_index_only_as_far_as_it_is_verified(self) -> None:
        group = make(leader_row(1, 1), end=10, term=1)
        group.append_received(TWO, 2, 4, 1, 4, (), 9, 1.0)
        assert group.commit_end == 4

    def test_what_an_earlier_leader_verified_does_not_count_for_the_next(self) -> None:
        group = make(leader_row(1, 1), term=1)
        group.append_received(TWO, 1, 2, 1, 8, (), 0, 1.0)
        group.leader_heard(THREE, 2, 1.0)
        assert group.take_acknowledgement(8) is None
        assert group.persisted(8, 1.0).messages == []

    def test_an_acknowledgement_that_is_taken_before_the_flush_is_not_ordered_after_it(self) -> None:
        group = make(leader_row(1, 1), term=1)
        group.append_received(TWO, 1, 2, 1, 5, (), 0, 1.0)
        group.append_received(TWO, 1, 5, 1, 8, (), 0, 1.0)
        assert group.take_acknowledgement(5) == (TWO, AppendReply(1, 5, 0))
        assert group.persisted(5, 1.0).messages == []
        assert group.take_acknowledgement(5) is None
        assert group.persisted(8, 1.0).messages == [(TWO, AppendReply(1, 8, 0))]

    def test_answers_the_replica_that_sent_whatever_the_configuration_here_calls_the_node(self) -> None:
        """Node 2 has lost its directory, and leads under its new one; the configuration here knows the old one. Answers
        to that are lost, and the leader waits for a resend timeout (seed 304837103676)."""
        rebuilt = ReplicaId(TWO.node_id, b"another directory", 0)
        group = make(leader_row(1, 1), term=1)
        group.append_received(rebuilt, 1, 2, 1, 5, (), 0, 1.0)
        group.leader_heard(TWO, 1, 1.0)
        assert group.leader == rebuilt
        assert group.persisted(5, 1.0).messages == [(rebuilt, AppendReply(1, 5, 0))]
        group.leader_heard(THREE, 2, 1.0)
        assert group.leader == THREE

    def test_answers_nobody_in_a_term_that_is_not_durable(self) -> None:
        """Three records of term 1 are being flushed when the leader of term 2 is heard. That flush began before the
        journal was told of term 2, so it brings the records and not the term."""
        group = make(leader_row(1, 1), end=5, term=1)
        group.append_received(TWO, 1, 5, 1, 8, (), 0, 1.0)
        out = group.append_received(THREE, 2, 8, 1, 8, (), 0, 1.0)
        assert out.hard_state == HardState(2, None)
        assert (out.messages, out.messages_after_flush) == ([], [(THREE, AppendReply(2, 5, 0))])
        refusal = group.append_received(THREE, 2, 9, 2, 9, (), 0, 1.0)
        assert (refusal.messages, len(refusal.messages_after_flush)) == ([], 1)
        assert group.take_acknowledgement(8) is None
        assert group.persisted(8, 1.0).messages == []
        out = group.hard_state_persisted(HardState(2, None), 1.0)
        assert out.messages == [(THREE, AppendReply(2, 8, 0))]
        assert group.append_received(THREE, 2, 9, 2, 9, (), 0, 1.0).messages == refusal.messages_after_flush

    def test_a_flush_of_an_earlier_term_makes_no_later_one_durable(self) -> None:
        group = make(leader_row(1, 1), end=5, term=1)
        group.leader_heard(TWO, 2, 1.0)
        group.leader_heard(THREE, 3, 1.0)
        group.append_received(THREE, 3, 5, 1, 5, (), 0, 1.0)
        assert group.hard_state_persisted(HardState(2, None), 1.0).messages == []
        assert group.append_received(THREE, 3, 5, 1, 5, (), 0, 1.0).messages == []
        group.hard_state_persisted(HardState(3, None), 1.0)
        assert group.append_received(THREE, 3, 5, 1, 5, (), 0, 1.0).messages

    def test_a_leader_has_nobody_to_acknowledge_to(self) -> None:
        group = make_leader(leader_row(1, 1))
        assert group.take_acknowledgement(group.end_index) is None

    def test_acknowledges_the_smaller_of_durable_and_verified(self) -> None:
        group = make(leader_row(1, 1), term=1)
        group.append_received(TWO, 1, 2, 1, 5, (), 0, 1.0)
        group.append_received(TWO, 1, 5, 1, 8, (), 0, 1.0)
        assert group.persisted(5, 1.0).messages == [(TWO, AppendReply(1, 5, 0))]
        assert group.append_received(TWO, 1, 8, 1, 8, (), 0, 1.0).messages == [(TWO, AppendReply(1, 5, 0))]

    def test_answers_an_old_leader_with_its_own_term(self) -> None:
        group = make(leader_row(1, 1), term=3)
        out = group.append_received(TWO, 2, 2, 1, 4, (), 0, 1.0)
        assert out.messages[0][1].term == 3
        assert out.write_from is None
        assert group.leader is None

    def test_a_hint_skips_a_term_and_not_an_entry(self) -> None:
        """Own log: terms 0 1 1 1 4 4 4; the leader asks behind an entry of term 3."""
        group = make(leader_row(1, 1), leader_row(4, 4), end=7, term=4)
        out = group.append_received(TWO, 5, 7, 3, 8, (), 0, 1.0)
        assert out.messages_after_flush == [(TWO, AppendRejection(5, 7, 4, 1, 0))]

    def test_a_disk_without_space_leaves_log_and_commit_index_as_they_were(self) -> None:
        group = make(leader_row(1, 1), term=1)
        group.append_received(TWO, 1, 2, 1, 8, (), 8, 1.0)
        group.write_failed(2, 0)
        assert (group.end_index, group.commit_end) == (2, 0)
        out = group.append_received(TWO, 1, 2, 1, 8, (), 8, 1.0)
        assert out.write_from == 2
        assert group.persisted(8, 1.0).messages == [(TWO, AppendReply(1, 8, 0))]

    def test_cutting_below_the_commit_index_stops_the_node(self) -> None:
        group = make(leader_row(1, 1), end=5, term=1)
        group.append_received(TWO, 1, 5, 1, 5, (), 5, 1.0)
        with pytest.raises(AssertionError, match="never cut"):
            group.append_received(THREE, 2, 3, 1, 4, (leader_row(3, 2),), 0, 1.0)


class TestVoter:
    def test_a_repeated_grant_waits_for_the_flush_like_the_first(self) -> None:
        group = make()
        request = VoteRequest(1, 0, 1, False, False)
        for _ in range(2):
            out = group.vote_requested(TWO, request, 1.0)
            assert not out.messages
            assert out.messages_after_flush == [(TWO, VoteReply(1, True, False, NOTHING))]
        ((_, reply),) = group.vote_requested(THREE, request, 1.0).messages_after_flush
        assert isinstance(reply, VoteReply) and not reply.granted

    def test_the_last_row_may_be_ahead_of_the_journal(self) -> None:
        group = make(leader_row(1, 4), term=2)
        assert group.hard_state == HardState(4, None)

    def test_refuses_while_its_leader_is_alive_unless_that_transfers_its_leadership(self) -> None:
        group = make(leader_row(1, 1), term=1)
        group.leader_heard(TWO, 1, 1.0)
        asks = VoteRequest(2, 1, 9, False, False)
        refused = group.vote_requested(THREE, asks, 1.0)
        assert refused.messages_after_flush == [(THREE, VoteReply(1, False, False, NOTHING))]
        granted = group.vote_requested(THREE, asks._replace(transfer=True), 1.0)
        assert granted.messages_after_flush == [(THREE, VoteReply(2, True, False, NOTHING))]

    def test_tells_its_watermarks_and_the_winner_takes_the_highest(self) -> None:
        group = make_leader(watermarks=Watermarks(0, 7, 1), granted=Watermarks(0, 3, 5))
        assert group.watermarks == Watermarks(0, 7, 1)  # the host persists before it sets
        again = make(watermarks=Watermarks(0, 7, 1))
        assert again.deadline is not None
        again.tick(again.deadline)
        again.vote_replied(TWO, VoteReply(1, True, True, NOTHING), 1.0)
        again.hard_state_persisted(HardState(1, ONE), 1.0)
        out = again.vote_replied(TWO, VoteReply(1, True, False, Watermarks(0, 3, 5)), 1.0)
        assert out.watermarks == Watermarks(0, 7, 5)

    @pytest.mark.parametrize("stranger", [replica(4), replica(2, 1)])
    def test_a_stranger_does_not_count(self, stranger: ReplicaId) -> None:
        group = make()
        assert group.deadline is not None
        group.tick(group.deadline)
        group.vote_replied(stranger, VoteReply(1, True, True, NOTHING), 1.0)
        assert group.role is Role.PRE_CANDIDATE

    def test_a_blank_learner_neither_votes_nor_campaigns(self) -> None:
        blank = Group(
            ONE,
            HardState(0, None),
            (),
            0,
            0,
            watermarks=NOTHING,
            install_offset=0,
            timing=Timing(),
            rng=random.Random(1),
        )
        blank.tick(0.0)
        assert blank.deadline is None
        out = blank.vote_requested(TWO, VoteRequest(1, 0, 1, False, False), 1.0)
        assert not out.messages
        assert not out.messages_after_flush
        assert blank.term == 0
        assert blank.last_term == NO_TERM


class TestMembership:
    """Known as committed after a restart is what was deleted, most often nothing. But a change is appended only when
    the one before is committed: so all configurations but the newest are."""

    def restarted(self, *configurations: Configuration, known_commit: int = 0) -> Group:
        rows = [founding_row(configurations[0])]
        for index, configuration in enumerate(configurations[1:], 1):
            rows.append(Row(index, 1, RowKind.CONFIGURATION, configuration))
        group = Group(
            ONE,
            HardState(1, None),
            rows,
            len(rows),
            known_commit,
            watermarks=NOTHING,
            install_offset=0,
            timing=Timing(),
            rng=random.Random(1),
        )
        group.tick(0.0)
        return group

    def test_a_voter_whose_removal_may_not_be_committed_campaigns(self) -> None:
        """TWO may still have [ONE, TWO] as its newest configuration: it needs the vote of ONE, whose log is longer."""
        only_three, both, only_two = (
            Configuration((THREE,), ()),
            Configuration((ONE, TWO), ()),
            Configuration((TWO,), ()),
        )
        group = self.restarted(only_three, both, only_two)
        assert group.may_campaign and group.may_vote
        assert group.deadline is not None
        removed = self.restarted(only_three, both, only_two, known_commit=3)
        assert not removed.may_campaign and not removed.may_vote

    def test_a_voter_of_long_ago_that_is_a_learner_now_does_not_campaign(self) -> None:
        others = Configuration((TWO, THREE), ())
        group = self.restarted(
            Configuration((ONE,), ()), others, others._replace(learners=(ONE,)), known_commit=0
        )
        assert group.may_vote, "a candidate may have promoted it"
        assert not group.may_campaign
        assert group.deadline is None


class TestLeader:
    def test_offers_at_most_the_window(self) -> None:
        group = make_leader()
        sent = 0
        for end in range(3, 30):
            out = group.appended(end, 100, 1.0)
            sent += sum(order.to == TWO for order in out.sends)
            do_sends(group, out)
        assert sent == Timing().max_inflight_ranges
        do_sends(group, acknowledge(group, TWO, 4))
        progress = group.progress_of(TWO)
        assert progress is not None
        assert progress.next_index == 29  # what did not fit before goes as one range

    def test_bytes_close_the_window_too(self) -> None:
        group = make_leader()
        group.appended(3, 100, 1.0)
        assert group.sent(TWO, 3, Timing().max_inflight_bytes) is None
        assert not [order for order in group.appended(4, 100, 1.0).sends if order.to == TWO]

    def test_leads_no_longer_when_it_cannot_write_what_it_has_sent(self) -> None:
        group = make_leader()
        do_sends(group, group.appended(5, 100, 1.0))
        out = group.append_failed(2, 1.0)
        assert out.role_changed and (group.role, group.end_index) == (Role.FOLLOWER, 2)
        assert group.deadline is not None
        group.check()

    def test_leads_no_longer_when_somebody_may_have_it_in_answer_to_a_probe(self) -> None:
        group = make_leader()
        group.peer_lost(2)
        group.peer_lost(3)
        do_sends(group, group.appended(5, 100, 1.0))
        do_sends(group, group.peer_reachable(2, 1.0))
        progress = group.progress_of(TWO)
        assert progress is not None and progress.next_index == 2, "a probe moves nothing"
        group.append_failed(2, 1.0)
        assert group.role is Role.FOLLOWER

    def test_leads_no_longer_without_a_row_that_it_cannot_write(self) -> None:
        group = make_leader()
        group.peer_lost(2)
        group.peer_lost(3)
        before = group.configuration
        group.propose_configuration(Configuration(before.voters, (ReplicaId(4, b"d" * 16, 0),)), 1.0)
        group.append_failed(2, 1.0)
        assert (group.role, group.end_index, group.configuration) == (Role.FOLLOWER, 2, before)
        group.check()

    def test_leads_on_when_nobody_was_sent_what_it_cannot_write(self) -> None:
        group = make_leader()
        group.peer_lost(2)
        group.peer_lost(3)
        do_sends(group, group.appended(5, 100, 1.0))
        group.append_failed(2, 1.0)
        assert (group.role, group.end_index) == (Role.LEADER, 2)
        group.check()
        do_sends(group, group.appended(3, 100, 1.0))
        assert group.can_propose

    def test_counts_durable_copies_for_any_number(self) -> None:
        group = make_leader()
        do_sends(group, group.appended(12, 100, 1.0))
        group.persisted(9, 1.0)
        do_sends(group, acknowledge(group, TWO, 12))
        assert [group.durable_end(count) for count in (1, 2, 3)] == [12, 9, 0]
        assert group.commit_end == 9

    def test_exposes_the_log_start_that_a_majority_has_persisted(self) -> None:
        group = make_leader()
        do_sends(group, group.appended(12, 100, 1.0))
        group.persisted(12, 1.0)
        acknowledge(group, TWO, 12)
        group.watermarks = group.watermarks._replace(log_start=5)
        assert group.majority_log_start() == 0
        acknowledge(group, TWO, 12, log_start=3)
        assert group.majority_log_start() == 3
        assert group.lacking_log_start() == [TWO], "the other's log is not known to agree"
        assert not group.log_start_replied(TWO, group.term - 1, 5)
        assert group.majority_log_start() == 3
        assert group.log_start_replied(TWO, group.term, 5)
        assert group.majority_log_start() == 5
        assert group.lacking_log_start() == []

    def test_learns_a_commit_outside_of_ranges_from_its_leader_only(self) -> None:
        group = make(end=6, term=1)
        assert group.commit_received(TWO, 1, 4) is None, "nobody is known to lead"
        group.append_received(TWO, 1, 6, FOUNDING_TERM, 6, [], 0, 1.0)
        assert group.commit_received(THREE, 1, 4) is None
        assert group.commit_received(TWO, 0, 4) is None
        out = group.commit_received(TWO, 1, 4)
        assert out is not None and out.commit_advanced
        assert group.commit_end == 4

    def test_who_was_caught_up_stays_in_sync_after_a_long_silence(self) -> None:
        group = make_leader()
        do_sends(group, group.appended(3, 100, 1.0))
        acknowledge(group, TWO, 3)
        assert group.in_sync(1000.0, 10.0) == (ONE, TWO)
        group.persisted(3, 1000.0)
        do_sends(group, group.appended(4, 100, 1000.0))
        assert group.in_sync(1005.0, 10.0) == (ONE, TWO)
        assert group.in_sync(1011.0, 10.0) == (ONE,)

    def test_a_follower_behind_a_steady_stream_is_in_sync_by_when_it_had_what(self) -> None:
        group = make_leader()
        do_sends(group, acknowledge(group, THREE, 2))
        for second in range(1, 40):
            do_sends(group, group.appended(2 + second, 100, float(second)))
            do_sends(group, acknowledge(group, TWO, 1 + second, now=float(second)))  # a second behind
        assert TWO in group.in_sync(40.0, 3.0)
        assert THREE not in group.in_sync(40.0, 3.0)

    def test_an_unreachable_follower_leaves_the_in_sync_replicas(self) -> None:
        group = make_leader()
        assert TWO in group.in_sync(1.0, 10.0)
        group.peer_lost(2)
        assert TWO not in group.in_sync(1000.0, 10.0)

    def test_is_told_of_a_follower_that_answers_again_only_by_a_new_link(self) -> None:
        group = make_leader()
        group.peer_lost(2)
        assert not [order for order in group.appended(3, 100, 1.0).sends if order.to == TWO]
        out = group.peer_reachable(2, 1.0)
        assert [(order.to, order.start_index, order.end_limit) for order in out.sends] == [(TWO, 2, 3)]

    def test_silence_makes_it_probe_after_the_resend_timeout(self) -> None:
        group = make_leader()
        do_sends(group, acknowledge(group, THREE, 2))
        group.tick(9.0)
        assert group.deadline is None  # idle: no timer
        do_sends(group, group.appended(3, 100, 10.0))
        assert group.deadline == 10.0 + Timing().resend_timeout_s
        assert group.tick(12.0).sends == []
        assert [order.start_index for order in group.tick(14.0).sends] == [2, 2]

    def test_a_follower_that_asks_for_votes_has_not_heard_it_and_is_sent_again_what_it_owes(self) -> None:
        """A new topic: the leader's first range came to 3 before the replica was there."""
        group = make_leader()
        asks = VoteRequest(group.term + 1, 0, 1, True, False)
        out = group.vote_requested(THREE, asks, 1.0)
        assert [(order.to, order.start_index) for order in out.sends] == [(THREE, 1)]
        assert group.role is Role.LEADER
        assert group.vote_requested(TWO, asks, 1.0).sends == []  # it owes nothing

    def test_a_follower_that_asks_again_is_sent_what_it_has_not_acknowledged(self) -> None:
        group = make_leader()
        do_sends(group, acknowledge(group, THREE, 2))
        do_sends(group, group.appended(3, 100, 10.0))
        do_sends(group, group.appended(4, 100, 10.0))
        assert group.resend_requested(THREE, group.term - 1, 11.0).sends == [], "of an earlier term"
        assert [
            (order.to, order.start_index) for order in group.resend_requested(THREE, group.term, 11.0).sends
        ] == [(THREE, 2)]
        acknowledge(group, THREE, 4)
        assert group.resend_requested(THREE, group.term, 12.0).sends == [], "it owes nothing"

    def test_an_install_that_is_not_answered_is_ordered_again(self) -> None:
        group = make_leader(leader_row(8, 1), watermarks=Watermarks(6, -1, -1))
        out = reject(group, THREE, 9, 3, 0, 2.0)
        expected = InstallSnapshot(THREE, 6, (FOUNDING,))
        assert out.snapshots == [expected]
        progress = group.progress_of(THREE)
        assert progress is not None
        assert progress.state is ProgressState.SNAPSHOT
        again_at = 2.0 + group.timing.snapshot_timeout_s
        for now in (4.0, 6.0):
            assert group.tick(now).sends == []
        assert group.deadline is not None
        again_at = max(again_at, group.deadline)
        out = group.tick(again_at)
        assert [order.to for order in out.sends] == [THREE]
        group.install_snapshot_replied(THREE, InstallSnapshotReply(group.term, 7, 6), again_at + 1)
        assert progress.match_end == 7
        assert progress.state is ProgressState.PROBE

    def test_refuses_a_transfer_to_itself_and_from_a_follower(self) -> None:
        with pytest.raises(ProposalRefusedError):
            make_leader().transfer_leadership(ONE, 1.0)
        with pytest.raises(ProposalRefusedError):
            make().transfer_leadership(TWO, 1.0)


class TestInstall:
    def test_discards_nothing_that_agrees(self) -> None:
        group = make(leader_row(1, 1), end=9, term=1)
        out = group.install_snapshot_received(TWO, 1, 5, (FOUNDING, leader_row(1, 1)), 1.0)
        assert out.snapshot is None
        assert [to for to, _ in out.messages] == [TWO]
        assert group.end_index == 9

    def test_a_log_that_agrees_already_is_answered_for_as_it_is(self) -> None:
        """It reaches further than the snapshot, durably, and begins lower: no deletion was made durable here."""
        group = make(leader_row(1, 1), end=9, term=1)
        out = group.install_snapshot_received(TWO, 1, 5, (FOUNDING, leader_row(1, 1)), 1.0)
        assert out.messages == [(TWO, InstallSnapshotReply(1, match_end=7, log_start=0))]

    def test_a_leader_counts_the_log_start_that_a_follower_names_and_no_other(self) -> None:
        group = make_leader(leader_row(8, 1), watermarks=Watermarks(6, -1, -1))
        assert reject(group, THREE, 9, 3, 0, 2.0).snapshots
        do_sends(group, group.install_snapshot_replied(THREE, InstallSnapshotReply(group.term, 7, 2), 3.0))
        progress = group.progress_of(THREE)
        assert progress is not None
        assert (progress.match_end, progress.log_start) == (7, 2)

    def test_acknowledges_nothing_while_it_is_built(self) -> None:
        group = make(leader_row(1, 1), end=3, term=1)
        out = group.install_snapshot_received(TWO, 2, 5, (FOUNDING, leader_row(1, 1)), 1.0)
        assert out.snapshot == InstallSnapshot(TWO, 5, (FOUNDING, leader_row(1, 1)))
        out = group.append_received(TWO, 2, 3, 1, 3, (), 0, 1.0)
        assert (out.messages, out.messages_after_flush, out.write_from) == ([], [], None)

    def test_done_for_a_leader_that_is_gone_is_done_but_not_acknowledged(self) -> None:
        group = make(leader_row(1, 1), end=3, term=1)
        snapshot = group.install_snapshot_received(TWO, 2, 5, (FOUNDING, leader_row(1, 1)), 1.0).snapshot
        assert snapshot is not None
        group.leader_heard(THREE, 3, 1.0)
        out = group.snapshot_installed(snapshot, 1.0)
        assert out.messages == []
        assert (group.end_index, group.persisted_end, group.commit_end) == (7, 7, 7)

    def test_that_fails_leaves_the_old_log(self) -> None:
        group = make(leader_row(1, 1), end=3, term=1)
        group.install_snapshot_received(TWO, 1, 5, (FOUNDING, leader_row(1, 1)), 1.0)
        group.snapshot_install_failed()
        out = group.append_received(TWO, 1, 3, 1, 3, (), 0, 1.0)
        assert out.messages == [(TWO, AppendReply(1, 3, 0))]


class TestProbe:
    def test_asks_without_data_where_the_logs_are_known_to_differ(self) -> None:
        """That index may lie in the middle of a batch, which only its host knows."""
        group = make_leader(leader_row(1, 1), leader_row(6, 4))
        start = group.end_index - 1
        out = reject(group, THREE, start, 3, 2, 1.0)
        assert out.sends == [Send(THREE, 3, 3, 1)]
        do_sends(group, out)
        out = reject(group, THREE, 3, 2, 1, 1.0)
        assert out.sends == [Send(THREE, 2, 7, 1)], "there they may agree"
