"""One group of the classic protocol: what is asked of it.

Each method is one event and gives an `Outcome`; the table in classic_states.py says what each does in each state. What
the log says (members, their assignments, and the generation that has them) changes in `replay` alone. Who is joining,
whose request is parked and until when somebody is waited for is lost with this node's leadership: the next coordinator
goes on from the last generation that had an assignment, and who was in a later one learns by ILLEGAL_GENERATION or
UNKNOWN_MEMBER_ID that it has to join again.
"""

from __future__ import annotations

from collections.abc import Set

from broker.coordinator.outcome import Outcome
from broker.coordinator.ticket import Ticket
from broker.groups.classic_members import Member
from broker.groups.classic_messages import (
    ClassicDescription,
    HeartbeatAnswer,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    Leaver,
    MemberDescription,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.classic_rebalance import COMPLETING, EMPTY, PREPARING, STABLE, Rebalance, Step
from broker.groups.classic_subscription import subscribed_topics
from broker.groups.commit import CommitRequest
from broker.groups.records import GroupRecord
from broker.metadata.ids import random_uuid
from protocol.errors import ErrorCode, KafkaError
from protocol.group_records import GroupMetadataKey

CONSUMER_PROTOCOL_TYPE = "consumer"
#: Characters of a client or instance id that a member id begins with. The rest would not fit into what says the id.
MAX_NAME_IN_ID = 4096


class ClassicGroup(Rebalance):
    """Parked tickets come back in the `answers` of some later Outcome; there is no other way out for them."""

    group_type = "classic"

    # -- join -----------------------------------------------------------------------------------------------

    def join(
        self, ticket: Ticket[JoinAnswer], request: JoinRequest, now: float, now_ms: int
    ) -> Outcome[GroupRecord]:
        step = Step(now, now_ms)
        # Static members are given no id first.
        is_pending = request.member_id in self._pending and request.instance_id is None
        if is_pending:
            self._drop_pending(request.member_id)
        refusal = self._why_not_join(request)
        if refusal != ErrorCode.NONE:
            step.answer(ticket, JoinAnswer(refusal))
            self._close_ranks(step, len(self.members))
        elif is_pending:
            self._add(step, request.member_id, ticket, request)
        elif request.member_id:
            self._join_again(step, ticket, request)
        else:
            self._join_without_id(step, ticket, request)
        return step.outcome

    def _why_not_join(self, request: JoinRequest) -> ErrorCode:
        if not request.protocol_type or not self.members.share(request.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if len(self.members) and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id in self.members or len(self.members) < self._limits.max_members:
            return ErrorCode.NONE
        if request.instance_id is not None and self.members.of_instance(request.instance_id) is not None:
            return ErrorCode.NONE
        return ErrorCode.GROUP_MAX_SIZE_REACHED

    def _join_without_id(self, step: Step, ticket: Ticket[JoinAnswer], request: JoinRequest) -> None:
        if request.instance_id is not None:
            member_id = self._new_id(request.instance_id)
            predecessor = self.members.of_instance(request.instance_id)
            if predecessor is None:
                self._add(step, member_id, ticket, request)
            else:
                self._succeed(step, self.members[predecessor], member_id, ticket, request)
            return
        member_id = self._new_id(request.client_id)
        if request.takes_id_first:
            self._pending.add(member_id)
            self._sessions.set(member_id, step.now + request.session_timeout_ms / 1000)
            step.answer(ticket, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(step, member_id, ticket, request)

    def _new_id(self, name: str) -> str:
        return f"{name[:MAX_NAME_IN_ID]}-{random_uuid(self._rng)}"

    def _join_again(self, step: Step, ticket: Ticket[JoinAnswer], request: JoinRequest) -> None:
        member_id = request.member_id
        error = self._why_not_member(member_id, request.instance_id)
        if error != ErrorCode.NONE:
            step.answer(ticket, JoinAnswer(error, member_id))
            return
        member = self.members[member_id]
        # The answer may have got lost: who joins like this changes nothing. But the leader of a stable group joins
        # because it wants to give out the partitions anew.
        is_repeated = self.state is COMPLETING or (self.state is STABLE and member_id != self.leader)
        if is_repeated and member.protocols == request.protocols:
            self._keep_alive(member_id, step.now)
            step.answer(ticket, self._joined(member))
            return
        self.members.update(member, request)
        self._rebalance(step, (member_id, ticket))

    def _succeed(
        self, step: Step, member: Member, member_id: str, ticket: Ticket[JoinAnswer], request: JoinRequest
    ) -> None:
        """A static member came back: it has its predecessor's place, under an id of its own (KIP-345)."""
        predecessor, leader = member.member_id, self.leader
        self._answer_parked(step, predecessor, ErrorCode.FENCED_INSTANCE_ID)
        self._sessions.set(predecessor, None)
        if predecessor in self._unsynced:
            self._unsynced.remove(predecessor)
            self._unsynced.add(member_id)
        if leader == predecessor:
            self.leader = member_id
        self.members.rename(member, member_id)
        self.members.update(member, request)
        record = None
        if self.state is STABLE and self.members.choose() == self.protocol:
            record = self._record(self.generation_id, step.now_ms, self.members.assignments())
        if record is None or not self._fits(record):
            self._rebalance(step, (member_id, ticket))
            return
        step.outcome.records.append(record)
        self._keep_alive(member_id, step.now)
        answer = self._joined(member, skip_assignment=True)
        if not request.may_skip_assignment:
            # A client that heard it is the leader would give out the partitions, and nobody would ask for them.
            answer = JoinAnswer(
                ErrorCode.NONE, member_id, self.generation_id, self.protocol_type, self.protocol, leader or ""
            )
        step.answer(ticket, answer)

    # -- the other requests ---------------------------------------------------------------------------------

    def sync(
        self, ticket: Ticket[SyncAnswer], request: SyncRequest, now: float, now_ms: int
    ) -> Outcome[GroupRecord]:
        step = Step(now, now_ms)
        error = self._why_not_sync(request)
        if error != ErrorCode.NONE:
            step.answer(ticket, SyncAnswer(error))
            return step.outcome
        self._unsynced.discard(request.member_id)
        if not self._unsynced:
            self._phase_ends = None
        if self.state is STABLE:
            self._keep_alive(request.member_id, now)
            step.answer(ticket, self._assigned(self.members[request.member_id].assignment))
            return step.outcome
        self._park_sync(step, request.member_id, ticket)
        if request.member_id == self.leader:
            self._assign(step, request.assignments)
        return step.outcome

    def _why_not_sync(self, request: SyncRequest) -> ErrorCode:
        error = self._why_not_member(request.member_id, request.instance_id, request.generation_id)
        if error != ErrorCode.NONE:
            return error
        if request.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol not in (None, self.protocol):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def heartbeat(
        self,
        ticket: Ticket[HeartbeatAnswer],
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        now: float,
    ) -> Outcome[GroupRecord]:
        error = self._why_not_member(member_id, instance_id, generation_id)
        if error == ErrorCode.NONE:
            self._keep_alive(member_id, now)
            if self.state is PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        return Outcome[GroupRecord]().add_answer(ticket, HeartbeatAnswer(error))

    def leave(
        self, ticket: Ticket[LeaveAnswer], leavers: tuple[Leaver, ...], now: float, now_ms: int
    ) -> Outcome[GroupRecord]:
        step = Step(now, now_ms)
        size_before = len(self.members)
        errors = [self._leave(step, leaver) for leaver in leavers]
        self._close_ranks(step, size_before)
        step.answer(ticket, LeaveAnswer(ErrorCode.NONE, tuple(zip(leavers, errors, strict=True))))
        return step.outcome

    def _leave(self, step: Step, leaver: Leaver) -> ErrorCode:
        member_id = leaver.member_id
        if not member_id and leaver.instance_id is not None:
            member_id = self.members.of_instance(leaver.instance_id) or ""
        if member_id in self._pending:
            self._drop_pending(member_id)
            return ErrorCode.NONE
        error = self._why_not_member(member_id, leaver.instance_id)
        if error == ErrorCode.NONE:
            self._remove(step, member_id)
        return error

    def check_commit(self, request: CommitRequest, now: float) -> None:
        if request.generation < 0 and self.is_empty:
            return  # an administrator's tool, or a consumer that assigns partitions to itself
        error = self._why_not_member(request.member_id, request.instance_id, request.generation)
        if error != ErrorCode.NONE:
            raise KafkaError(error)
        self._keep_alive(request.member_id, now)
        if self.state is COMPLETING:
            # Whose partitions these are is being decided.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anybody may (only KIP-848 asks who it is)."""

    def _why_not_member(
        self, member_id: str, instance_id: str | None, generation_id: int | None = None
    ) -> ErrorCode:
        if instance_id is not None:
            current = self.members.of_instance(instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id is not None and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    # -- time -----------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `expire` may have something to do. Never too late, perhaps too early."""
        times = [time for time in (self._sessions.next(), self._phase_ends) if time is not None]
        return min(times, default=None)

    def expire(self, now: float, now_ms: int) -> Outcome[GroupRecord]:
        step = Step(now, now_ms)
        size_before = len(self.members)
        for member_id in self._sessions.due(now):
            if member_id in self._pending:
                self._pending.remove(member_id)
            else:
                self._remove(step, member_id)
        self._close_ranks(step, size_before)
        if self._phase_ends is not None and self._phase_ends <= now:
            self._end_phase(step)
        return step.outcome

    # -- what it looks like ---------------------------------------------------------------------------------

    def describe(self) -> ClassicDescription:
        protocol = self.protocol or "" if self.state is STABLE else ""
        members = tuple(
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol) if protocol else b"",
                member.assignment,
            )
            for member in self.members
        )
        return ClassicDescription(self.state, self.protocol_type, protocol, members)

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def is_vacant(self) -> bool:
        """No members, and none to come."""
        return self.state is EMPTY and not self._pending

    def subscribed_among(self, topics: Set[str]) -> Set[str]:
        """All of them where it cannot be known: no consumers, or no generation yet."""
        if self.state is EMPTY:
            return frozenset()
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.state is PREPARING:
            return topics
        assert self.protocol is not None
        found: set[str] = set()
        for member in self.members:
            subscribed = subscribed_topics(member.metadata(self.protocol))
            if subscribed is None:
                return topics
            found |= topics & subscribed
        return found

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.state is EMPTY:
            return max(self.stored_at_ms, commit_timestamp_ms)
        knows_topics = self.state is STABLE and self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return commit_timestamp_ms if knows_topics else None

    def tombstones(self) -> list[GroupRecord]:
        """None as long as the group is not in the log."""
        return [GroupRecord(GroupMetadataKey(group=self.group_id), None)] if self.is_stored else []
