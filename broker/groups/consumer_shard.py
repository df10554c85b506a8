"""The consumer protocol in a shard: which group a request or a record is for, and when a group is created."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from broker.coordinator.outcome import Decided, Outcome
from broker.coordinator.ticket import Ticket
from broker.groups.consumer_group import ConsumerGroup
from broker.groups.consumer_member import JOIN_EPOCH
from broker.groups.consumer_requests import GroupDescription, HeartbeatAnswer, HeartbeatRequest, check_request
from broker.groups.group import check_group_id
from broker.groups.records import GroupRecord
from protocol.errors import ErrorCode, KafkaError
from protocol.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)

if TYPE_CHECKING:
    from broker.groups.shard import Shard

Deciding = Generator[None, None, Outcome[GroupRecord]]

CONSUMER_KEYS = (
    ConsumerGroupMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)


def heartbeat(
    shard: Shard, ticket: Ticket[HeartbeatAnswer], request: HeartbeatRequest, now: float, now_ms: int
) -> Decided[GroupRecord]:
    """Answer: HeartbeatAnswer. A refusal is one, too, because it has a message."""
    try:
        check_request(request, shard.config.consumer_assignors)
        check_group_id(request.group_id)
        decided = _heartbeat(shard, ticket, request, now, now_ms)
    except KafkaError as refused:
        return _refusal(ticket, refused)
    return decided if isinstance(decided, Outcome) else _answering_refusal(ticket, decided)


def _answering_refusal(ticket: Ticket[HeartbeatAnswer], steps: Deciding) -> Deciding:
    try:
        return (yield from steps)
    except KafkaError as refused:
        return _refusal(ticket, refused)


def _refusal(ticket: Ticket[HeartbeatAnswer], refused: KafkaError) -> Outcome[GroupRecord]:
    return Outcome[GroupRecord]().add_answer(ticket, HeartbeatAnswer(refused.code, refused.message))


def _heartbeat(
    shard: Shard, ticket: Ticket[HeartbeatAnswer], request: HeartbeatRequest, now: float, now_ms: int
) -> Decided[GroupRecord]:
    """A member that joins an empty group of the classic protocol makes it a consumer group. Its offsets stay."""
    existing = shard.groups.get(request.group_id)
    if isinstance(existing, ConsumerGroup):
        return existing.heartbeat(ticket, request, now, now_ms)
    if request.member_epoch != JOIN_EPOCH or (existing is not None and not existing.is_empty):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {request.group_id}")
    return _create(shard, ticket, request, now, now_ms)


def _create(
    shard: Shard, ticket: Ticket[HeartbeatAnswer], request: HeartbeatRequest, now: float, now_ms: int
) -> Deciding:
    existing = shard.groups.get(request.group_id)
    group = ConsumerGroup(request.group_id, shard.config, shard.image, shard.memory)
    decided = group.heartbeat(ticket, request, now, now_ms)
    outcome = decided if isinstance(decided, Outcome) else (yield from decided)
    if existing is not None:
        outcome.records[:0] = existing.tombstones()
    shard.groups[request.group_id] = group
    return outcome


def describe(shard: Shard, group_id: str) -> GroupDescription:
    """Raises GROUP_ID_NOT_FOUND if there is no such group, or if it is of the classic protocol."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id}")
    return group.describe()


def replay(shard: Shard, record: GroupRecord) -> None:
    key = record.key
    assert isinstance(key, CONSUMER_KEYS)
    group = shard.groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if record.value is None:
            return
        group = shard.groups[key.group_id] = ConsumerGroup(
            key.group_id, shard.config, shard.image, shard.memory
        )
    group.replay(record)
    if record.value is None and isinstance(key, ConsumerGroupMetadataKey):
        del shard.groups[key.group_id]
