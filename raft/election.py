"""Elections: pre-vote, vote, winning (Raft sections 5.2 and 5.4.1; thesis sections 4.2.3, 6.2 and 9.6)."""

from __future__ import annotations

from raft.leading import Leading
from raft.types import (
    HardState,
    Output,
    ReplicaId,
    Role,
    Row,
    RowKind,
    VoteReply,
    VoteRequest,
    Watermarks,
)


class Election(Leading):
    __slots__ = ()

    # ------------------------------------------------------------------ facts

    def tick(self, now: float) -> Output:
        """The deadline may have passed."""
        out = Output()
        if self.deadline is None or now < self.deadline:
            return out
        if self.role is Role.LEADER:
            self._leader_tick(out, now)
        elif not self._has_ticked:
            self._await_first_election(out, now)
        else:
            self._start_pre_vote(out, now)
        return out

    def leader_suspected(self, now: float) -> Output:
        """Liveness says that the leader is gone: campaign soon, at a random point of the spread."""
        out = Output()
        if self.role is Role.FOLLOWER:
            out.role_changed = self.leader is not None
            self.leader = None
            self._await_election(now, 0.0)
        return out

    def leader_heard(self, leader: ReplicaId, term: int, now: float) -> Output:
        """Liveness says that `leader` leads in `term` and is alive."""
        out = Output()
        if leader == self.self_id or term < self.term:
            return out
        assert term > self.term or self.role is not Role.LEADER, "two leaders in one term"
        if term > self.term or leader != self.leader:
            self._become_follower(out, term, leader, now)
        return out

    def term_seen(self, term: int, now: float) -> Output:
        """Some member is in this term: whoever is below it leads or follows no more in the old one."""
        out = Output()
        if term > self.term:
            self._become_follower(out, term, None, now)
        return out

    def quorum_lost(self, now: float) -> Output:
        """No majority answers this leader any more (CheckQuorum): it stops leading."""
        out = Output()
        if self.role is Role.LEADER:
            self._become_follower(out, self.term, None, now)
        return out

    def timeout_now(self, from_: ReplicaId, term: int, now: float) -> Output:
        """The leader hands over to this replica."""
        out = Output()
        if self.role is not Role.LEADER and term == self.term and self.may_campaign and self._rows_durable():
            self._campaign(out, now, transfer=True)
        return out

    def peer_reachable(self, node_id: int, now: float) -> Output:
        """A new link to this node is open: send it what it has not answered."""
        out = super().peer_reachable(node_id, now)
        if self.role is Role.PRE_CANDIDATE:
            request = VoteRequest(self.term + 1, self.last_term, self.end_index, True, False)
            out.messages.extend(
                (voter, request)
                for voter in self._other_voters()
                if voter.node_id == node_id and voter not in self._votes
            )
        return out

    def vote_requested(self, from_: ReplicaId, request: VoteRequest, now: float) -> Output:
        """A candidate asks. A grant leaves only when it is durable; a pre-vote changes nothing here."""
        out = Output()
        if not self.may_vote or from_ == self.self_id:
            return out
        up_to_date = (request.last_term, request.end_index) >= (self.last_term, self.end_index)
        # A live leader is no reason if it is the one that asks: it has resigned.
        leader_is_live = self.leader is not None and self.leader != from_ and not request.transfer
        if request.pre_vote:
            granted = request.term > self.term and up_to_date and not leader_is_live
            if granted and self.role is Role.FOLLOWER and self.deadline is not None:
                # It is about to campaign; rivals would split the vote, whose flush takes far longer than
                # this. Shorter than its next attempt, so that one who cannot win holds nobody off for ever.
                head_start_s = self.rng.uniform(0.25, 0.5) * self.timing.election_timeout_s
                self.deadline = max(self.deadline, now + head_start_s)
            reply_term = request.term if granted else self.term
            out.messages.append((from_, VoteReply(reply_term, granted, True, self.watermarks)))
            progress = self._progress.get(from_)
            if progress is not None and progress.awaiting and not granted:
                # It has not heard this leader: what was sent before its replica was there is lost.
                self._probe_again(out, progress, now)
            return out
        if request.term > self.term and not leader_is_live:
            self._become_follower(out, request.term, None, now)
        granted = (
            request.term == self.term
            and up_to_date
            and self.voted_for in (None, from_)
            and self.leader is None
        )
        if granted:
            if self.voted_for is None:
                self._set_hard_state(out, self.term, from_)
            self._become_follower(out, self.term, None, now)
        self._reply_to_vote(out, from_, VoteReply(self.term, granted, False, self.watermarks))
        return out

    def vote_replied(self, from_: ReplicaId, reply: VoteReply, now: float) -> Output:
        out = Output()
        if not reply.granted:
            if reply.term > self.term:
                self._become_follower(out, reply.term, None, now)
            return out
        if from_ not in self.configuration.voters:
            return out
        if reply.pre_vote:
            if self.role is Role.PRE_CANDIDATE and reply.term == self.term + 1:
                self._votes[from_] = reply.watermarks
                if self._has_majority():
                    self._campaign(out, now, transfer=False)
        elif self.role is Role.CANDIDATE and reply.term == self.term:
            self._count_vote(out, from_, reply.watermarks, now)
        return out

    # ------------------------------------------------------------------ steps

    def _await_first_election(self, out: Output, now: float) -> None:
        """After start nobody is suspected yet, and pre-vote disturbs no live leader, so campaign early. The
        first voter goes first: it is the preferred leader of a new group. The only voter need not wait at
        all."""
        self._has_ticked = True
        if not self.may_campaign:
            self.deadline = None
        elif self.configuration.voters == (self.self_id,):
            self._start_pre_vote(out, now)
        else:
            is_first = self.configuration.voters[0] == self.self_id
            self._await_election(now, 0.0 if is_first else self.timing.campaign_spread_s)

    def _rows_durable(self) -> bool:
        return self.persisted_end > self._rows.last_index

    def _start_pre_vote(self, out: Output, now: float) -> None:
        """Ask whether an election could be won; raises no term (thesis section 9.6).

        Postponed while the last row is not durable: winning writes the next row.
        """
        if not self.may_campaign:
            self.deadline = None
            return
        self.deadline = now + self.rng.uniform(0.5, 1.0) * self.timing.election_timeout_s
        if not self._rows_durable():
            return
        out.role_changed = self.role is not Role.PRE_CANDIDATE
        self.role = Role.PRE_CANDIDATE
        self.leader = None
        self._votes.clear()
        if self.self_id in self.configuration.voters:
            self._votes[self.self_id] = self.watermarks
        if self._has_majority():
            self._campaign(out, now, transfer=False)
            return
        request = VoteRequest(self.term + 1, self.last_term, self.end_index, True, False)
        out.messages.extend((voter, request) for voter in self._other_voters())

    def _campaign(self, out: Output, now: float, *, transfer: bool) -> None:
        """Enter the next term and ask for votes when the own one is durable. It counts when `hard_state_persisted` says
        so: counted at once, it would let the only voter lead a term that a crash makes it forget, and lead it again
        with another first row."""
        self.role = Role.CANDIDATE
        self.leader = None
        self._set_hard_state(out, self.term + 1, self.self_id)
        self._verified_end = 0
        self._acknowledged_end = 0
        out.role_changed = True
        self.deadline = now + self.rng.uniform(0.5, 1.0) * self.timing.election_timeout_s
        self._votes.clear()
        request = VoteRequest(self.term, self.last_term, self.end_index, False, transfer)
        out.messages_after_flush.extend((voter, request) for voter in self._other_voters())

    def _count_vote(self, out: Output, voter: ReplicaId, watermarks: Watermarks, now: float) -> None:
        self._votes[voter] = watermarks
        if self._has_majority():
            self._become_leader(out, now)

    def _become_leader(self, out: Output, now: float) -> None:
        """Won: take the voters' highest watermarks, open the term with a row, offer it to everybody."""
        assert self.role is Role.CANDIDATE
        assert self._rows_durable()
        watermarks = self.watermarks
        for granted in self._votes.values():
            watermarks = watermarks.maximum(granted)
        out.watermarks = watermarks
        self._votes.clear()
        self.role = Role.LEADER
        self.leader = self.self_id
        out.role_changed = True
        self.deadline = None
        row = Row(self.end_index, self.term, RowKind.LEADER, None)
        self._own_row_index = row.index
        out.rows.append(row)
        self._adopt_row(row)
        self._members_changed(now)
        self._send_to_open(out, now)

    def _has_majority(self) -> bool:
        return len(self._votes) > len(self.configuration.voters) // 2

    def _other_voters(self) -> list[ReplicaId]:
        return [voter for voter in self.configuration.voters if voter != self.self_id]

    def _reply_to_vote(self, out: Output, to: ReplicaId, reply: VoteReply) -> None:
        """Always after the flush: the vote of an earlier, repeated request may not be durable yet."""
        assert not reply.granted or HardState(reply.term, to) == self.hard_state
        out.messages_after_flush.append((to, reply))
