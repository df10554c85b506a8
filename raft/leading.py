"""Leader: acknowledgements, commit, membership, hand-over."""

from __future__ import annotations

from collections.abc import Sequence

from raft.progress import Progress, ProgressState
from raft.sending import Sending
from raft.types import (
    Configuration,
    Output,
    ProposalRefusedError,
    ReplicaId,
    Role,
    Row,
    RowKind,
    Send,
    TimeoutNow,
)


class Leading(Sending):
    __slots__ = ()

    # ------------------------------------------------------------------ facts

    def appended(self, end_index: int, size_bytes: int, now: float) -> Output:
        """The leader's log grows by size_bytes and ends here then, with records of its own term. The host may send
        first and write after that, before any other fact; if it cannot, `append_failed`."""
        assert self.role is Role.LEADER
        assert end_index >= self.end_index
        assert self.persisted_end > self._rows.last_index, "a row is durable before a batch of its term"
        self._note_caught_up(now)
        self.end_index = end_index
        out = Output()
        if not self._may_gather(size_bytes):
            self._end_gathering()
        self._send_due(out, now)
        return out

    def append_failed(self, end_index: int, now: float) -> Output:
        """What `appended` was told of could not be written: the log still ends here. A follower that was sent some of
        it holds that as this term's, so nothing else may ever stand there in this term: the leadership ends."""
        assert self.role is Role.LEADER
        assert max(self.persisted_end, self.commit_end) <= end_index <= self.end_index
        out = Output()
        is_known = any(
            progress.next_index > end_index or (progress.awaiting and progress.state is ProgressState.PROBE)
            for progress in self._followers
        )
        self.end_index = end_index
        self._linger_start = min(self._linger_start, end_index)
        if is_known:
            self._become_follower(out, self.term, None, now)
        return out

    def send_lingering(self, now: float) -> Output:
        """Followers that linger have waited long enough."""
        out = Output()
        if self.role is Role.LEADER:
            self._send_to_open(out, now)
        return out

    def sent(self, to: ReplicaId, actual_end: int, size_bytes: int) -> Send | None:
        """The host sent [start of the order, actual_end). Returns the next range for the same follower, if
        any fits."""
        progress = self._progress.get(to)
        if progress is None:
            return None
        rows = self._rows
        ends_with_row = False
        if actual_end <= rows.last_index + 1 and actual_end > progress.next_index:
            barrier = rows.next_index(progress.next_index)
            assert barrier is None or actual_end <= barrier + 1, "a range holds a row only as its last entry"
            ends_with_row = barrier == actual_end - 1
        assert actual_end <= self.end_index
        progress.sent(actual_end, size_bytes, ends_with_row)
        progress.commit_sent = self.commit_end
        if self._is_due(progress):
            return self._range(progress)
        return None

    def append_replied(
        self,
        from_: ReplicaId,
        term: int,
        match_end: int,
        rejected: bool,
        hint_index: int,
        hint_term: int,
        log_start: int,
        now: float,
    ) -> Output:
        """A follower acknowledged or refused a range. See `types.AppendReply` for the fields."""
        out = Output()
        if term != self.term:
            if term > self.term:
                self._become_follower(out, term, None, now)
            return out
        progress = self._progress.get(from_)
        if progress is None:
            return out
        progress.last_contact = now
        if log_start > progress.log_start:
            progress.log_start = log_start
        if rejected:
            self._refused(out, progress, match_end, hint_index, hint_term, now)
            return out
        assert match_end <= self.end_index, (from_, match_end, self.end_index)
        is_probe = progress.state is not ProgressState.REPLICATE
        if is_probe and not self._leave_probe(out, progress, match_end, now):
            return out
        progress.acknowledged(match_end)
        if progress.lingers:
            self._overtaken_by(progress)
        if match_end >= progress.mark_end:
            progress.caught_up_at = progress.mark_at
            progress.mark_end = self.end_index
            progress.mark_at = now
        if match_end > self.commit_end:
            self._advance_commit(out, now)
        if self._is_due(progress):
            self._send_range(out, progress, now)
        if self._transferee is not None:
            self._hand_over_if_ready(out)
        return out

    def asked_again(self, from_: ReplicaId, term: int, now: float) -> Output:
        """A follower could not keep what it was sent, and says that it can now."""
        out = Output()
        progress = self._progress.get(from_)
        if term == self.term and progress is not None and progress.awaiting:
            progress.last_contact = now
            self._probe_again(out, progress, now)
        return out

    def log_start_replied(self, from_: ReplicaId, term: int, log_start: int) -> bool:
        """A follower's log start has risen, durably. False: it is of another term, or of nobody who is followed."""
        progress = self._progress.get(from_)
        if term != self.term or progress is None:
            return False
        progress.log_start = max(progress.log_start, log_start)
        return True

    def install_replied(
        self, from_: ReplicaId, term: int, match_end: int, log_start: int, now: float
    ) -> Output:
        """A follower holds what it was to be installed with. See `types.InstallReply` for the fields."""
        out = Output()
        if term > self.term:
            self._become_follower(out, term, None, now)
        progress = self._progress.get(from_)
        if term != self.term or progress is None:
            return out
        progress.last_contact = now
        progress.log_start = max(progress.log_start, log_start)
        assert match_end <= self.end_index, (from_, match_end, self.end_index)
        progress.match_end = max(progress.match_end, match_end)
        if progress.state is not ProgressState.REPLICATE:  # meanwhile it answered no probe either
            self._probe_again(out, progress, now)
        self._advance_commit(out, now)
        return out

    def peer_lost(self, node_id: int) -> None:
        """The link to this node is gone; what was under way may be lost."""
        self._unreachable[node_id] = None
        for progress in self._followers:
            if progress.replica.node_id == node_id:
                progress.reachable = False
                progress.reset(self._resume_index(progress))

    def peer_reachable(self, node_id: int, now: float) -> Output:
        """A new link to this node is open."""
        self._unreachable.pop(node_id, None)
        out = Output()
        for progress in self._followers:
            if progress.replica.node_id == node_id:
                progress.reachable = True
                self._probe_again(out, progress, now)
        return out

    def flush_commits(self, now: float) -> Output:
        """Tell followers the commit index and the log start where nothing else is on its way to them."""
        out = Output()
        for progress in self._followers:
            if self._lacks_news(progress) and not progress.awaiting:
                self._send_range(out, progress, now)
        return out

    def _leader_tick(self, out: Output, now: float) -> None:
        """Probe followers that owe an answer for a whole resend timeout; give up a hand-over that takes too
        long."""
        timing = self.timing
        self.deadline = None
        if self._transferee is not None:
            if now >= self._transfer_deadline:
                self._transferee = None
                out.role_changed = True
            else:
                self.deadline = self._transfer_deadline
        for progress in self._followers:
            if not progress.awaiting or not progress.reachable:
                continue
            if progress.state is ProgressState.INSTALL:
                if now - progress.installing_since >= timing.install_timeout_s:
                    self._probe_again(out, progress, now)
            elif progress.overdue:
                self._probe_again(out, progress, now)
            else:
                progress.overdue = True
            resend_at = now + timing.resend_timeout_s
            self.deadline = min(self.deadline, resend_at) if self.deadline is not None else resend_at

    # ------------------------------------------------------------------ proposals

    def propose_configuration(self, configuration: Configuration, now: float) -> Output:
        """Append a membership change of one replica. Raises ProposalRefusedError; then nothing has changed.

        Preconditions: own term's first row committed (Ongaro's correction of 2015), the previous change
        committed and every row durable here.
        """
        if not self.is_established:
            raise ProposalRefusedError("not an established leader")
        if self._configuration_uncommitted:
            raise ProposalRefusedError("the previous membership change is not committed")
        if not self.can_propose:
            raise ProposalRefusedError("the last row is not durable, or a hand-over is under way")
        _check_single_change(self.configuration, configuration)
        out = Output()
        row = Row(self.end_index, self.term, RowKind.CONFIGURATION, configuration)
        out.rows.append(row)
        self._note_caught_up(now)
        self._adopt_row(row)
        self._members_changed(now)
        self._send_to_open(out, now)
        return out

    def transfer_leadership(self, to: ReplicaId, now: float) -> Output:
        """Hand over to a voter as soon as it holds the whole log; appends are refused meanwhile
        (can_propose).

        Given up after an election timeout. Raises ProposalRefusedError if it cannot start.
        """
        if self.role is not Role.LEADER or self._transferee is not None:
            raise ProposalRefusedError("not a leader, or a hand-over is under way")
        progress = self._progress.get(to)
        if progress is None or to not in self.configuration.voters or not progress.reachable:
            raise ProposalRefusedError("the target is no reachable voter")
        out = Output()
        self._transferee = to
        self._send_to_open(out, now)
        self._transfer_deadline = now + self.timing.election_timeout_s
        self.deadline = min(self.deadline or self._transfer_deadline, self._transfer_deadline)
        self._hand_over_if_ready(out)
        return out

    # ------------------------------------------------------------------ what a host reads

    @property
    def has_lingering(self) -> bool:
        """Some entries may not have been sent to followers that linger: call send_lingering soon."""
        return self._linger_start < self.end_index and self.role is Role.LEADER

    @property
    def has_voting_followers(self) -> bool:
        """A leader whose own log is not enough to commit anything."""
        return bool(self._voting_followers)

    @property
    def commit_unsent(self) -> bool:
        """Some follower does not know the commit index, or has not confirmed the log start: flush_commits has work,
        now or after an answer."""
        return any(self._lacks_news(progress) for progress in self._followers)

    def progress_of(self, replica: ReplicaId) -> Progress | None:
        return self._progress.get(replica)

    def durable_end(self, count: int) -> int:
        """The end that `count` voters hold durably, this one included. 1 <= count <= number of voters."""
        ends = [progress.match_end for progress in self._voting_followers]
        if self._self_counts:
            ends.append(self.persisted_end)
        ends.sort()
        assert 1 <= count <= len(ends)
        return ends[-count]

    def is_caught_up(self, replica: ReplicaId, now: float, max_lag_s: float) -> bool:
        """The replica's verified durable log held, within the last max_lag_s, all that this log held then."""
        if replica == self.self_id:
            return self.role is Role.LEADER
        progress = self._progress.get(replica)
        if progress is None or progress.state is not ProgressState.REPLICATE:
            return progress is not None and now - progress.caught_up_at <= max_lag_s
        return progress.match_end == self.end_index or now - progress.caught_up_at <= max_lag_s

    def in_sync(self, now: float, max_lag_s: float) -> tuple[ReplicaId, ...]:
        """Voters that are caught up (Kafka's in-sync replicas)."""
        if self.role is not Role.LEADER:
            return ()
        return tuple(voter for voter in self.configuration.voters if self.is_caught_up(voter, now, max_lag_s))

    def lacking_log_start(self) -> list[ReplicaId]:
        """The followers that can be told of a log start that they have not confirmed."""
        return [
            progress.replica
            for progress in self._followers
            if progress.log_start < self.watermarks.log_start
            and progress.reachable
            and progress.state is ProgressState.REPLICATE
        ]

    def majority_log_start(self, voters: Sequence[ReplicaId] | None = None) -> int:
        """The log start (offset) that a majority of the voters (by default the present ones) has persisted."""
        starts = sorted(map(self._log_start_of, self.configuration.voters if voters is None else voters))
        return starts[(len(starts) - 1) // 2]

    def _log_start_of(self, voter: ReplicaId) -> int:
        if voter == self.self_id:
            return self.watermarks.log_start
        progress = self._progress.get(voter)
        return 0 if progress is None else progress.log_start

    # ------------------------------------------------------------------ commit and members

    def _note_caught_up(self, now: float) -> None:
        """The log is about to grow: who holds all of it was caught up until now, however long it was idle."""
        end_index = self.end_index
        for progress in self._followers:
            if progress.match_end == end_index and progress.state is ProgressState.REPLICATE:
                progress.caught_up_at = now

    def _advance_commit(self, out: Output, now: float) -> None:
        """Commit what a majority of voters holds durably, from the first row of the own term on."""
        ends = [progress.match_end for progress in self._voting_followers]
        if self._self_counts:
            ends.append(self.persisted_end)
        ends.sort()
        commit_end = ends[(len(ends) - 1) // 2]
        if commit_end <= self.commit_end or not self._may_commit(commit_end):
            return
        if self.commit_end <= self._own_row_index:
            out.role_changed = True  # established
        self.commit_end = commit_end
        out.commit_advanced = True
        if self._configuration_uncommitted and commit_end > self.configuration_index:
            self._configuration_committed(out, now)

    def _may_commit(self, commit_end: int) -> bool:
        """Only entries of the own term are committed by counting; older ones with them (Raft section
        5.4.2)."""
        return commit_end > self._own_row_index

    def _configuration_committed(self, out: Output, now: float) -> None:
        self._configuration_uncommitted = False
        if self.self_id in self.configuration.voters:
            for progress in self._followers:  # a last range, so that a removed replica learns it
                if not self.configuration.names(progress.replica) and progress.reachable:
                    out.sends.append(self._empty_range(progress, progress.match_end))
            self._members_changed(now)
            return
        # Removed itself: it led until now; the best follower need not wait for the others to notice.
        heir = max(self._voting_followers, key=lambda progress: (progress.reachable, progress.match_end))
        out.messages.append((heir.replica, TimeoutNow(self.term)))
        self._become_follower(out, self.term, None, now)

    def _members_changed(self, now: float) -> None:
        """Follow exactly the members of the newest configuration and, while it is uncommitted, of the one
        before."""
        configuration = self.configuration
        members = dict.fromkeys(configuration.members)
        if self._configuration_uncommitted:
            members.update(dict.fromkeys(self.committed_configuration.members))
        members.pop(self.self_id, None)
        for replica in [replica for replica in self._progress if replica not in members]:
            del self._progress[replica]
        for replica in members:
            if replica not in self._progress:
                reachable = replica.node_id not in self._unreachable
                start = max(self._own_row_index, self._start_index)
                self._progress[replica] = Progress(
                    replica, start, self.end_index, reachable, self.timing, now
                )
        self._followers = list(self._progress.values())
        self._voting_followers = [p for p in self._followers if p.replica in configuration.voters]
        self._self_counts = self.self_id in configuration.voters

    def _hand_over_if_ready(self, out: Output) -> None:
        assert self._transferee is not None
        progress = self._progress.get(self._transferee)
        if progress is None:
            self._transferee = None
        elif progress.match_end == self.end_index:
            out.messages.append((self._transferee, TimeoutNow(self.term)))


def _check_single_change(old: Configuration, new: Configuration) -> None:
    """Raise ProposalRefusedError unless `new` differs from `old` in the part of exactly one replica."""
    if not new.voters:
        raise ProposalRefusedError("a group needs a voter")
    if len(dict.fromkeys(new.members)) != len(new.members):
        raise ProposalRefusedError("a replica is named twice")
    if len({voter.node_id for voter in new.voters}) != len(new.voters):
        raise ProposalRefusedError("a node has at most one vote")
    changed = [
        replica
        for replica in dict.fromkeys(old.members + new.members)
        if (replica in old.voters, replica in old.learners)
        != (replica in new.voters, replica in new.learners)
    ]
    if len(changed) != 1:
        raise ProposalRefusedError(f"{len(changed)} replicas change, one at a time is safe")
