"""The rebalance of a classic group: who is waited for, whose request is parked, and until when.

    PREPARING     the join phase: until every member has joined, or the rebalance timeout is over
    COMPLETING    a generation has begun: every JoinGroup is answered, and the leader computes the assignment
    STABLE        the leader's SyncGroup is in the log, and every SyncGroup is answered

Times are seconds of the loop's clock. `now_ms` is wall time, for the record.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TypeVar

from broker.coordinator.deadlines import Deadlines
from broker.coordinator.memory import CoordinatorMemory, text_size, unbounded
from broker.coordinator.outcome import Outcome
from broker.coordinator.ticket import Ticket
from broker.groups.classic_members import MIN_MEMBER_BYTES, Member, Members
from broker.groups.classic_messages import JoinAnswer, JoinedMember, JoinRequest, SyncAnswer
from broker.groups.classic_states import ClassicState
from broker.groups.records import GroupRecord
from protocol.errors import ErrorCode
from protocol.group_records import GroupMetadataKey, GroupMetadataValue

A = TypeVar("A")

#: How long a new member's JoinGroup may be parked before its client counts as dead. The client cannot send heartbeats
#: while it waits, so its session timeout does not apply.
NEW_MEMBER_TIMEOUT_S = 300.0
#: The shortest delay of a first rebalance. Members that start together are some milliseconds apart. Without a delay the
#: first of them would get a generation of its own. The others would then wait for seconds, until the next heartbeat of
#: the first one tells it to join again.
MIN_INITIAL_DELAY_S = 0.05
#: What a group takes in memory beside its members.
GROUP_BYTES = 1800
#: What a member takes in a record beside its ids, metadata and assignment: its address, two timeouts, lengths.
MEMBER_OVERHEAD_BYTES = 128

EMPTY, PREPARING, COMPLETING, STABLE = ClassicState


@dataclass(frozen=True, slots=True)
class ClassicLimits:
    """The settings of classic groups."""

    initial_delay_s: float = 3.0
    """How long the first rebalance of an empty group waits for more members (group.initial.rebalance.delay.ms).
    Invariant: at least MIN_INITIAL_DELAY_S."""
    max_members: int = 2**31 - 1
    """group.max.size"""
    max_record_bytes: int = 1 << 20
    """The largest record of members and their assignments that fits into a batch of the log."""
    memory: CoordinatorMemory = field(default_factory=unbounded)


@dataclass(slots=True)
class Transition:
    """What one event does to a group: when it happens, and the outcome so far."""

    now: float
    now_ms: int
    outcome: Outcome[GroupRecord] = field(default_factory=Outcome)

    def answer(self, ticket: Ticket[A], answer: A) -> None:
        self.outcome.add_answer(ticket, answer)


class Rebalance:
    """The members of a group and its rebalance. `ClassicGroup` takes the requests.

    Invariants
    - `_joins`, `_syncs` and `_unsynced` name members; `_pending` names none.
    - A ticket is in `_joins` only while PREPARING, in `_syncs` only while COMPLETING.
    - A member with a parked request has no session deadline, unless it is new. Every other member has one.
    - A group is EMPTY exactly if it has no members. Otherwise there is a protocol that all of them support.
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
        #: That record, if it names static members.
        self._stored: GroupMetadataValue | None = None
        #: Wall time of that record. A group without members is empty since then.
        self.stored_at_ms = -1
        self.members = Members()
        self._limits = limits
        #: Member ids are drawn from it.
        self._rng = rng
        #: Member ids that were given out and that nobody has joined with yet (KIP-394).
        self._pending: set[str] = set()
        self._pending_bytes = 0
        self._joins: dict[str, Ticket[JoinAnswer]] = {}
        self._syncs: dict[str, Ticket[SyncAnswer]] = {}
        #: Members of this generation that have not sent SyncGroup yet.
        self._unsynced: set[str] = set()
        #: Of members and of pending ids.
        self._sessions: Deadlines[str] = Deadlines()
        #: When the wait for joins (PREPARING) or for SyncGroup of all members (COMPLETING, STABLE) times out. None in
        #: PREPARING: only absent static members are left, and the group waits for the first of them to join.
        self._phase_ends: float | None = None
        #: How long the first rebalance of an empty group may be delayed at most. None: it is not the first rebalance.
        self._first_rebalance_until: float | None = None
        #: Whether a new member came since the first rebalance was last delayed.
        self._has_newcomer = False

    # -- members --------------------------------------------------------------------------------------------

    def _add_member(
        self, transition: Transition, member_id: str, ticket: Ticket[JoinAnswer], request: JoinRequest
    ) -> None:
        if not len(self.members):
            self.protocol_type = request.protocol_type
        self.members.add(Member.of_request(member_id, request))
        self._has_newcomer = True
        self._begin_rebalance(transition, (member_id, ticket))

    def _remove_member(self, transition: Transition, member_id: str) -> None:
        """The member left or is dead. Its parked requests are refused."""
        self.members.remove(member_id)
        self._sessions.set(member_id, None)
        self._unsynced.discard(member_id)
        self._answer_parked(transition, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        if self.leader == member_id:
            self.leader = None

    @property
    def size_bytes(self) -> int:
        """What the group takes in memory."""
        return GROUP_BYTES + text_size(self.group_id) + self.members.size_bytes + self._pending_bytes

    def _add_pending(self, member_id: str, deadline: float) -> None:
        self._pending.add(member_id)
        self._pending_bytes += pending_size(member_id)
        self._sessions.set(member_id, deadline)

    def _drop_pending(self, member_id: str) -> None:
        self._pending.remove(member_id)
        self._pending_bytes -= pending_size(member_id)
        self._sessions.set(member_id, None)

    def _renew_session(self, member_id: str, now: float) -> None:
        """The member was heard. It has no session deadline while a request of it is parked."""
        if member_id not in self._joins and member_id not in self._syncs:
            self._sessions.set(member_id, now + self.members[member_id].session_timeout_ms / 1000)

    def _park_join(self, transition: Transition, member_id: str, ticket: Ticket[JoinAnswer]) -> None:
        # A client whose request timed out may send it again over another connection.
        self._answer_parked(transition, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self._joins[member_id] = ticket
        is_new = self.members[member_id].is_new
        self._sessions.set(member_id, transition.now + NEW_MEMBER_TIMEOUT_S if is_new else None)

    def _park_sync(self, transition: Transition, member_id: str, ticket: Ticket[SyncAnswer]) -> None:
        self._answer_parked(transition, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self._syncs[member_id] = ticket
        self._sessions.set(member_id, None)

    def _answer_parked(self, transition: Transition, member_id: str, error: ErrorCode) -> None:
        if member_id in self._joins:
            transition.answer(self._joins.pop(member_id), JoinAnswer(error, member_id))
        if member_id in self._syncs:
            transition.answer(self._syncs.pop(member_id), SyncAnswer(error))

    # -- the join phase -------------------------------------------------------------------------------------

    def _begin_rebalance(
        self, transition: Transition, joining: tuple[str, Ticket[JoinAnswer]] | None = None
    ) -> None:
        """Begin the join phase unless it has begun, and end it if all members have joined."""
        if self.state is not PREPARING:
            self._begin_join_phase(transition)
        if joining is not None:
            self._park_join(transition, *joining)
        if self._phase_ends is None:
            self._phase_ends = transition.now + self._rebalance_timeout_s()
        self._complete_join_if_all_joined(transition)

    def _rebalance_or_complete_join(self, transition: Transition, size_before: int) -> None:
        """Members may have left, or the group may have nobody to wait for any more."""
        if self.state is PREPARING:
            self._complete_join_if_all_joined(transition)
        elif len(self.members) < size_before:
            self._begin_rebalance(transition)

    def _begin_join_phase(self, transition: Transition) -> None:
        for member_id in list(self._syncs):
            self._answer_parked(transition, member_id, ErrorCode.REBALANCE_IN_PROGRESS)
            self._renew_session(member_id, transition.now)
        self._unsynced.clear()
        wait_s = self._rebalance_timeout_s()
        if self.state is EMPTY:
            delay_s = self._limits.initial_delay_s
            self._first_rebalance_until = transition.now + max(wait_s, delay_s)
            self._has_newcomer = False
            wait_s = delay_s
        self._phase_ends = transition.now + wait_s
        self.state = PREPARING

    def _rebalance_timeout_s(self) -> float:
        return max((member.rebalance_timeout_ms for member in self.members), default=0) / 1000

    def _complete_join_if_all_joined(self, transition: Transition) -> None:
        is_first = self._first_rebalance_until is not None
        are_all_here = len(self._joins) == len(self.members) and not self._pending
        if (are_all_here and not is_first) or not len(self.members):
            self._complete_join(transition)

    def _complete_join(self, transition: Transition) -> None:
        """Begin a generation with the members that joined. Static members stay in the group without joining."""
        absent = [each for each in self.members if each.member_id not in self._joins]
        for member in absent:
            if member.instance_id is None:
                self._remove_member(transition, member.member_id)
        if len(self.members) and not self._joins:
            # Only absent static members: none can be the leader. The rebalance continues when one of them joins.
            self._phase_ends = None
            return
        self._phase_ends = self._first_rebalance_until = None
        if not len(self.members):
            transition.outcome.records.append(
                self._group_record(self.generation_id + 1, transition.now_ms, {})
            )
            return
        self.generation_id += 1
        self.protocol = self.members.choose_protocol()
        if self.leader not in self._joins:
            self.leader = next(each.member_id for each in self.members if each.member_id in self._joins)
        self.state = COMPLETING
        joins, self._joins = self._joins, {}
        for member in self.members:
            member.is_new = False
            self._renew_session(member.member_id, transition.now)
            self._unsynced.add(member.member_id)
        self._phase_ends = transition.now + self._rebalance_timeout_s()
        for member_id, ticket in joins.items():
            transition.answer(ticket, self._join_answer(self.members[member_id]))

    def _phase_timed_out(self, transition: Transition) -> None:
        """The deadline of the phase has come: continue without the members that are missing."""
        limit = self._first_rebalance_until
        if self.state is not PREPARING:
            for member_id in sorted(self._unsynced):
                self._remove_member(transition, member_id)
            self._begin_rebalance(transition)
        elif limit is not None and self._has_newcomer and transition.now < limit:
            self._has_newcomer = False
            self._phase_ends = min(transition.now + self._limits.initial_delay_s, limit)
        else:
            self._complete_join(transition)

    def _join_answer(self, member: Member, *, skip_assignment: bool = False) -> JoinAnswer:
        """What a member is told about the current generation."""
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

    def _store_assignment(self, transition: Transition, assignments: Mapping[str, bytes]) -> None:
        """Append the assignment of the leader. The group is stable when the record is replayed."""
        record = self._group_record(self.generation_id, transition.now_ms, assignments)
        added_bytes = sum(
            member.size_bytes(assignments.get(member.member_id, b"")) - member.size_bytes()
            for member in self.members
        )
        if not (self._fits_into_batch(record) and self._limits.memory.has_room(added_bytes)):
            for member_id in list(self._syncs):
                self._answer_parked(transition, member_id, ErrorCode.UNKNOWN_SERVER_ERROR)
                self._renew_session(member_id, transition.now)
            self._begin_rebalance(transition)
            return
        transition.outcome.records.append(record)
        syncs, self._syncs = self._syncs, {}
        for member_id, ticket in syncs.items():
            self._renew_session(member_id, transition.now)
            transition.answer(ticket, self._sync_answer(assignments.get(member_id, b"")))

    def _sync_answer(self, assignment: bytes) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol, assignment)

    def _group_record(self, generation_id: int, now_ms: int, assignments: Mapping[str, bytes]) -> GroupRecord:
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

    def _renamed_record(self, predecessor: str, member_id: str, now_ms: int) -> list[GroupRecord]:
        """A static member is back while the group rebalances: the record of the last durable generation with the new id
        of the member. The next coordinator would know only the old one, and would fence the member. Empty if the record
        does not have it."""
        stored = self._stored
        if stored is None or all(each.member_id != predecessor for each in stored.members):
            return []
        renamed = copy(stored)
        renamed.current_state_timestamp_ms = now_ms
        renamed.members = [copy(each) for each in stored.members]
        for member in renamed.members:
            if member.member_id == predecessor:
                member.member_id = member_id
        if stored.leader == predecessor:
            renamed.leader = member_id
        return [GroupRecord(GroupMetadataKey(group=self.group_id), renamed)]

    def _fits_into_batch(self, record: GroupRecord) -> bool:
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
        """Take over the generation of the record. A member keeps what the record does not have: its other protocols."""
        value = record.value
        assert isinstance(value, GroupMetadataValue), "Shard.replay handles tombstones"
        former, self._stored = self._stored, None
        if any(stored.group_instance_id is not None for stored in value.members):
            self._stored = value
        if (
            former is not None
            and self.state in (PREPARING, COMPLETING)
            and value.generation == former.generation
        ):
            return  # `_renamed_record`: the members of the rebalance run ahead of the log
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
            self.members.assign(member, stored.assignment)
        self.protocol_type = value.protocol_type
        self.generation_id = value.generation
        self.protocol = value.protocol
        self.leader = value.leader
        self.is_stored = True
        self.stored_at_ms = value.current_state_timestamp_ms
        self.state = STABLE if value.members else EMPTY

    def loaded(self, now: float, heard_until: float) -> None:
        for member in self.members:
            self._renew_session(member.member_id, heard_until)

    def measure(self) -> Iterator[None]:
        return iter(())  # its members know their sizes


def pending_size(member_id: str) -> int:
    """What a member id takes that was given out: what its member will take at least."""
    return MIN_MEMBER_BYTES + text_size(member_id)
