"""What all roles of a replica share (log, term, vote, members), and what a host reads of a group.

The state of one role is in the object of that role.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from raft.follower import Follower
from raft.rows import Rows
from raft.types import (
    MAX_TERM,
    AppendRejection,
    AppendReply,
    Configuration,
    HardState,
    InstallSnapshotReply,
    Output,
    ReplicaId,
    Role,
    Row,
    RowKind,
    Timing,
    Watermarks,
)

if TYPE_CHECKING:
    from raft.candidate import Candidate
    from raft.leader import Leader
    from raft.progress import Progress

NO_CONFIGURATION = Configuration((), ())


class GroupState:
    """The fields, what a host reads of them, and the steps that all roles share. A host changes a group by the facts
    of `raft.group.Group`, and sets only the fields that say so. Only roles call the steps.

    Invariants (`check` asserts them): exactly one of following, candidacy and leading is set;
    0 <= commit_end <= end_index; 0 <= persisted_end <= end_index; durable_term <= term; commit_end never falls; the log
    is never cut below it; term never falls; a voter that follows nobody and does not lead has a deadline.
    """

    __slots__ = (
        "_install_offset",
        "candidacy",
        "commit_end",
        "configuration",
        "configuration_index",
        "deadline",
        "durable_term",
        "end_index",
        "following",
        "has_ticked",
        "is_change_uncommitted",
        "is_installing",
        "leading",
        "lineage",
        "min_durable",
        "persisted_end",
        "rng",
        "self_id",
        "start_index",
        "term",
        "timing",
        "told_commit_end",
        "unreachable",
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
        """The arguments are what recovery found. Everything below end_index is durable, and so is hard_state. A group
        without rows is a blank learner.

        The current term is at least the last row's: a row may be durable before the vote of its term is.
        """
        assert bool(rows) or end_index == 0
        assert not rows or (rows[0].index == 0 and rows[-1].index < end_index)
        assert 0 <= commit_end <= end_index
        self.self_id = self_id
        self.timing = timing.validate()
        self.rng = rng
        self.lineage = Rows(rows)
        self.term = hard_state.term
        self.voted_for = hard_state.voted_for
        if self.lineage.last_term > self.term:
            self.term, self.voted_for = self.lineage.last_term, None
        #: The highest term that is durable here. A leader of a higher term is not answered. This does not cover votes:
        #: what depends on a vote is in `Output.messages_after_flush`.
        self.durable_term = self.term
        self.end_index = end_index
        self.persisted_end = end_index
        #: Everything below is known to be committed.
        self.commit_end = commit_end
        #: The highest commit index that any leader has told since this log was opened. What of the log lies below came
        #: from leaders that had compacted no further than this, so it is whole once commit_end is as high.
        self.told_commit_end = commit_end
        #: Newest configuration in the log, committed or not (a server always uses the latest: thesis section
        #: 4.1).
        self.configuration = NO_CONFIGURATION
        #: Index of its row; -1 in a blank learner.
        self.configuration_index = -1
        #: The newest configuration is not known to be committed.
        self.is_change_uncommitted = False
        #: This replica's persisted watermarks (offsets). The host sets them when they rise.
        self.watermarks = watermarks
        #: How many voters have to hold a record durably before clients are answered, if that is more than a majority
        #: (min.insync.replicas). The host sets it.
        self.min_durable = 1
        #: Nodes without a link.
        self.unreachable: dict[int, None] = {}
        #: The host is replacing the log by a snapshot. Nothing is acknowledged meanwhile.
        self.is_installing = False
        #: Call tick at this time or later. 0.0: at once, so that the group learns the time.
        self.deadline: float | None = 0.0
        self.has_ticked = False
        #: The role, and its state.
        self.following: Follower | None = Follower(self, None)
        self.candidacy: Candidate | None = None
        self.leading: Leader | None = None
        self.reload_configuration()
        self.install_offset = install_offset

    # ------------------------------------------------------------------ what a host reads

    @property
    def role(self) -> Role:
        if self.following is not None:
            return Role.FOLLOWER if self.following.pre_vote is None else Role.PRE_CANDIDATE
        return Role.CANDIDATE if self.leading is None else Role.LEADER

    @property
    def leader(self) -> ReplicaId | None:
        """The leader of this term, while it is believed to be alive."""
        if self.following is not None:
            return self.following.leader
        return None if self.leading is None else self.self_id

    @property
    def install_offset(self) -> int:
        """The offset where a follower begins with an empty log, if it lacks records below it: those may be removed
        here. At or below the log start. The host sets it when it rises, before the log removes what is below."""
        return self._install_offset

    @install_offset.setter
    def install_offset(self, offset: int) -> None:
        self._install_offset = offset
        #: The index of install_offset. Entries below cannot be sent.
        self.start_index = self.lineage.first_index_at(offset)

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self.end_index - len(self.lineage)

    @property
    def rows(self) -> Sequence[Row]:
        return self.lineage.rows

    @property
    def hard_state(self) -> HardState:
        return HardState(self.term, self.voted_for)

    @property
    def last_term(self) -> int:
        """Term of the last entry; NO_TERM in a blank learner."""
        return self.lineage.last_term

    @property
    def committed_configuration(self) -> Configuration:
        """The newest configuration that is known to be committed."""
        return self.lineage.committed_configuration(self.commit_end) or NO_CONFIGURATION

    @property
    def committed_configuration_index(self) -> int:
        """Index of its row; -1 if there is none."""
        if self.configuration_index < self.commit_end:
            return self.configuration_index
        rows = (row.index for row in reversed(self.lineage.rows) if row.kind is RowKind.CONFIGURATION)
        return next((index for index in rows if index < self.commit_end), -1)

    @property
    def is_established(self) -> bool:
        """A leader whose first own row is committed: it knows the commit index, and may serve and change members."""
        leading = self.leading
        return leading is not None and self.commit_end > leading.own_row_index

    @property
    def can_propose(self) -> bool:
        """Leader that may append: every row is durable here (a row is durable before a batch of its term and
        before the next row), and no leadership transfer is under way."""
        leading = self.leading
        return (
            leading is not None
            and self.persisted_end > self.lineage.last_index
            and leading.transfer_target is None
        )

    @property
    def is_voter(self) -> bool:
        """Of the newest configuration."""
        return self.self_id in self.configuration.voters

    @property
    def may_campaign(self) -> bool:
        """A voter of the newest configuration, or of the last committed one: until its removal commits, a
        replica may be the only one whose log the others can accept (thesis section 4.2.2). Never beyond MAX_TERM."""
        is_voter = self.is_voter or self.self_id in self.committed_configuration.voters
        return is_voter and self.term < MAX_TERM

    @property
    def may_vote(self) -> bool:
        """This identity is a member. A learner is asked for a vote only by a candidate in whose log it is a voter."""
        return self.configuration.names(self.self_id) or self.committed_configuration.names(self.self_id)

    @property
    def are_rows_durable(self) -> bool:
        return self.persisted_end > self.lineage.last_index

    def term_before(self, end: int) -> int:
        """Term of the entry at end - 1."""
        return self.lineage.term_before(end)

    # ------------------------------------------------------------------ what a host reads of a leader

    @property
    def has_deferred(self) -> bool:
        """Some entries may not have been sent to deferred followers: call send_deferred soon."""
        leading = self.leading
        return leading is not None and leading.replication.batch_start < self.end_index

    @property
    def has_voting_followers(self) -> bool:
        """A leader whose own log is not enough to commit anything."""
        return self.leading is not None and bool(self.leading.replication.voting_followers)

    @property
    def commit_unsent(self) -> bool:
        """Some follower was not sent the commit index, or has not confirmed the log start: `send_commits` has something
        to send, now or after an answer."""
        return self.leading is not None and self.leading.replication.has_unsent_commit

    @property
    def members(self) -> list[ReplicaId]:
        """All that count for what the whole group has: a removal counts once it is committed, an addition at once."""
        members = list(self.configuration.members)
        if self.is_change_uncommitted:
            members += [each for each in self.committed_configuration.members if each not in members]
        return members

    def progress_of(self, replica: ReplicaId) -> Progress | None:
        return None if self.leading is None else self.leading.replication.progress_of(replica)

    def durable_end(self, count: int) -> int:
        """The log end that `count` voters, this one included, hold durably. 1 <= count <= number of voters."""
        assert self.leading is not None
        return self.leading.durable_end(count)

    def is_caught_up(self, replica: ReplicaId, now: float, max_lag_s: float) -> bool:
        """The replica's verified durable log held, within the last max_lag_s, all that this log held then."""
        return self.leading is not None and self.leading.is_caught_up(replica, now, max_lag_s)

    def in_sync(self, now: float, max_lag_s: float) -> tuple[ReplicaId, ...]:
        """Voters that are caught up (Kafka's in-sync replicas)."""
        voters = self.configuration.voters
        return tuple(voter for voter in voters if self.is_caught_up(voter, now, max_lag_s))

    def lacking_log_start(self) -> list[ReplicaId]:
        """The reachable followers that have not confirmed the log start."""
        return [] if self.leading is None else self.leading.lacking_log_start()

    def majority_log_start(self, voters: Sequence[ReplicaId] | None = None) -> int:
        """The log start (offset) that a majority of the voters (by default the present ones) has persisted."""
        assert self.leading is not None
        return self.leading.majority_log_start(self.configuration.voters if voters is None else voters)

    # ------------------------------------------------------------------ log and members

    def reload_configuration(self) -> None:
        """Find the newest configuration again after rows were appended or cut."""
        row = self.lineage.newest_configuration()
        if row is None:
            self.configuration, self.configuration_index = NO_CONFIGURATION, -1
        else:
            assert row.configuration is not None
            self.configuration, self.configuration_index = row.configuration, row.index
        self.is_change_uncommitted = self.configuration_index >= self.commit_end

    def append_row(self, row: Row) -> None:
        """Append to the lineage. The caller moves end_index."""
        self.lineage.append(row)
        if row.kind is RowKind.CONFIGURATION:
            self.reload_configuration()

    def truncate_log(self, end_index: int) -> None:
        """The log ends at end_index now. A follower also calls `Follower.truncate_verified`."""
        self.lineage.truncate(end_index)
        self.end_index = end_index
        self.persisted_end = min(self.persisted_end, end_index)
        self.reload_configuration()

    # ------------------------------------------------------------------ terms and roles

    def set_hard_state(self, out: Output, term: int, voted_for: ReplicaId | None) -> None:
        assert term >= self.term
        assert term > self.term or self.voted_for in (None, voted_for), "one vote per term"
        self.term = term
        self.voted_for = voted_for
        out.hard_state = HardState(term, voted_for)

    def become_follower(self, out: Output, term: int, leader: ReplicaId | None, now: float) -> None:
        """Follow `leader` in `term`, or wait for a leader. This ends the present role."""
        assert term >= self.term
        assert leader != self.self_id
        following = self.following
        if term > self.term:
            self.set_hard_state(out, term, None)
            following = None  # what a leader has verified counts only in its term
        if following is None or following.leader != leader or following.pre_vote is not None:
            out.role_changed = True
        if following is None:
            self.following = Follower(self, leader)
            self.candidacy = self.leading = None
        else:
            following.leader = leader
            following.pre_vote = None
        if leader is not None:
            self.deadline = None
        else:
            self.await_election(now, self.timing.election_timeout_s)

    def await_election(self, now: float, at_least_s: float) -> None:
        """No leader is known: campaign after `at_least_s` and a random part of `campaign_spread_s`."""
        self.has_ticked = True
        if self.may_campaign:
            self.deadline = now + at_least_s + self.rng.uniform(0, self.timing.campaign_spread_s)
        else:
            self.deadline = None

    def answer_leader(
        self, out: Output, to: ReplicaId, reply: AppendReply | AppendRejection | InstallSnapshotReply
    ) -> None:
        """Answer the leader of the present term, when that term is durable here."""
        if self.durable_term == self.term:
            out.messages.append((to, reply))
        else:
            out.messages_after_flush.append((to, reply))

    def check(self) -> None:
        """Assert the invariants; tests and the simulator call it after every step."""
        assert 0 <= self.commit_end <= self.end_index
        assert 0 <= self.persisted_end <= self.end_index
        assert self.durable_term <= self.term
        assert self.lineage.last_index < self.end_index or self.end_index == 0
        assert self.lineage.last_term <= self.term
        assert [self.following, self.candidacy, self.leading].count(None) == 2
        assert (
            self.leading is not None
            or self.leader is not None
            or self.deadline is not None
            or not self.may_campaign
        )
        if self.following is not None:
            self.following.check()
        if self.leading is not None:
            self.leading.check()
