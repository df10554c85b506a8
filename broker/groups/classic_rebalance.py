"""How a generation of a classic group comes about: who is waited for, whose request is parked, and until when.

    join phase        PREPARING: until every member has joined (again), or the rebalance timeout is over
    generation        COMPLETING: everybody's JoinGroup is answered, the leader works out the assignment
    assignment        STABLE: the leader's SyncGroup is in the log, and everybody's is answered

Times are seconds of the loop's clock; `now_ms` is wall time, for the record.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from broker.coordinator.deadlines import Deadlines
from broker.coordinator.outcome import Outcome
from broker.coordinator.ticket import Ticket
from broker.groups.classic_members import Member, Members
from broker.groups.classic_messages import JoinAnswer, JoinedMember, JoinRequest, SyncAnswer
from broker.groups.classic_states import ClassicState
from broker.groups.records import GroupRecord
from protocol.errors import ErrorCode
from protocol.group_records import GroupMetadataKey, GroupMetadataValue

A = TypeVar("A")

#: A new member's JoinGroup may be parked for this long before its client counts as gone. It cannot tell that it is
#: alive while it waits, and does not know its session yet.
NEW_MEMBER_TIMEOUT_S = 300.0
#: Members that start together are some milliseconds apart. Without any delay the first of them would have a generation
#: of its own, and the others would wait until its next heartbeat tells it to join again: seconds.
MIN_INITIAL_DELAY_S = 0.05
#: What a member takes in a record beside its texts and bytes: its address, two timeouts, lengths.
MEMBER_OVERHEAD_BYTES = 128

EMPTY, PREPARING, COMPLETING, STABLE = ClassicState


@dataclass(frozen=True, slots=True)
class ClassicLimits:
    """What the node's settings say about classic groups."""

    initial_delay_s: float = 3.0
    """How long the first rebalance of an empty group waits for more members (group.initial.rebalance.delay.ms). Never
    zero (see MIN_INITIAL_DELAY_S)."""
    max_members: int = 2**31 - 1
    """group.max.size"""
    max_record_bytes: int = 1 << 20
    """What the log takes as one record: members and their assignments."""


@dataclass(slots=True)
class Step:
    """One event at work: when it is, and what comes of it."""

    now: float
    now_ms: int
    outcome: Outcome[GroupRecord] = field(default_factory=Outcome)

    def answer(self, ticket: Ticket[A], answer: A) -> None:
        self.outcome.add_answer(ticket, answer)


class Rebalance:
    """What a group is made of, and what goes on in it between one assignment and the next. Requests: ClassicGroup.

    Invariants
    - `_joins`, `_syncs` and `_unsynced` name members; `_pending` names none.
    - A ticket is in `_joins` only while PREPARING, in `_syncs` only while COMPLETING.
    - A member with a parked request has no session deadline, unless it is new; everybody else has one.
    - A group is EMPTY exactly if it has no members; otherwise there is a protocol that all of them support.
    """

    def __init__(self, group_id: str, limits: ClassicLimits, rng: random.Random) -> None:
        self.group_id = group_id
        self.state = EMPTY
        #: These three run ahead of the log from the end of the join phase to the leader's SyncGroup.
        self.generation_id = 0
        self.protocol: str | None = None
        self.leader: str | None = None
        self.protocol_type = ""
        #: Whether the log has a record of the group.
        self.is_stored = False
        #: Wall time of that record: for a group without members, since when it has none.
        self.stored_at_ms = -1
        self.members = Members()
        self._limits = limits
        #: Member ids are drawn from it.
        self._rng = rng
        #: Ids that were given out and not joined with yet (KIP-394).
        self._pending: set[str] = set()
        self._joins: dict[str, Ticket[JoinAnswer]] = {}
        self._syncs: dict[str, Ticket[SyncAnswer]] = {}
        #: Members of the generation that have not sent SyncGroup yet.
        self._unsynced: set[str] = set()
        #: Of members and of pending ids.
        self._sessions: Deadlines[str] = Deadlines()
        #: When the wait for joins (PREPARING) or for everybody's sync (COMPLETING, STABLE) is over. None in PREPARING:
        #: static members kept their places, and nobody has joined.
        self._phase_ends: float | None = None
        #: In the first rebalance of an empty group: until when it may be put off at most.
        self._first_rebalance_until: float | None = None
        #: Whether somebody new came since the first rebalance was put off last.
        self._has_newcomer = False

    # -- members --------------------------------------------------------------------------------------------

    def _add(self, step: Step, member_id: str, ticket: Ticket[JoinAnswer], request: JoinRequest) -> None:
        if not len(self.members):
            self.protocol_type = request.protocol_type
        self.members.add(Member.of_request(member_id, request))
        self._has_newcomer = True
        self._rebalance(step, (member_id, ticket))

    def _remove(self, step: Step, member_id: str) -> None:
        """It left or is dead; what it waits for it will not get."""
        self.members.remove(member_id)
        self._sessions.set(member_id, None)
        self._unsynced.discard(member_id)
        self._answer_parked(step, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if self.leader == member_id:
            self.leader = None

    def _drop_pending(self, member_id: str) -> None:
        self._pending.remove(member_id)
        self._sessions.set(member_id, None)

    def _keep_alive(self, member_id: str, now: float) -> None:
        """It was heard. While a request of it is parked it cannot be expected to be."""
        if member_id not in self._joins and member_id not in self._syncs:
            self._sessions.set(member_id, now + self.members[member_id].session_timeout_ms / 1000)

    def _park_join(self, step: Step, member_id: str, ticket: Ticket[JoinAnswer]) -> None:
        # A client that gave up waiting may ask again over another connection.
        self._answer_parked(step, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self._joins[member_id] = ticket
        is_new = self.members[member_id].is_new
        self._sessions.set(member_id, step.now + NEW_MEMBER_TIMEOUT_S if is_new else None)

    def _park_sync(self, step: Step, member_id: str, ticket: Ticket[SyncAnswer]) -> None:
        self._answer_parked(step, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self._syncs[member_id] = ticket
        self._sessions.set(member_id, None)

    def _answer_parked(self, step: Step, member_id: str, error: ErrorCode) -> None:
        if member_id in self._joins:
            step.answer(self._joins.pop(member_id), JoinAnswer(error, member_id))
        if member_id in self._syncs:
            step.answer(self._syncs.pop(member_id), SyncAnswer(error))

    # -- the join phase -------------------------------------------------------------------------------------

    def _rebalance(self, step: Step, joining: tuple[str, Ticket[JoinAnswer]] | None = None) -> None:
        """Begin the join phase unless it is on, and end it if nobody is missing."""
        if self.state is not PREPARING:
            self._begin_join_phase(step)
        if joining is not None:
            self._park_join(step, *joining)
        if self._phase_ends is None:
            self._phase_ends = step.now + self._rebalance_timeout_s()
        self._complete_join_if_all_are_here(step)

    def _close_ranks(self, step: Step, size_before: int) -> None:
        """Somebody may be gone, or need not be waited for any more."""
        if self.state is PREPARING:
            self._complete_join_if_all_are_here(step)
        elif len(self.members) < size_before:
            self._rebalance(step)

    def _begin_join_phase(self, step: Step) -> None:
        for member_id in list(self._syncs):
            self._answer_parked(step, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
            self._keep_alive(member_id, step.now)
        self._unsynced.clear()
        wait_s = self._rebalance_timeout_s()
        if self.state is EMPTY:
            delay_s = self._limits.initial_delay_s
            self._first_rebalance_until = step.now + max(wait_s, delay_s)
            self._has_newcomer = False
            wait_s = delay_s
        self._phase_ends = step.now + wait_s
        self.state = PREPARING

    def _rebalance_timeout_s(self) -> float:
        return max((member.rebalance_timeout_ms for member in self.members), default=0) / 1000

    def _complete_join_if_all_are_here(self, step: Step) -> None:
        is_first = self._first_rebalance_until is not None
        are_all_here = len(self._joins) == len(self.members) and not self._pending
        if (are_all_here and not is_first) or not len(self.members):
            self._complete_join(step)

    def _complete_join(self, step: Step) -> None:
        """Make a generation of those that joined. A static member keeps its place without."""
        absent = [each for each in self.members if each.member_id not in self._joins]
        for member in absent:
            if member.instance_id is None:
                self._remove(step, member.member_id)
        if len(self.members) and not self._joins:
            # Nobody is there to lead it. It goes on when one of them joins, or ends with their sessions.
            self._phase_ends = None
            return
        self._phase_ends = self._first_rebalance_until = None
        if not len(self.members):
            step.outcome.records.append(self._record(self.generation_id + 1, step.now_ms, {}))
            return
        self.generation_id += 1
        self.protocol = self.members.choose()
        if self.leader not in self._joins:
            self.leader = next(each.member_id for each in self.members if each.member_id in self._joins)
        self.state = COMPLETING
        joins, self._joins = self._joins, {}
        for member in self.members:
            member.is_new = False
            self._keep_alive(member.member_id, step.now)
            self._unsynced.add(member.member_id)
        self._phase_ends = step.now + self._rebalance_timeout_s()
        for member_id, ticket in joins.items():
            step.answer(ticket, self._joined(self.members[member_id]))

    def _end_phase(self, step: Step) -> None:
        """Somebody was waited for too long."""
        limit = self._first_rebalance_until
        if self.state is not PREPARING:
            for member_id in sorted(self._unsynced):
                self._remove(step, member_id)
            self._rebalance(step)
        elif limit is not None and self._has_newcomer and step.now < limit:
            self._has_newcomer = False
            self._phase_ends = min(step.now + self._limits.initial_delay_s, limit)
        else:
            self._complete_join(step)

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> JoinAnswer:
        """The present generation, as one member is told of it."""
        assert self.protocol is not None
        is_leader = member.member_id == self.leader
        everybody: tuple[JoinedMember, ...] = ()
        if is_leader:
            everybody = tuple(
                JoinedMember(each.member_id, each.instance_id, each.metadata(self.protocol))
                for each in self.members
            )
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            skip_assignment and is_leader,
            everybody,
        )

    # -- the assignment and the log -------------------------------------------------------------------------

    def _assign(self, step: Step, assignments: Mapping[str, bytes]) -> None:
        """The leader's word. The group is stable once it is replayed."""
        record = self._record(self.generation_id, step.now_ms, assignments)
        if not self._fits(record):
            for member_id in list(self._syncs):
                self._answer_parked(step, member_id, ErrorCode.UNKNOWN_SERVER_ERROR)
                self._keep_alive(member_id, step.now)
            self._rebalance(step)
            return
        step.outcome.records.append(record)
        syncs, self._syncs = self._syncs, {}
        for member_id, ticket in syncs.items():
            self._keep_alive(member_id, step.now)
            step.answer(ticket, self._assigned(assignments.get(member_id, b"")))

    def _assigned(self, assignment: bytes) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol, assignment)

    def _record(self, generation_id: int, now_ms: int, assignments: Mapping[str, bytes]) -> GroupRecord:
        protocol = self.protocol if len(self.members) else None
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=generation_id,
            protocol=protocol,
            leader=self.leader if protocol is not None else None,
            current_state_timestamp_ms=now_ms,
            members=[
                member.record(protocol or "", assignments.get(member.member_id, b""))
                for member in self.members
            ],
        )
        return GroupRecord(GroupMetadataKey(group=self.group_id), value)

    def _fits(self, record: GroupRecord) -> bool:
        assert isinstance(record.value, GroupMetadataValue)
        size_bytes = sum(
            MEMBER_OVERHEAD_BYTES
            + len(each.subscription)
            + len(each.assignment)
            + len(f"{each.member_id}{each.group_instance_id or ''}{each.client_id}".encode())
            for each in record.value.members
        )
        return size_bytes <= self._limits.max_record_bytes

    def replay(self, record: GroupRecord) -> None:
        """The generation that the log has. A member that is here keeps what else it told."""
        value = record.value
        assert isinstance(value, GroupMetadataValue), "a tombstone ends the group (Shard.replay)"
        stored_ids = {stored.member_id for stored in value.members}
        for member_id in [each.member_id for each in self.members if each.member_id not in stored_ids]:
            self.members.remove(member_id)
        protocol = value.protocol or ""
        for stored in value.members:
            member = self.members.get(stored.member_id)
            if member is not None and (protocol, stored.subscription) in member.protocols:
                member.session_timeout_ms = stored.session_timeout_ms
                member.rebalance_timeout_ms = stored.rebalance_timeout_ms
            else:
                if member is not None:
                    self.members.remove(stored.member_id)
                member = Member.of_record(stored, protocol)
                self.members.add(member)
            member.assignment = stored.assignment
        self.protocol_type = value.protocol_type
        self.generation_id = value.generation
        self.protocol = value.protocol
        self.leader = value.leader
        self.is_stored = True
        self.stored_at_ms = value.current_state_timestamp_ms
        self.state = STABLE if value.members else EMPTY

    def loaded(self, now: float) -> None:
        """Everybody has a whole session to find the new coordinator."""
        for member in self.members:
            self._keep_alive(member.member_id, now)
