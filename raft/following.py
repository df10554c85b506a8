"""Follower: receiving ranges, acknowledging what is durable and verified, being installed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from raft.election import Election
from raft.rows import Rows
from raft.types import AppendReply, HardState, Install, InstallReply, Output, ReplicaId, Role, Row, RowKind


class Following(Election):
    __slots__ = ()

    # ------------------------------------------------------------------ facts

    def append_received(
        self,
        from_: ReplicaId,
        term: int,
        start: int,
        prev_term: int,
        to_index: int,
        rows: Sequence[Row],
        commit_end: int,
        now: float,
    ) -> Output:
        """The leader's range [start, to_index), with the rows in it; empty: heartbeat or commit index only.

        `prev_term` is the term of the entry before start. Records inside may have been compacted away.
        """
        out = Output()
        is_known = term == self.term and from_ == self.leader and self.role is Role.FOLLOWER
        if not is_known and not self._accept_leader(out, from_, term, now):
            self._reply(out, from_, self._refusal(start, prev_term))
            return out
        if self._installing:
            return out
        lineage = self._rows
        if start > self.end_index or lineage.term_before(start) != prev_term:
            assert start > self.commit_end, "a leader's log holds everything committed"
            self._reply(out, from_, self._refusal(start, prev_term))
            return out
        is_new = to_index > self.end_index
        if start < self.end_index and start < to_index:
            is_new = self._cut_conflict(out, start, to_index, rows) or is_new
        verified_end = self._extend(out, to_index, rows) if is_new else to_index
        if verified_end > self._verified_end:
            self._verified_end = verified_end
        if commit_end > self.commit_end:
            self._learn_commit(out, commit_end)
        if not is_new:  # else the flush brings the acknowledgement
            self._acknowledge(out, from_, min(self._verified_end, self.persisted_end))
        return out

    def write_failed(self, end_index: int, commit_end: int) -> None:
        """The range of the append_received just made could not be written (the disk is full): the log ends at
        end_index, and commit_end is what was known before. Its output must be thrown away but for hard_state
        and truncate_to. Nothing is acknowledged; the leader sends the range again when its host is asked to."""
        assert commit_end <= end_index <= self.end_index
        self._rows.truncate(end_index)
        self.end_index = end_index
        self.commit_end = commit_end
        self.persisted_end = min(self.persisted_end, end_index)
        self._verified_end = min(self._verified_end, end_index)
        self._acknowledged_end = min(self._acknowledged_end, end_index)
        self._configuration_changed()

    def persisted(self, end_index: int, now: float) -> Output:
        """Everything below end_index is durable here (data and rows)."""
        assert end_index <= self.end_index, "flushed beyond the end of the log"
        out = Output()
        if end_index <= self.persisted_end:
            return out
        self.persisted_end = end_index
        if self.role is Role.LEADER:
            if end_index > self.commit_end and self._self_counts:
                self._advance_commit(out, now)
        elif (acknowledgement := self.take_acknowledgement(end_index)) is not None:
            out.messages.append(acknowledgement)
        return out

    def hard_state_persisted(self, state: HardState, now: float) -> Output:
        """This term and vote are durable here: what `Output.hard_state` ordered, reported in the same order."""
        assert state.term <= self.term
        out = Output()
        self._durable_term = max(self._durable_term, state.term)
        if self.role is Role.CANDIDATE:
            if state == self.hard_state and self.self_id in self.configuration.voters:
                self._count_vote(out, self.self_id, self.watermarks, now)
        elif (
            self.persisted_end >= self._verified_end
        ):  # else more is being flushed, and `persisted` acknowledges all
            acknowledgement = self.take_acknowledgement(self.persisted_end)
            if acknowledgement is not None:
                out.messages.append(acknowledgement)
        return out

    def take_acknowledgement(self, end_index: int) -> tuple[ReplicaId, AppendReply] | None:
        """The acknowledgement that `persisted(end_index)` would order, and then orders no more. It is the host's to
        send, as soon as that much is durable and before any other fact: so it can be made while the disk is at work."""
        assert end_index <= self.end_index, "flushed beyond the end of the log"
        if self.role is Role.LEADER or self.leader is None or self._installing:
            return None
        if self._durable_term != self.term:
            return None  # `hard_state_persisted` orders it
        durable = min(self._verified_end, end_index)
        if durable <= self._acknowledged_end:
            return None
        self._acknowledged_end = durable
        return self.leader, self._acknowledgement(durable)

    def commit_told(self, from_: ReplicaId, term: int, commit_end: int) -> Output | None:
        """The leader says outside of a range what is committed. None: it is not known here as the leader of this term,
        and what it says cannot be used."""
        if term != self.term or from_ != self.leader or self.role is not Role.FOLLOWER or self._installing:
            return None
        out = Output()
        self._learn_commit(out, commit_end)
        return out

    def install_received(
        self, from_: ReplicaId, term: int, log_start: int, rows: Sequence[Row], now: float
    ) -> Output:
        """The leader offers to rebuild this log at log_start, with all rows of lower offset."""
        out = Output()
        if not self._accept_leader(out, from_, term, now) or self._installing:
            return out
        install = Install(from_, log_start, tuple(rows))
        end = install.end_index
        if (
            self.end_index >= end
            and self._rows.rows[: len(rows)] == list(rows)
            and self._row_free(len(rows), end)
        ):
            # A repeated order, or a late one: the log agrees up to there. It may begin lower, and stays as it is: a log
            # start rises here when the host has made that durable, not because a leader names one.
            self._verified_end = max(self._verified_end, end)
            if self.persisted_end >= end:
                self._reply_installed(out, from_)
            return out
        assert self.commit_end <= end, "a leader's log holds everything committed"
        self._installing = True
        out.install = install
        return out

    def installed(self, install: Install, now: float) -> Output:
        """The log was replaced, durably, as ordered: it is empty, begins at log_start and has these rows."""
        assert self._installing
        self._installing = False
        out = Output()
        self._rows = Rows(install.rows)
        self.end_index = self.persisted_end = install.end_index
        self.commit_end = max(self.commit_end, install.end_index)
        out.commit_advanced = True
        self._configuration_changed()
        self.watermarks = self.watermarks._replace(
            log_start=max(self.watermarks.log_start, install.log_start)
        )
        self.install_offset = install.log_start
        self._verified_end = 0
        self._acknowledged_end = 0
        if self.leader == install.replica:
            self._verified_end = install.end_index
            self._reply_installed(out, install.replica)
        elif self.leader is None and self.deadline is None:
            self._await_election(now, self.timing.election_timeout_s)
        return out

    def install_failed(self) -> None:
        """The order could not be carried out; the old log stands. The leader orders again when its host is asked to."""
        assert self._installing
        self._installing = False

    # ------------------------------------------------------------------ steps

    def _accept_leader(self, out: Output, from_: ReplicaId, term: int, now: float) -> bool:
        """A message that only the leader of `term` sends. False: of an older term, or from this replica."""
        if term < self.term or from_ == self.self_id:
            return False
        assert term > self.term or self.role is not Role.LEADER, "two leaders in one term"
        if term > self.term or from_ != self.leader:
            self._become_follower(out, term, from_, now)
        return True

    def _cut_conflict(self, out: Output, start: int, to_index: int, rows: Sequence[Row]) -> bool:
        """Cut the own log where it first differs from the range. The entries before start agree, and terms
        change only at rows, so the first difference is a row that one side has and the other has not."""
        end = min(self.end_index, to_index)
        mine = self._rows.between(start, end)
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
        assert conflict >= self.commit_end, "committed entries are never cut"
        out.truncate_to = conflict
        self._rows.truncate(conflict)
        self.end_index = conflict
        self.persisted_end = min(self.persisted_end, conflict)
        self._verified_end = min(self._verified_end, conflict)
        self._acknowledged_end = min(self._acknowledged_end, conflict)
        self._configuration_changed()
        return True

    def _extend(self, out: Output, to_index: int, rows: Sequence[Row]) -> int:
        """Take what is missing. Returns the end of the log as far as it is now known to agree with the range.

        A row is durable before anything behind it: while the last one is not (an earlier leader sent it),
        nothing is taken. The acknowledgement that follows its flush makes the leader send again.
        """
        if self.persisted_end <= self._rows.last_index:
            return self.end_index
        out.write_from = self.end_index
        for row in rows:
            if row.index >= self.end_index:
                out.rows.append(row)
                self._rows.append(row)
                if row.kind is RowKind.CONFIGURATION:
                    self._configuration_changed()
        self.end_index = to_index
        return to_index

    def _learn_commit(self, out: Output, commit_end: int) -> None:
        """Never beyond what this leader has verified here: the rest of the log may differ from its own."""
        known = min(commit_end, self._verified_end)
        if known > self.commit_end:
            self.commit_end = known
            self._configuration_uncommitted = self.configuration_index >= known
            out.commit_advanced = True

    def _acknowledge(self, out: Output, leader: ReplicaId, durable: int) -> None:
        self._acknowledged_end = durable
        self._reply(out, leader, self._acknowledgement(durable))

    def _acknowledgement(self, durable: int) -> AppendReply:
        return AppendReply(self.term, durable, False, 0, 0, self.watermarks.log_start)

    def _reply_installed(self, out: Output, leader: ReplicaId) -> None:
        self._acknowledged_end = min(self._verified_end, self.persisted_end)
        self._reply(out, leader, InstallReply(self.term, self._acknowledged_end, self.watermarks.log_start))

    def _refusal(self, start: int, prev_term: int) -> AppendReply:
        hint_index = self._rows.common_end(min(start, self.end_index), prev_term)
        hint_term = self._rows.term_before(hint_index)
        return AppendReply(self.term, start, True, hint_index, hint_term, self.watermarks.log_start)

    def _reply(self, out: Output, to: ReplicaId, reply: AppendReply | InstallReply) -> None:
        """A term is durable before a leader of it is answered."""
        if self._durable_term == self.term:
            out.messages.append((to, reply))
        else:
            out.messages_after_flush.append((to, reply))

    def _row_free(self, count: int, end: int) -> bool:
        """The own lineage has no further row below `end`."""
        return len(self._rows) <= count or self._rows.rows[count].index >= end
