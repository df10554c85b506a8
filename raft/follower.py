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
    """The state of a replica that follows the leader of its term, or waits for one.

    Invariant: acknowledged_end <= verified_end <= end_index.
    """

    __slots__ = ("_state", "acknowledged_end", "leader", "pre_vote", "verified_end")

    def __init__(self, state: GroupState, leader: ReplicaId | None) -> None:
        self._state = state
        #: The leader of the term, while it is believed to be alive.
        self.leader = leader
        #: Pre-candidate: the granted pre-votes. Set only while no leader is known.
        self.pre_vote: Candidate | None = None
        #: End of what was verified against this term's leader, and end of what was acknowledged to it.
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
        self.learn_commit(out, commit_end)
        if not is_new:  # otherwise the end of the flush brings the acknowledgement
            self._acknowledge(out)

    def _cut_conflict(self, out: Output, start_index: int, to_index: int, rows: Sequence[Row]) -> bool:
        """Cut the own log where it first differs from the range."""
        state = self._state
        end = min(state.end_index, to_index)
        conflict = first_difference(state.lineage.between(start_index, end), rows, end)
        if conflict is None:
            return False
        assert conflict >= state.commit_end, "committed entries are never cut"
        out.truncate_to = conflict
        state.truncate_log(conflict)
        self.truncate_verified(conflict)
        return True

    def _extend(self, out: Output, to_index: int, rows: Sequence[Row]) -> int:
        """Append the missing entries. Returns the end up to which the log is known to agree with the range.

        A row is durable before anything behind it is written. While the last row is not (an earlier leader sent it),
        nothing is appended. The acknowledgement after its flush makes the leader send the range again.
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
        """The log was cut at end_index."""
        self.verified_end = min(self.verified_end, end_index)
        self.acknowledged_end = min(self.acknowledged_end, end_index)

    def learn_commit(self, out: Output, commit_end: int) -> None:
        """Raise the commit index, but not above what was verified against this leader: the rest of the log may differ
        from the leader's."""
        state = self._state
        state.told_commit_end = max(commit_end, state.told_commit_end)
        known = min(commit_end, self.verified_end)
        if known > state.commit_end:
            state.commit_end = known
            state.is_change_uncommitted = state.configuration_index >= known
            out.commit_advanced = True

    # ------------------------------------------------------------------ acknowledgements

    def _acknowledge(self, out: Output) -> None:
        """Acknowledge, also if nothing more is durable than before."""
        state = self._state
        assert self.leader is not None
        self.acknowledged_end = min(self.verified_end, state.persisted_end)
        reply = AppendReply(state.term, self.acknowledged_end, state.watermarks.log_start)
        state.answer_leader(out, self.leader, reply)

    def take_acknowledgement(self, end_index: int) -> tuple[ReplicaId, AppendReply] | None:
        """The acknowledgement for the moment when everything below end_index is durable. None if it was given
        before."""
        state, leader = self._state, self.leader
        durable = min(self.verified_end, end_index)
        if (
            durable <= self.acknowledged_end
            or leader is None
            or state.is_installing
            or state.durable_term != state.term  # `hard_state_persisted` acknowledges then
        ):
            return None
        self.acknowledged_end = durable
        return leader, AppendReply(state.term, durable, state.watermarks.log_start)

    def acknowledge_in_durable_term(self, out: Output) -> None:
        """The term has become durable. If more of the log is being flushed, `persisted` acknowledges all of it."""
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
            # A repeated or late message: the log agrees with the snapshot up to its end. It may begin lower, and stays
            # as it is: the log start rises when the host has made that durable, not because a leader names one.
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
        """The log is now the snapshot of this leader."""
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


def first_difference(mine: Sequence[Row], received: Sequence[Row], end: int) -> int | None:
    """The index of the first entry below `end` that differs between two logs, which agree before the first of these
    rows; None if there is none. `mine` are the rows of one log up to `end`, `received` those of the other. Terms change
    only at rows, so the first difference is a row that only one side has."""
    for own, other in zip_longest(mine, (row for row in received if row.index < end)):
        if own is None or other is None:
            return int((own or other).index)
        if own != other:
            return min(own.index, other.index)
    return None


def rejection(state: GroupState, start_index: int, prev_term: int) -> AppendRejection:
    """The rejection of a range that begins at start_index after an entry of prev_term. It has a hint where the logs may
    agree (Raft section 5.3, last paragraph)."""
    hint_index = state.lineage.common_end(min(start_index, state.end_index), prev_term)
    hint_term = state.lineage.term_before(hint_index)
    return AppendRejection(state.term, start_index, hint_index, hint_term, state.watermarks.log_start)
