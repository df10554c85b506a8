"""Follower: ranges and snapshots of the leader, and the acknowledgement of what is durable and verified."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from raft.types import (
    AppendRejection,
    AppendReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Output,
    ReplicaId,
    Row,
)

if TYPE_CHECKING:
    from raft.candidate import Candidate
    from raft.state import GroupState


class Follower:
    """A replica in one term, of which it is not the leader. It may know the leader or wait for one.

    Invariant: acknowledged_end <= verified_end <= end_index.
    """

    __slots__ = ("_state", "acknowledged_end", "leader", "pre_vote", "verified_end")

    def __init__(self, state: GroupState, leader: ReplicaId | None) -> None:
        self._state = state
        #: While it is believed to be alive.
        self.leader = leader
        #: Pre-candidate: who would vote for this replica. Set only while no leader is known.
        self.pre_vote: Candidate | None = None
        #: End of what this term's leader has verified, and of what was acknowledged to it.
        self.verified_end = 0
        self.acknowledged_end = 0

    # ------------------------------------------------------------------ ranges

    def receive_range(
        self,
        out: Output,
        start_index: int,
        prev_term: int,
        to_index: int,
        rows: Sequence[Row],
        commit_end: int,
    ) -> None:
        """A range of the leader: see `Group.append_received`."""
        state = self._state
        if start_index > state.end_index or state.lineage.term_before(start_index) != prev_term:
            assert start_index > state.commit_end, "a leader's log holds everything committed"
            assert self.leader is not None
            state.answer_leader(out, self.leader, rejection(state, start_index, prev_term))
            return
        is_new = to_index > state.end_index
        if start_index < state.end_index and start_index < to_index:
            is_new = self._cut_conflict(out, start_index, to_index, rows) or is_new
        verified_end = self._extend(out, to_index, rows) if is_new else to_index
        if verified_end > self.verified_end:
            self.verified_end = verified_end
        if commit_end > state.commit_end:
            self.learn_commit(out, commit_end)
        if not is_new:  # else the flush brings the acknowledgement
            self._acknowledge(out)

    def _cut_conflict(self, out: Output, start_index: int, to_index: int, rows: Sequence[Row]) -> bool:
        """Cut the own log where it first differs from the range. The entries before start_index agree, and terms
        change only at rows, so the first difference is a row that one side has and the other has not."""
        state = self._state
        end = min(state.end_index, to_index)
        mine = state.lineage.between(start_index, end)
        conflict = end
        for own, received in zip_longest(mine, (row for row in rows if row.index < end)):
            if own is None or received is None:
                conflict = (own or received).index
                break
            if own.index != received.index or own.term != received.term:
                conflict = min(own.index, received.index)
                break
        else:
            return False
        assert conflict >= state.commit_end, "committed entries are never cut"
        out.truncate_to = conflict
        state.truncate_log(conflict)
        self.truncate_verified(conflict)
        return True

    def _extend(self, out: Output, to_index: int, rows: Sequence[Row]) -> int:
        """Take what is missing. Returns the end of the log as far as it is now known to agree with the range.

        A row is durable before anything behind it: while the last one is not (an earlier leader sent it),
        nothing is taken. The acknowledgement that follows its flush makes the leader send again.
        """
        state = self._state
        if state.persisted_end <= state.lineage.last_index:
            return state.end_index
        out.write_from = state.end_index
        for row in rows:
            if row.index >= state.end_index:
                out.rows.append(row)
                state.append_row(row)
        state.end_index = to_index
        return to_index

    def truncate_verified(self, end_index: int) -> None:
        """The log ends here now."""
        self.verified_end = min(self.verified_end, end_index)
        self.acknowledged_end = min(self.acknowledged_end, end_index)

    def learn_commit(self, out: Output, commit_end: int) -> None:
        """Never beyond what this leader has verified here: the rest of the log may differ from its own."""
        state = self._state
        known = min(commit_end, self.verified_end)
        if known > state.commit_end:
            state.commit_end = known
            state.is_change_uncommitted = state.configuration_index >= known
            out.commit_advanced = True

    # ------------------------------------------------------------------ acknowledgements

    def _acknowledge(self, out: Output) -> None:
        """Answer, also where nothing is durable that was not before."""
        state = self._state
        assert self.leader is not None
        self.acknowledged_end = min(self.verified_end, state.persisted_end)
        reply = AppendReply(state.term, self.acknowledged_end, state.watermarks.log_start)
        state.answer_leader(out, self.leader, reply)

    def take_acknowledgement(self, end_index: int) -> tuple[ReplicaId, AppendReply] | None:
        """What is to be said once everything below end_index is durable, if it was not said before."""
        state, leader = self._state, self.leader
        durable = min(self.verified_end, end_index)
        if (
            durable <= self.acknowledged_end
            or leader is None
            or state.is_installing
            or state.durable_term != state.term  # `hard_state_persisted` has it said
        ):
            return None
        self.acknowledged_end = durable
        return leader, AppendReply(state.term, durable, state.watermarks.log_start)

    def acknowledge_in_durable_term(self, out: Output) -> None:
        """The term is durable, too, by now. Where more is being flushed, `persisted` acknowledges all together."""
        persisted_end = self._state.persisted_end
        if persisted_end >= self.verified_end:
            acknowledgement = self.take_acknowledgement(persisted_end)
            if acknowledgement is not None:
                out.messages.append(acknowledgement)

    # ------------------------------------------------------------------ snapshots

    def receive_snapshot(self, out: Output, snapshot: InstallSnapshot) -> None:
        """The leader offers to rebuild this log: see `Group.install_snapshot_received`."""
        state = self._state
        end = snapshot.end_index
        if state.end_index >= end and self._agrees_with(snapshot):
            # A repeated order, or a late one: the log agrees up to there. It may begin lower, and stays as it is: a log
            # start rises here when the host has made that durable, not because a leader names one.
            self.verified_end = max(self.verified_end, end)
            if state.persisted_end >= end:
                self._reply_to_snapshot(out)
            return
        assert state.commit_end <= end, "a leader's log holds everything committed"
        state.is_installing = True
        out.snapshot = snapshot

    def _agrees_with(self, snapshot: InstallSnapshot) -> bool:
        """The lineage has the snapshot's rows and no other one below its end."""
        rows, mine = snapshot.rows, self._state.lineage.rows
        if mine[: len(rows)] != list(rows):
            return False
        return len(mine) <= len(rows) or mine[len(rows)].index >= snapshot.end_index

    def snapshot_installed(self, out: Output, snapshot: InstallSnapshot) -> None:
        """The log is the snapshot that this leader has sent."""
        self.verified_end = snapshot.end_index
        self._reply_to_snapshot(out)

    def _reply_to_snapshot(self, out: Output) -> None:
        state = self._state
        assert self.leader is not None
        self.acknowledged_end = min(self.verified_end, state.persisted_end)
        reply = InstallSnapshotReply(state.term, self.acknowledged_end, state.watermarks.log_start)
        state.answer_leader(out, self.leader, reply)

    def check(self) -> None:
        """Assert the invariants."""
        assert self.acknowledged_end <= self.verified_end <= self._state.end_index
        assert self.leader is None or self.pre_vote is None
        assert self.leader != self._state.self_id


def rejection(state: GroupState, start_index: int, prev_term: int) -> AppendRejection:
    """Of a range that begins at start_index behind an entry of prev_term, with a hint where to look for the common
    point (Raft section 5.3, last paragraph)."""
    hint_index = state.lineage.common_end(min(start_index, state.end_index), prev_term)
    hint_term = state.lineage.term_before(hint_index)
    return AppendRejection(state.term, start_index, hint_index, hint_term, state.watermarks.log_start)
