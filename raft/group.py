"""One consensus group as a value: facts in, orders out.

Raft (Ongaro and Ousterhout 2014; Ongaro's thesis 2014) with pre-vote, CheckQuorum, leadership transfer,
learners and membership changes of one server, fitted to replication.md: entries are counted, only lineage
rows are known by value, and who is alive is judged per pair of nodes by `raft.liveness`, not here.

`Group` has no thread, clock, socket or disk. Every method is a fact and returns an `Output` of orders; time
comes as `now` (seconds, monotonic), randomness as a `random.Random`.

What all roles share is the group's own (`raft.state`). What belongs to a role stands in an object that exists while
the role does: `following` (raft.follower), `candidacy` (raft.candidate), `leading` (raft.leader, raft.replication).
Elections (raft.election) take the group from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from raft import election
from raft.follower import Follower, rejection
from raft.leader import Leader
from raft.rows import Rows
from raft.state import GroupState
from raft.types import (
    AppendRejection,
    AppendReply,
    Configuration,
    HardState,
    InstallSnapshot,
    InstallSnapshotReply,
    Output,
    ProposalRefusedError,
    ReplicaId,
    Row,
    Send,
    VoteReply,
    VoteRequest,
)


class Group(GroupState):
    """See the module. A broken invariant is an AssertionError: stop the node, do not go on."""

    __slots__ = ()

    # ------------------------------------------------------------------ time, liveness, links

    def tick(self, now: float) -> Output:
        """The deadline may have passed."""
        out = Output()
        if self.deadline is None or now < self.deadline:
            return out
        if self.leading is not None:
            self.leading.tick(out, now)
        elif not self.has_ticked:
            election.await_first_election(self, out, now)
        else:
            election.start_pre_vote(self, out, now)
        return out

    def leader_suspected(self, now: float) -> Output:
        """Liveness says that the leader is gone: campaign soon, at a random point of the spread."""
        out = Output()
        following = self.following
        if following is not None and following.pre_vote is None:
            out.role_changed = following.leader is not None
            following.leader = None
            self.await_election(now, 0.0)
        return out

    def leader_heard(self, leader: ReplicaId, term: int, now: float) -> Output:
        """Liveness says that this node leads in `term` and is alive. Who sent a range in it is not doubted (README)."""
        out = Output()
        if term > self.term or self.leader is None or self.leader.node_id != leader.node_id:
            self._accept_leader(out, leader, term, now)
        return out

    def term_seen(self, term: int, now: float) -> Output:
        """Some member is in this term. A replica in a lower term enters it, and leads or follows no more."""
        out = Output()
        if term > self.term:
            self.become_follower(out, term, None, now)
        return out

    def quorum_lost(self, now: float) -> Output:
        """No majority answers this leader any more (CheckQuorum): it stops leading."""
        out = Output()
        if self.leading is not None:
            self.become_follower(out, self.term, None, now)
        return out

    def peer_lost(self, node_id: int) -> None:
        """The link to this node is gone; what was under way may be lost."""
        self.unreachable[node_id] = None
        if self.leading is not None:
            self.leading.replication.link_lost(node_id)

    def peer_reachable(self, node_id: int, now: float) -> Output:
        """A new link to this node is open. What it has not answered is sent again."""
        self.unreachable.pop(node_id, None)
        out = Output()
        if self.leading is not None:
            self.leading.replication.link_opened(out, node_id, now)
        elif self.following is not None and self.following.pre_vote is not None:
            granted, request = self.following.pre_vote.granted, election.pre_vote_request(self)
            out.messages.extend(
                (voter, request)
                for voter in self.configuration.voters
                if voter.node_id == node_id and voter not in granted
            )
        return out

    # ------------------------------------------------------------------ elections

    def timeout_now(self, from_: ReplicaId, term: int, now: float) -> Output:
        """The leader transfers its leadership to this replica."""
        out = Output()
        if self.leading is None and term == self.term and self.may_campaign and self.are_rows_durable:
            election.campaign(self, out, now, transfer=True)
        return out

    def vote_requested(self, from_: ReplicaId, request: VoteRequest, now: float) -> Output:
        """A candidate asks. A grant leaves only when it is durable; a pre-vote changes nothing here."""
        out = Output()
        if not self.may_vote or from_ == self.self_id:
            return out
        if not request.pre_vote:
            election.answer_vote(self, out, from_, request, now)
        elif not election.answer_pre_vote(self, out, from_, request, now) and self.leading is not None:
            # The candidate does not know this leader: what was sent before the candidate opened its replica is lost.
            self.leading.resend_unanswered(out, from_, now)
        return out

    def vote_replied(self, from_: ReplicaId, reply: VoteReply, now: float) -> Output:
        out = Output()
        if not reply.granted:
            if reply.term > self.term:
                self.become_follower(out, reply.term, None, now)
        elif from_ in self.configuration.voters:
            if reply.pre_vote:
                election.count_pre_vote(self, out, from_, reply, now)
            else:
                election.count_vote(self, out, from_, reply, now)
        return out

    # ------------------------------------------------------------------ disk

    def persisted(self, end_index: int, now: float) -> Output:
        """Everything below end_index is durable here (data and rows)."""
        assert end_index <= self.end_index, "flushed beyond the end of the log"
        out = Output()
        if end_index <= self.persisted_end:
            return out
        self.persisted_end = end_index
        following = self.following
        if following is not None:
            acknowledgement = following.take_acknowledgement(end_index)
            if acknowledgement is not None:
                out.messages.append(acknowledgement)
        elif (
            self.leading is not None and end_index > self.commit_end and self.leading.replication.counts_self
        ):
            self.leading.advance_commit(out, now)
        return out

    def take_acknowledgement(self, end_index: int) -> tuple[ReplicaId, AppendReply] | None:
        """The acknowledgement that `persisted(end_index)` would order; `persisted` does not order it again. The host
        must send it when everything below end_index is durable, before it reports another fact. So the host can encode
        it during the flush."""
        assert end_index <= self.end_index, "flushed beyond the end of the log"
        return None if self.following is None else self.following.take_acknowledgement(end_index)

    def hard_state_persisted(self, state: HardState, now: float) -> Output:
        """This term and vote are durable here: what `Output.hard_state` ordered, reported in the same order."""
        assert state.term <= self.term
        out = Output()
        self.durable_term = max(self.durable_term, state.term)
        if self.following is not None:
            self.following.acknowledge_in_durable_term(out)
        elif self.candidacy is not None and state == self.hard_state and self.is_voter:
            own_vote = VoteReply(self.term, True, False, self.watermarks)
            election.count_vote(self, out, self.self_id, own_vote, now)
        return out

    # ------------------------------------------------------------------ follower

    def append_received(
        self,
        from_: ReplicaId,
        term: int,
        start_index: int,
        prev_term: int,
        to_index: int,
        rows: Sequence[Row],
        commit_end: int,
        now: float,
    ) -> Output:
        """The leader's range [start_index, to_index), with the rows in it; empty: heartbeat or commit index only.

        `prev_term` is the term of the entry before start_index. Records inside may have been compacted away.
        """
        out = Output()
        following = self.following
        if following is None or term != self.term or from_ != following.leader:
            following = self._accept_leader(out, from_, term, now)
            if following is None:
                self.answer_leader(out, from_, rejection(self, start_index, prev_term))
                return out
        if not self.is_installing:
            following.receive_range(out, start_index, prev_term, to_index, rows, commit_end)
        return out

    def write_failed(self, end_index: int, commit_end: int) -> None:
        """The range of the last `append_received` could not be written (the disk is full). The log ends at end_index,
        and commit_end is the one from before that call. The host drops the output of that call, except hard_state and
        truncate_to. Nothing is acknowledged. The leader sends the range again when the host asks for it."""
        assert commit_end <= end_index <= self.end_index
        assert self.following is not None
        self.commit_end = commit_end
        self.truncate_log(end_index)
        self.following.truncate_verified(end_index)

    def commit_received(self, from_: ReplicaId, term: int, commit_end: int) -> Output | None:
        """The leader sent the commit index outside of a range. None: the sender is not known here as the leader of this
        term, so the commit index cannot be used."""
        following = self.following
        if following is None or term != self.term or from_ != following.leader or self.is_installing:
            return None
        out = Output()
        following.learn_commit(out, commit_end)
        return out

    def install_snapshot_received(
        self, from_: ReplicaId, term: int, log_start: int, rows: Sequence[Row], now: float
    ) -> Output:
        """The leader offers to rebuild this log at log_start, with all rows of lower offset."""
        out = Output()
        following = self._accept_leader(out, from_, term, now)
        if following is not None and not self.is_installing:
            following.receive_snapshot(out, InstallSnapshot(from_, log_start, tuple(rows)))
        return out

    def snapshot_installed(self, snapshot: InstallSnapshot, now: float) -> Output:
        """The log was replaced, durably, as ordered: it is empty, begins at log_start and has these rows."""
        assert self.is_installing and self.leading is None
        self.is_installing = False
        out = Output()
        self.lineage = Rows(snapshot.rows)
        self.end_index = self.persisted_end = snapshot.end_index
        self.commit_end = max(self.commit_end, snapshot.end_index)
        out.commit_advanced = True
        self.reload_configuration()
        log_start = max(self.watermarks.log_start, snapshot.log_start)
        self.watermarks = self.watermarks._replace(log_start=log_start)
        self.install_offset = snapshot.log_start
        following = self.following
        if following is not None:
            following.truncate_verified(0)
            if following.leader == snapshot.replica:
                following.snapshot_installed(out, snapshot)
        if self.leader is None and self.deadline is None:
            self.await_election(now, self.timing.election_timeout_s)
        return out

    def snapshot_install_failed(self) -> None:
        """The snapshot could not be installed; the old log stays. The leader sends it again if the host asks."""
        assert self.is_installing
        self.is_installing = False

    def _accept_leader(self, out: Output, leader: ReplicaId, term: int, now: float) -> Follower | None:
        """Follow the sender, which leads in `term`. None: that term is over, or this would be the replica itself."""
        if term < self.term or leader == self.self_id:
            return None
        assert term > self.term or self.leading is None, "two leaders in one term"
        if term > self.term or leader != self.leader:
            self.become_follower(out, term, leader, now)
        return self.following

    # ------------------------------------------------------------------ leader

    def appended(self, end_index: int, size_bytes: int, now: float) -> Output:
        """The leader appends size_bytes of records of its own term, and its log then ends at end_index. The host may
        send the records before it writes them. It writes them before it reports another fact; if it cannot, it calls
        `append_failed`."""
        leading = self.leading
        assert leading is not None
        assert end_index >= self.end_index
        assert self.persisted_end > self.lineage.last_index, "a row is durable before a batch of its term"
        replication = leading.replication
        replication.record_caught_up(now)
        self.end_index = end_index
        out = Output()
        replication.send_appended(out, size_bytes, now)
        return out

    def append_failed(self, end_index: int, now: float) -> Output:
        """The records of `appended`, or an ordered row, could not be written: the log still ends at end_index. That
        ends the leadership, but for records that no follower was sent: others can take their place in this term."""
        assert self.leading is not None
        assert max(self.persisted_end, self.commit_end) <= end_index <= self.end_index
        out = Output()
        was_sent, lacks_row = self.leading.append_failed(end_index), self.lineage.last_index >= end_index
        self.truncate_log(end_index)
        if was_sent or lacks_row:
            self.become_follower(out, self.term, None, now)
        return out

    def send_deferred(self, now: float) -> Output:
        """Appends have been batched for long enough: send them to the deferred followers."""
        out = Output()
        if self.leading is not None:
            self.leading.replication.send_to_all(out, now)
        return out

    def sent(self, to: ReplicaId, actual_end: int, size_bytes: int) -> Send | None:
        """The host sent [start_index of the order, actual_end). Returns the next range for the same follower, if
        any fits."""
        return None if self.leading is None else self.leading.replication.sent(to, actual_end, size_bytes)

    def append_replied(
        self, from_: ReplicaId, term: int, match_end: int, log_start: int, now: float
    ) -> Output:
        """A follower accepted a range. See `types.AppendReply` for the fields."""
        out = Output()
        leading = self.leading
        if term > self.term:
            self.become_follower(out, term, None, now)
        elif leading is not None and term == self.term:
            leading.range_accepted(out, from_, match_end, log_start, now)
        return out

    def append_rejected(self, from_: ReplicaId, rejected: AppendRejection, now: float) -> Output:
        """A follower rejected a range."""
        out = Output()
        leading = self._leading_in(out, rejected.term, now)
        if leading is not None:
            leading.range_rejected(out, from_, rejected, now)
        return out

    def resend_requested(self, from_: ReplicaId, term: int, now: float) -> Output:
        """A follower could not write what it was sent, and now asks for it again."""
        out = Output()
        leading = self._leading_in(out, term, now)
        if leading is not None:
            leading.resend_unanswered(out, from_, now)
        return out

    def log_start_replied(self, from_: ReplicaId, term: int, log_start: int) -> bool:
        """A follower's log start has risen, durably. False: the reply is of another term, or not from a follower."""
        progress = self.progress_of(from_)
        if term != self.term or progress is None:
            return False
        progress.log_start = max(progress.log_start, log_start)
        return True

    def install_snapshot_replied(self, from_: ReplicaId, reply: InstallSnapshotReply, now: float) -> Output:
        """A follower has installed its snapshot, or had those entries already."""
        out = Output()
        leading = self._leading_in(out, reply.term, now)
        if leading is not None:
            leading.snapshot_installed(out, from_, reply, now)
        return out

    def send_commits(self, now: float) -> Output:
        """Send the commit index and the log start to the followers that lack them and have no range on its way."""
        out = Output()
        if self.leading is not None:
            self.leading.replication.send_commits(out, now)
        return out

    def _leading_in(self, out: Output, term: int, now: float) -> Leader | None:
        """This replica's leadership in the term of a follower's answer, or None. A higher term ends the leadership."""
        if term > self.term:
            self.become_follower(out, term, None, now)
        return self.leading if term == self.term else None

    # ------------------------------------------------------------------ leader: proposals

    def propose_configuration(self, configuration: Configuration, now: float) -> Output:
        """Append a membership change of one replica. Raises ProposalRefusedError; then nothing has changed.

        Preconditions: own term's first row committed (Ongaro's correction of 2015), the previous change
        committed and every row durable here.
        """
        if self.leading is None:
            raise ProposalRefusedError("not a leader")
        out = Output()
        self.leading.propose_configuration(out, configuration, now)
        return out

    def transfer_leadership(self, to: ReplicaId, now: float) -> Output:
        """Have a voter lead as soon as it holds the whole log; appends are refused meanwhile (can_propose).

        Given up after an election timeout. Raises ProposalRefusedError if it cannot start.
        """
        if self.leading is None:
            raise ProposalRefusedError("not a leader")
        out = Output()
        self.leading.transfer_leadership(out, to, now)
        return out
