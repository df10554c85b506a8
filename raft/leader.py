"""Leader: acknowledgements, commit, membership, leadership transfer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raft.progress import Progress, ProgressState
from raft.replication import Replication
from raft.types import (
    AppendRejection,
    Configuration,
    InstallSnapshotReply,
    Output,
    ProposalRefusedError,
    RemovalBounds,
    ReplicaId,
    Row,
    RowKind,
    TimeoutNow,
)

if TYPE_CHECKING:
    from raft.state import GroupState


class Leader:
    """The state of a leader, from the election that it won to the end of its leadership. It belongs to one term."""

    __slots__ = ("_state", "_transfer_deadline", "own_row_index", "replication", "transfer_target")

    def __init__(self, state: GroupState) -> None:
        """`open_term` then appends the leader's first row at the present end of the log."""
        self._state = state
        #: Index of this leader's first row. Entries below it are never committed by counting (Raft figure 8).
        self.own_row_index = state.end_index
        self.replication = Replication(state, self.own_row_index)
        #: The voter that leadership is being transferred to. Nothing is appended meanwhile.
        self.transfer_target: ReplicaId | None = None
        self._transfer_deadline = 0.0

    def open_term(self, out: Output, now: float) -> None:
        """Append the first row of the term and send it to all members."""
        self._append_row(out, RowKind.LEADER, None, now)

    def _append_row(
        self, out: Output, kind: RowKind, configuration: Configuration | None, now: float
    ) -> None:
        state = self._state
        bounds = None if configuration is None else RemovalBounds(*state.watermarks[1:])
        row = Row(state.end_index, state.term, kind, configuration, bounds)
        out.rows.append(row)
        state.append_row(row)
        state.end_index = row.index + 1
        self._follow_members(now)
        self.replication.send_to_all(out, now)

    # ------------------------------------------------------------------ replies of followers

    def range_accepted(
        self, out: Output, from_: ReplicaId, match_end: int, log_start: int, now: float
    ) -> None:
        """A follower acknowledges everything below match_end."""
        state, replication = self._state, self.replication
        progress = self._record_contact(from_, log_start, now)
        if progress is None:
            return
        assert match_end <= state.end_index, (from_, match_end, state.end_index)
        if progress.state is not ProgressState.REPLICATE and not replication.may_leave_probe(
            out, progress, match_end, now
        ):
            return
        progress.acknowledged(match_end)
        if progress.is_deferred:
            replication.swap_with_slower(progress)
        if match_end >= progress.mark_end:
            progress.caught_up_at = progress.mark_at
            progress.mark_end = state.end_index
            progress.mark_at = now
        if match_end > state.commit_end:
            self.advance_commit(out, now)
            if state.leading is not self:
                return  # its own removal was committed
        if replication.is_due(progress):
            replication.send_range(out, progress, now)
        if self.transfer_target is not None:
            self._finish_transfer(out)

    def range_rejected(self, out: Output, from_: ReplicaId, rejected: AppendRejection, now: float) -> None:
        """A follower's log differs before the range."""
        progress = self._record_contact(from_, rejected.log_start, now)
        if progress is not None:
            self.replication.range_rejected(out, progress, rejected, now)

    def snapshot_installed(
        self, out: Output, from_: ReplicaId, reply: InstallSnapshotReply, now: float
    ) -> None:
        """A follower has installed its snapshot, or had those entries already."""
        state = self._state
        progress = self._record_contact(from_, reply.log_start, now)
        if progress is None:
            return
        assert reply.match_end <= state.end_index, (from_, reply, state.end_index)
        progress.match_end = max(progress.match_end, reply.match_end)
        # It answered no probe while it installed the snapshot.
        if progress.state is not ProgressState.REPLICATE:
            self.replication.probe_again(out, progress, now)
        self.advance_commit(out, now)

    def resend_unanswered(self, out: Output, from_: ReplicaId, now: float) -> None:
        """A follower lacks what it was sent. It is probed if it owes an answer."""
        progress = self._record_contact(from_, 0, now)
        if progress is not None and progress.awaiting:
            self.replication.probe_again(out, progress, now)

    def _record_contact(self, from_: ReplicaId, log_start: int, now: float) -> Progress | None:
        """Returns None if the replica is not a follower."""
        progress = self.replication.progress.get(from_)
        if progress is not None:
            progress.last_contact = now
            if log_start > progress.log_start:
                progress.log_start = log_start
        return progress

    def append_failed(self, end_index: int) -> bool:
        """The last append could not be written: the log still ends at end_index. Returns whether a follower may have
        been sent some of it."""
        self.replication.truncate_batch(end_index)
        return any(
            progress.next_index > end_index or (progress.awaiting and progress.state is ProgressState.PROBE)
            for progress in self.replication.followers
        )

    def tick(self, out: Output, now: float) -> None:
        """Probe followers that owe an answer. Give up a transfer that takes too long."""
        state = self._state
        state.deadline = None
        if self.transfer_target is not None:
            if now >= self._transfer_deadline:
                self.transfer_target = None
                out.role_changed = True
            else:
                state.deadline = self._transfer_deadline
        self.replication.resend_overdue(out, now)

    # ------------------------------------------------------------------ commit

    def durable_end(self, count: int) -> int:
        """See `Group.durable_end`."""
        replication = self.replication
        ends = [progress.match_end for progress in replication.voting_followers]
        if replication.counts_self:
            ends.append(self._state.persisted_end)
        ends.sort()
        assert 1 <= count <= len(ends)
        return ends[-count]

    def advance_commit(self, out: Output, now: float) -> None:
        """Commit what a majority of voters holds durably, from the first row of the own term on. May end the
        leadership."""
        state, replication = self._state, self.replication
        # As in durable_end. A call would cost more than the sort.
        ends = [progress.match_end for progress in replication.voting_followers]
        if replication.counts_self:
            ends.append(state.persisted_end)
        ends.sort()
        commit_end = ends[(len(ends) - 1) // 2]
        if commit_end <= state.commit_end or not self._may_commit(commit_end):
            return
        if state.commit_end <= self.own_row_index:
            out.role_changed = True  # established
        state.commit_end = commit_end
        out.commit_advanced = True
        if state.is_change_uncommitted and commit_end > state.configuration_index:
            self._change_committed(out, now)

    def _may_commit(self, commit_end: int) -> bool:
        """Only entries of the own term are committed by counting; older ones with them (Raft section
        5.4.2)."""
        return commit_end > self.own_row_index

    # ------------------------------------------------------------------ members

    def propose_configuration(self, out: Output, configuration: Configuration, now: float) -> None:
        """See `Group.propose_configuration`."""
        state = self._state
        if not state.is_established:
            raise ProposalRefusedError("not an established leader")
        if state.is_change_uncommitted:
            raise ProposalRefusedError("the previous membership change is not committed")
        if not state.can_propose:
            raise ProposalRefusedError("the last row is not durable, or a leadership transfer is under way")
        refusal = single_change_refusal(state.configuration, configuration)
        if refusal is not None:
            raise ProposalRefusedError(refusal)
        self.replication.record_caught_up(now)
        self._append_row(out, RowKind.CONFIGURATION, configuration, now)

    def _follow_members(self, now: float) -> None:
        """Exactly the members of the newest configuration and, while it is uncommitted, of the one before."""
        self.replication.set_members(self._state.members, now)

    def _change_committed(self, out: Output, now: float) -> None:
        state, replication = self._state, self.replication
        state.is_change_uncommitted = False
        if replication.counts_self:
            for progress in replication.followers:  # a last range, so that a removed replica learns it
                if not state.configuration.names(progress.replica) and progress.reachable:
                    replication.send_empty(out, progress, progress.match_end)
            self._follow_members(now)
            return
        # It removed itself, and led until now. The best follower campaigns at once, without waiting for a timeout.
        best = max(
            replication.voting_followers, key=lambda progress: (progress.reachable, progress.match_end)
        )
        out.messages.append((best.replica, TimeoutNow(state.term)))
        state.become_follower(out, state.term, None, now)

    # ------------------------------------------------------------------ leadership transfer

    def transfer_leadership(self, out: Output, to: ReplicaId, now: float) -> None:
        """See `Group.transfer_leadership`."""
        state = self._state
        if self.transfer_target is not None:
            raise ProposalRefusedError("a leadership transfer is under way")
        progress = self.replication.progress_of(to)
        if progress is None or to not in state.configuration.voters or not progress.reachable:
            raise ProposalRefusedError("the transfer target is not a reachable voter")
        self.transfer_target = to
        self.replication.send_to_all(out, now)
        self._transfer_deadline = now + state.timing.election_timeout_s
        state.deadline = min(state.deadline or self._transfer_deadline, self._transfer_deadline)
        self._finish_transfer(out)

    def _finish_transfer(self, out: Output) -> None:
        """Send TimeoutNow if the target holds the whole log. Give up if it is no longer a member."""
        state = self._state
        assert self.transfer_target is not None
        progress = self.replication.progress_of(self.transfer_target)
        if progress is None:
            self.transfer_target = None
        elif progress.match_end == state.end_index:
            out.messages.append((self.transfer_target, TimeoutNow(state.term)))

    # ------------------------------------------------------------------ what a host reads

    def is_caught_up(self, replica: ReplicaId, now: float, max_lag_s: float) -> bool:
        """See `Group.is_caught_up`."""
        if replica == self._state.self_id:
            return True
        progress = self.replication.progress_of(replica)
        if progress is None or progress.state is not ProgressState.REPLICATE:
            return progress is not None and now - progress.caught_up_at <= max_lag_s
        return progress.match_end == self._state.end_index or now - progress.caught_up_at <= max_lag_s

    def lacking_log_start(self) -> list[ReplicaId]:
        """See `Group.lacking_log_start`."""
        log_start = self._state.watermarks.log_start
        return [
            progress.replica
            for progress in self.replication.followers
            if progress.log_start < log_start
            and progress.reachable
            and progress.state is ProgressState.REPLICATE
        ]

    def majority_log_start(self, voters: Sequence[ReplicaId]) -> int:
        """See `Group.majority_log_start`."""
        starts = sorted(map(self._log_start_of, voters))
        return starts[(len(starts) - 1) // 2]

    def _log_start_of(self, voter: ReplicaId) -> int:
        if voter == self._state.self_id:
            return self._state.watermarks.log_start
        progress = self.replication.progress_of(voter)
        return 0 if progress is None else progress.log_start

    def check(self) -> None:
        """Assert the invariants."""
        end_index = self._state.end_index
        assert self.own_row_index < end_index
        for progress in self.replication.followers:
            assert 0 <= progress.match_end <= end_index
            assert progress.next_index <= end_index
            assert progress.inflight_bytes == sum(size for _, size in progress.inflight)


def single_change_refusal(old: Configuration, new: Configuration) -> str | None:
    """Why `new` is no change of exactly one replica of `old`. None: it is one."""
    if not new.voters:
        return "a group needs a voter"
    if len(dict.fromkeys(new.members)) != len(new.members):
        return "a replica is named twice"
    if len({voter.node_id for voter in new.voters}) != len(new.voters):
        return "a node has at most one vote"
    changed = [
        replica
        for replica in dict.fromkeys(old.members + new.members)
        if (replica in old.voters, replica in old.learners)
        != (replica in new.voters, replica in new.learners)
    ]
    return None if len(changed) == 1 else f"{len(changed)} replicas change, one at a time is safe"
