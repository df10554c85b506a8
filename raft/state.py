"""The state of one group, and the steps that every role shares."""

from __future__ import annotations

import random
from collections.abc import Sequence

from raft.progress import Progress
from raft.rows import Rows
from raft.types import (
    Configuration,
    HardState,
    Output,
    ReplicaId,
    Role,
    Row,
    RowKind,
    Timing,
    Watermarks,
)

NO_CONFIGURATION = Configuration((), ())


class GroupState:
    """Fields and their invariants. The parts below add one responsibility each; `raft.group.Group` is the
    whole.

    Invariants (`check` asserts them):
    0 <= commit_end <= end_index; 0 <= persisted_end <= end_index; acknowledged_end <= verified_end <= end_index;
    commit_end never falls; the log is never cut below it; term never falls; leader's log is append-only;
    a voter without a leader has a deadline.
    """

    __slots__ = (
        "_acknowledged_end",
        "_configuration_uncommitted",
        "_durable_term",
        "_followers",
        "_has_ticked",
        "_install_offset",
        "_installing",
        "_linger_start",
        "_linger_start_before",
        "_lingering_bytes",
        "_own_row_index",
        "_progress",
        "_rows",
        "_self_counts",
        "_start_index",
        "_transfer_deadline",
        "_transferee",
        "_unreachable",
        "_verified_end",
        "_votes",
        "_voting_followers",
        "commit_end",
        "configuration",
        "configuration_index",
        "deadline",
        "end_index",
        "leader",
        "min_durable",
        "persisted_end",
        "rng",
        "role",
        "self_id",
        "term",
        "timing",
        "voted_for",
        "watermarks",
    )

    def __init__(
        self,
        self_id: ReplicaId,
        hard_state: HardState,
        rows: Sequence[Row],
        end_index: int,
        commit_end: int,
        *,
        watermarks: Watermarks,
        install_offset: int,
        timing: Timing,
        rng: random.Random,
    ) -> None:
        """What recovery found. Everything below end_index is durable, and so is hard_state; a group without rows is a
        blank learner.

        The current term is at least the last row's: a row may be durable before the vote of its term is.
        """
        assert bool(rows) or end_index == 0
        assert not rows or (rows[0].index == 0 and rows[-1].index < end_index)
        assert 0 <= commit_end <= end_index
        self.self_id = self_id
        self.timing = timing.validate()
        self.rng = rng
        self._rows = Rows(rows)
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        if self._rows.last_term > self.term:
            self.term, self.voted_for = self._rows.last_term, None
        #: The highest term that is durable here; nothing is answered to a leader of a higher one. Invariant: at most
        #: term. Not the vote's: what depends on a vote is in `Output.messages_after_flush`.
        self._durable_term = self.term
        self.role = Role.FOLLOWER
        #: The leader of this term, while it is believed to be alive.
        self.leader: ReplicaId | None = None
        self.end_index = end_index
        self.persisted_end = end_index
        #: Everything below is known to be committed.
        self.commit_end = commit_end
        #: Newest configuration in the log, committed or not (a server always uses the latest: thesis section
        #: 4.1).
        self.configuration = NO_CONFIGURATION
        #: Index of its row; -1 in a blank learner.
        self.configuration_index = -1
        self._configuration_uncommitted = False
        #: Call tick at this time or later. 0.0: at once, so that the group learns the time.
        self.deadline: float | None = 0.0
        self._has_ticked = False

        # Follower: end of what this term's leader has verified, and of what was acknowledged to it.
        self._verified_end = 0
        self._acknowledged_end = 0
        #: The install under way: nothing is acknowledged meanwhile.
        self._installing = False

        # Candidate: who granted, with its watermarks. Keys are current voters.
        self._votes: dict[ReplicaId, Watermarks] = {}

        # Leader. _followers: members of the newest or the last committed configuration, but for this replica.
        self._progress: dict[ReplicaId, Progress] = {}
        self._followers: list[Progress] = []
        #: The followers that are voters of the newest configuration, and whether this replica is one.
        self._voting_followers: list[Progress] = []
        self._self_counts = False
        #: Index of this leader's first row: entries below are never committed by counting (Raft figure 8).
        self._own_row_index = 0
        #: Entries from here on, _lingering_bytes of them, gather for the followers that linger.
        self._linger_start = end_index
        #: Where it was until the last gathering ended.
        self._linger_start_before = end_index
        self._lingering_bytes = 0
        #: Voters that an answer to a client waits for where that is more than a majority
        #: (min.insync.replicas). The host sets it.
        self.min_durable = 1
        self._transferee: ReplicaId | None = None
        self._transfer_deadline = 0.0

        #: Nodes without a link.
        self._unreachable: dict[int, None] = {}
        #: This replica's persisted watermarks (offsets). The host sets them when they rise.
        self.watermarks = watermarks
        self._configuration_changed()
        self.install_offset = install_offset

    # ------------------------------------------------------------------ what a host reads

    @property
    def install_offset(self) -> int:
        """Where a follower begins anew that lacks records below: they may be gone, or are deleted at least. At or below
        the log start. The host sets it when it rises, before the log lets go of what is below."""
        return self._install_offset

    @install_offset.setter
    def install_offset(self, offset: int) -> None:
        self._install_offset = offset
        self._start_index = self._rows.first_index_at(offset)

    @property
    def rows(self) -> Sequence[Row]:
        return self._rows.rows

    @property
    def hard_state(self) -> HardState:
        return HardState(self.term, self.voted_for)

    @property
    def last_term(self) -> int:
        """Term of the last entry; NO_TERM in a blank learner."""
        return self._rows.last_term

    @property
    def committed_configuration(self) -> Configuration:
        """The newest one that is surely committed."""
        return self._rows.committed_configuration(self.commit_end) or NO_CONFIGURATION

    @property
    def is_established(self) -> bool:
        """Leader whose first own row is committed: it knows the commit index and may serve and change
        members."""
        return self.role is Role.LEADER and self.commit_end > self._own_row_index

    @property
    def can_propose(self) -> bool:
        """Leader that may append: every row is durable here (a row is durable before a batch of its term and
        before the next row), and no hand-over is under way."""
        return (
            self.role is Role.LEADER
            and self.persisted_end > self._rows.last_index
            and self._transferee is None
        )

    @property
    def may_campaign(self) -> bool:
        """A voter of the newest configuration, or of the last committed one: until its removal commits, a
        replica may be the only one whose log the others can accept (thesis section 4.2.2)."""
        return (
            self.self_id in self.configuration.voters or self.self_id in self.committed_configuration.voters
        )

    @property
    def may_vote(self) -> bool:
        """This very identity is a member. A learner is asked only by a candidate whose log has promoted
        it."""
        return self.configuration.names(self.self_id) or self.committed_configuration.names(self.self_id)

    def term_before(self, end: int) -> int:
        """Term of the entry at end - 1."""
        return self._rows.term_before(end)

    # ------------------------------------------------------------------ shared steps

    def _configuration_changed(self) -> None:
        """The newest configuration is another one: rows were appended or cut."""
        row = self._rows.newest_configuration()
        if row is None:
            self.configuration, self.configuration_index = NO_CONFIGURATION, -1
        else:
            assert row.configuration is not None
            self.configuration, self.configuration_index = row.configuration, row.index
        self._configuration_uncommitted = self.configuration_index >= self.commit_end

    def _adopt_row(self, row: Row) -> None:
        self._rows.append(row)
        if row.kind is RowKind.CONFIGURATION:
            self._configuration_changed()
        self.end_index = row.index + 1

    def _set_hard_state(self, out: Output, term: int, voted_for: ReplicaId | None) -> None:
        assert term >= self.term
        assert term > self.term or self.voted_for in (None, voted_for), "one vote per term"
        self.term = term
        self.voted_for = voted_for
        out.hard_state = HardState(term, voted_for)

    def _become_follower(self, out: Output, term: int, leader: ReplicaId | None, now: float) -> None:
        """Follow `leader` in `term`, or wait for one."""
        assert term >= self.term
        assert leader != self.self_id
        if term > self.term:
            self._set_hard_state(out, term, None)
            self._verified_end = 0
            self._acknowledged_end = 0
            out.role_changed = True
        if self.role is Role.LEADER:
            self._verified_end = 0
            self._acknowledged_end = 0
            self._forget_followers()
        if self.role is not Role.FOLLOWER or leader != self.leader:
            out.role_changed = True
        self.role = Role.FOLLOWER
        self.leader = leader
        self._votes.clear()
        if leader is not None:
            self.deadline = None
        else:
            self._await_election(now, self.timing.election_timeout_s)

    def _forget_followers(self) -> None:
        self._progress.clear()
        self._followers = []
        self._voting_followers = []
        self._self_counts = False
        self._transferee = None

    def _await_election(self, now: float, at_least_s: float) -> None:
        """No leader is known: campaign after `at_least_s` and a random part of the spread."""
        self._has_ticked = True
        if self.may_campaign:
            self.deadline = now + at_least_s + self.rng.uniform(0, self.timing.campaign_spread_s)
        else:
            self.deadline = None

    def check(self) -> None:
        """Assert the invariants; tests and the simulator call it after every step."""
        assert 0 <= self.commit_end <= self.end_index
        assert 0 <= self.persisted_end <= self.end_index
        assert self._acknowledged_end <= self._verified_end <= self.end_index
        assert self._durable_term <= self.term
        assert self._rows.last_index < self.end_index or self.end_index == 0
        assert self._rows.last_term <= self.term
        assert (self.role is Role.LEADER) == (self.leader == self.self_id)
        if self.role is not Role.LEADER:
            assert not self._progress
            assert self.leader is not None or self.deadline is not None or not self.may_campaign
        else:
            assert self._linger_start <= self.end_index
        for progress in self._followers:
            assert 0 <= progress.match_end <= self.end_index
            assert progress.next_index <= self.end_index
            assert progress.inflight_bytes == sum(size for _, size in progress.inflight)
