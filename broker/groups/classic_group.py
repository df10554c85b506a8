"""One group of the classic protocol: the requests of its members, and its deadlines.

Each method is one event and gives an `Outcome`. The table in classic_states.py says what each event does in each state.

The durable state (members, their assignments, and their generation) changes in `replay` alone. The state of a rebalance
(who has joined, which requests are parked, and the deadlines) is lost with this node's leadership. The next coordinator
continues from the last generation that had an assignment. A member of a later generation is told ILLEGAL_GENERATION or
UNKNOWN_MEMBER_ID, and joins again.
"""

from __future__ import annotations

from collections.abc import Generator, Set

from broker.coordinator.outcome import FEW, Decided, Outcome
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
from broker.groups.classic_rebalance import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    Rebalance,
    Transition,
    pending_size,
)
from broker.groups.classic_subscription import subscribed_topics
from broker.groups.commit import CommitRequest
from broker.groups.records import GroupRecord
from broker.metadata.ids import random_uuid
from protocol.codec import at_once
from protocol.errors import ErrorCode, KafkaError
from protocol.group_records import GroupMetadataKey

CONSUMER_PROTOCOL_TYPE = "consumer"
#: How many characters of a client or instance id a member id begins with. A record must be able to hold the member id.
MAX_NAME_IN_ID = 4096


class ClassicGroup(Rebalance):
    """A parked ticket comes back in the `answers` of a later outcome, and nowhere else."""

    group_type = "classic"

    # -- join -----------------------------------------------------------------------------------------------

    def join(
        self, ticket: Ticket[JoinAnswer], request: JoinRequest, now: float, now_ms: int
    ) -> Outcome[GroupRecord]:
        transition = Transition(now, now_ms)
        # Static members join without a pending id.
        is_pending = request.member_id in self._pending and request.instance_id is None
        if is_pending:
            self._drop_pending(request.member_id)
        refusal = self._why_not_join(request, pending_size(request.member_id) if is_pending else 0)
        if refusal != ErrorCode.NONE:
            transition.answer(ticket, JoinAnswer(refusal))
            self._rebalance_or_complete_join(transition, len(self.members))
        elif is_pending:
            self._add_member(transition, request.member_id, ticket, request)
        elif request.member_id:
            self._rejoin(transition, ticket, request)
        else:
            self._join_without_id(transition, ticket, request)
        return transition.outcome

    def _why_not_join(self, request: JoinRequest, freed_bytes: int) -> ErrorCode:
        """`freed_bytes`: what its pending id took in memory until now."""
        if not request.protocol_type or not self.members.support_one_of(request.protocols):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if len(self.members) and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        known = self.members.get(request.member_id)
        if known is None and request.instance_id is not None:
            known = self.members.get(self.members.of_instance(request.instance_id) or "")
        if known is None and len(self.members) >= self._limits.max_members:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        added_bytes = Member.of_request(request.member_id, request).size_bytes() - freed_bytes
        added_bytes -= 0 if known is None else known.size_bytes(b"")
        return (
            ErrorCode.NONE if self._limits.memory.has_room(added_bytes) else ErrorCode.GROUP_MAX_SIZE_REACHED
        )

    def _join_without_id(
        self, transition: Transition, ticket: Ticket[JoinAnswer], request: JoinRequest
    ) -> None:
        if request.instance_id is not None:
            member_id = self._new_id(request.instance_id)
            predecessor = self.members.of_instance(request.instance_id)
            if predecessor is None:
                self._add_member(transition, member_id, ticket, request)
            else:
                self._replace_static_member(transition, self.members[predecessor], member_id, ticket, request)
            return
        member_id = self._new_id(request.client_id)
        if request.takes_id_first:
            self._add_pending(member_id, transition.now + request.session_timeout_ms / 1000)
            transition.answer(ticket, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add_member(transition, member_id, ticket, request)

    def _new_id(self, name: str) -> str:
        return f"{name[:MAX_NAME_IN_ID]}-{random_uuid(self._rng)}"

    def _rejoin(self, transition: Transition, ticket: Ticket[JoinAnswer], request: JoinRequest) -> None:
        member_id = request.member_id
        error = self._why_not_member(member_id, request.instance_id)
        if error != ErrorCode.NONE:
            transition.answer(ticket, JoinAnswer(error, member_id))
            return
        member = self.members[member_id]
        # A member that joins again with the same protocols may have missed the answer, so it gets it once more. But the
        # leader of a stable group joins again because it wants a new assignment.
        is_repeated = self.state is COMPLETING or (self.state is STABLE and member_id != self.leader)
        if is_repeated and member.protocols == request.protocols:
            self._renew_session(member_id, transition.now)
            transition.answer(ticket, self._join_answer(member))
            return
        self.members.update(member, request)
        self._begin_rebalance(transition, (member_id, ticket))

    def _replace_static_member(
        self,
        transition: Transition,
        member: Member,
        member_id: str,
        ticket: Ticket[JoinAnswer],
        request: JoinRequest,
    ) -> None:
        """A static member is back, and takes its place in the group under a new member id (KIP-345)."""
        predecessor, leader = member.member_id, self.leader
        self._answer_parked(transition, predecessor, ErrorCode.FENCED_INSTANCE_ID)
        self._sessions.set(predecessor, None)
        if predecessor in self._unsynced:
            self._unsynced.remove(predecessor)
            self._unsynced.add(member_id)
        if leader == predecessor:
            self.leader = member_id
        self.members.rename(member, member_id)
        self.members.update(member, request)
        record = None
        if self.state is STABLE and self.members.choose_protocol() == self.protocol:
            record = self._group_record(self.generation_id, transition.now_ms, self.members.assignments())
        if record is None or not self._fits_into_batch(record):
            transition.outcome.records += self._renamed_record(predecessor, member_id, transition.now_ms)
            self._begin_rebalance(transition, (member_id, ticket))
            return
        transition.outcome.records.append(record)
        self._renew_session(member_id, transition.now)
        answer = self._join_answer(member, skip_assignment=True)
        if not request.may_skip_assignment:
            # This client does not know skip_assignment. As leader it would send an assignment that no member asks for.
            # So it is told the member id that the leader had before.
            answer = JoinAnswer(
                ErrorCode.NONE, member_id, self.generation_id, self.protocol_type, self.protocol, leader or ""
            )
        transition.answer(ticket, answer)

    # -- the other requests ---------------------------------------------------------------------------------

    def sync(
        self, ticket: Ticket[SyncAnswer], request: SyncRequest, now: float, now_ms: int
    ) -> Outcome[GroupRecord]:
        transition = Transition(now, now_ms)
        error = self._why_not_sync(request)
        if error != ErrorCode.NONE:
            transition.answer(ticket, SyncAnswer(error))
            return transition.outcome
        self._unsynced.discard(request.member_id)
        if not self._unsynced:
            self._phase_ends = None
        if self.state is STABLE:
            self._renew_session(request.member_id, now)
            transition.answer(ticket, self._sync_answer(self.members[request.member_id].assignment))
            return transition.outcome
        self._park_sync(transition, request.member_id, ticket)
        if request.member_id == self.leader:
            self._store_assignment(transition, request.assignments)
        return transition.outcome

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
            self._renew_session(member_id, now)
            if self.state is PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        return Outcome[GroupRecord]().add_answer(ticket, HeartbeatAnswer(error))

    def leave(
        self, ticket: Ticket[LeaveAnswer], leavers: tuple[Leaver, ...], now: float, now_ms: int
    ) -> Decided[GroupRecord]:
        steps = self._leave_all(ticket, leavers, Transition(now, now_ms))
        return at_once(steps) if len(leavers) <= FEW else steps

    def _leave_all(
        self, ticket: Ticket[LeaveAnswer], leavers: tuple[Leaver, ...], transition: Transition
    ) -> Generator[None, None, Outcome[GroupRecord]]:
        size_before = len(self.members)
        left: list[tuple[Leaver, ErrorCode]] = []
        for leaver in leavers:
            left.append((leaver, self._leave(transition, leaver)))
            yield
        self._rebalance_or_complete_join(transition, size_before)
        transition.answer(ticket, LeaveAnswer(ErrorCode.NONE, tuple(left)))
        return transition.outcome

    def _leave(self, transition: Transition, leaver: Leaver) -> ErrorCode:
        member_id = leaver.member_id
        if not member_id and leaver.instance_id is not None:
            member_id = self.members.of_instance(leaver.instance_id) or ""
        if member_id in self._pending:
            self._drop_pending(member_id)
            return ErrorCode.NONE
        error = self._why_not_member(member_id, leaver.instance_id)
        if error == ErrorCode.NONE:
            self._remove_member(transition, member_id)
        return error

    def check_commit(self, request: CommitRequest, now: float) -> None:
        if request.is_anonymous or (request.generation < 0 and self.is_empty):
            return  # An admin tool, or a consumer that assigns partitions to itself.
        error = self._why_not_member(request.member_id, request.instance_id, request.generation)
        if error != ErrorCode.NONE:
            raise KafkaError(error)
        self._renew_session(request.member_id, now)
        if self.state is COMPLETING and request.producer is None:
            # The leader is assigning the partitions. (In a transaction, the generation fences.)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Everybody may. Only the consumer protocol checks the member."""

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
        times = [time for time in (self._sessions.next(), self._phase_ends) if time is not None]
        return min(times, default=None)

    def expire(self, now: float, now_ms: int) -> Outcome[GroupRecord]:
        transition = Transition(now, now_ms)
        size_before = len(self.members)
        for member_id in self._sessions.take_due(now):
            if member_id in self._pending:
                self._drop_pending(member_id)
            else:
                self._remove_member(transition, member_id)
        self._rebalance_or_complete_join(transition, size_before)
        if self._phase_ends is not None and self._phase_ends <= now:
            self._phase_timed_out(transition)
        return transition.outcome

    # -- questions ------------------------------------------------------------------------------------------

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
        """No members, and no member id was given out."""
        return self.state is EMPTY and not self._pending

    def subscribed_among(self, topics: Set[str]) -> Generator[None, None, Set[str]]:
        """All topics if the subscriptions are not known: the members are not consumers, or have no generation yet."""
        if self.state is EMPTY:
            return frozenset()
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.state is PREPARING:
            return topics
        assert self.protocol is not None
        found: set[str] = set()
        for member in self.members:
            yield
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
        """Empty as long as the group is not in the log."""
        return [GroupRecord(GroupMetadataKey(group=self.group_id), None)] if self.is_stored else []
