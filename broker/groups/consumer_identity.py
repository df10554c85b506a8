"""Which member a request of a consumer group is of, and whether it may still speak for that member (KIP-848)."""

from __future__ import annotations

from uuid import UUID

from broker.groups.commit import CommitCheck, CommitRequest
from broker.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    Member,
    owns_only_assigned,
)
from broker.groups.consumer_requests import HeartbeatRequest
from broker.groups.consumer_state import ConsumerGroupState
from protocol.errors import ErrorCode, KafkaError


def existing_member(durable: ConsumerGroupState, group_id: str, member_id: str) -> Member:
    """Raises UNKNOWN_MEMBER_ID."""
    member = durable.members.get(member_id)
    if member is None:
        raise _unknown_member(group_id, member_id)
    return member


def identify_member(
    durable: ConsumerGroupState, request: HeartbeatRequest, max_members: int
) -> tuple[Member, str | None]:
    """The member that sends this heartbeat, which may be a new one. If a static member is back under another member id,
    the second value is the member id that it had before. Raises KafkaError."""
    joins = request.member_epoch == JOIN_EPOCH
    known = durable.members.get(request.member_id)
    if request.instance_id is not None:
        known = durable.static_member(request.instance_id)
        if known is not None and known.epoch == LEAVE_STATIC_EPOCH and joins:
            successor = Member(request.member_id, known.subscription, assigned=known.assigned)
            return successor, known.member_id
        check_instance(request, known, joins=joins)
    if known is not None:
        if not joins:
            _check_epoch(known, request)
        return known, None
    if not joins:
        raise _unknown_member(request.group_id, request.member_id)
    if len(durable.members) >= max_members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"{request.group_id} may have at most {max_members} members"
        )
    return Member(request.member_id), None


def check_instance(request: HeartbeatRequest, known: Member | None, *, joins: bool) -> None:
    """`known` is the member that the request's instance id belongs to. Raises KafkaError if it is not the sender."""
    if known is None:
        if not joins:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no instance {request.instance_id}")
    elif known.member_id != request.member_id:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID if joins else ErrorCode.FENCED_INSTANCE_ID,
            f"instance {request.instance_id} is member {known.member_id}",
        )


def _check_epoch(member: Member, request: HeartbeatRequest) -> None:
    """The previous epoch is accepted once more, from a member that owns only what is assigned to it. Such a member has
    missed the answer that named the new epoch."""
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    missed_answer = epoch == member.previous_epoch and epoch < member.epoch
    if missed_answer and owns_only_assigned(request.owned, member.assigned):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.member_id} is in epoch {member.epoch}, not {epoch}, and has to join again",
    )


def _unknown_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{group_id} has no member {member_id}")


def check_commit(durable: ConsumerGroupState, group_id: str, request: CommitRequest) -> CommitCheck | None:
    """`Group.check_commit`. A member that has not heard of its new epoch yet may commit for partitions that it had in
    the old one (KIP-1251)."""
    generation = request.generation
    if request.is_anonymous or (generation < 0 and not durable.members):
        return None
    member = existing_member(durable, group_id, request.member_id)
    if not request.knows_epochs:
        # The request names a generation of the classic protocol, even if the number equals a member epoch.
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if generation == member.epoch:
        return None
    if generation > member.epoch:
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def check(topic_id: UUID, partition: int) -> ErrorCode:
        epoch = member.assignment_epoch(topic_id, partition)
        may_commit = epoch is not None and epoch <= generation
        return ErrorCode.NONE if may_commit else ErrorCode.STALE_MEMBER_EPOCH

    return check


def check_fetch(durable: ConsumerGroupState, group_id: str, member_id: str | None, member_epoch: int) -> None:
    """`Group.check_fetch`."""
    if member_id is None and member_epoch < 0:
        return
    if member_epoch != existing_member(durable, group_id, member_id or "").epoch:
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)
