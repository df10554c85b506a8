"""The deadlines of one consumer group: sessions, revocations, expressions to match, a target assignment to compute.

All of it is soft state: it is lost with leadership, and `ConsumerGroup.loaded` begins anew. Times are seconds of the
loop's clock.
"""

from __future__ import annotations

from broker.config.group_config import GroupConfig
from broker.coordinator.deadlines import Deadlines
from broker.groups.consumer_member import Member, MemberState

#: How many members one decision removes for each reason; the others are still due. All sessions may end at the same
#: moment, a member takes up to 10 kB, and a decision is one batch of the log.
_MAX_EXPIRED = 100


class Schedule:
    def __init__(self) -> None:
        self._sessions: Deadlines[str] = Deadlines()
        #: Of members in UNREVOKED_PARTITIONS. They have the rebalance timeout to give up the revoked partitions.
        self._revocations: Deadlines[str] = Deadlines()
        #: When a target assignment was last computed here.
        self._target_computed_at: float | None = None
        #: When the target assignment will be computed, if it is behind the group. None: it is not behind, or the next
        #: heartbeat computes it.
        self.target_due_at: float | None = None
        #: When expressions will be matched: soon, but behind the answer to the member that brought one, as in Kafka.
        #: Not None exactly while expressions are pending, and after loading until the first heartbeat if one is new.
        self.matching_due_at: float | None = None

    def next_deadline(self) -> float | None:
        deadlines = (
            self._sessions.next(),
            self._revocations.next(),
            self.target_due_at,
            self.matching_due_at,
        )
        return min((each for each in deadlines if each is not None), default=None)

    # -- members -----------------------------------------------------------------------------------------

    def take_due_members(self, now: float) -> set[str]:
        """Members that were silent for a session timeout, or that kept revoked partitions for a rebalance timeout."""
        due = self._sessions.take_due(now, _MAX_EXPIRED) + self._revocations.take_due(now, _MAX_EXPIRED)
        return set(due)

    def renew_session(self, member: Member, settings: GroupConfig, now: float) -> None:
        """The member was heard. The deadline of a revocation begins with it and is not renewed."""
        self._sessions.set(member.member_id, now + settings.consumer_session_timeout_ms / 1000)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._revocations.set(member.member_id, None)
        elif member.member_id not in self._revocations:
            timeout_s = max(member.subscription.rebalance_timeout_ms, 0) / 1000
            self._revocations.set(member.member_id, now + timeout_s)

    def end_revocation(self, member_id: str) -> None:
        self._revocations.set(member_id, None)

    def drop_member(self, member_id: str) -> None:
        self._sessions.set(member_id, None)
        self._revocations.set(member_id, None)

    # -- the target assignment ---------------------------------------------------------------------------

    def postpone_target(self, interval_s: float, now: float) -> bool:
        """The target assignment is to be computed `interval_s` after the last one. False: that is over."""
        if self._target_computed_at is None or now >= self._target_computed_at + interval_s:
            return False
        self.target_due_at = self._target_computed_at + interval_s
        return True

    def target_computed(self, now: float) -> None:
        self._target_computed_at = now
        self.target_due_at = None
