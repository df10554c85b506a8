"""The state of a consumer group as records of `__consumer_offsets`: Kafka's record types 3, 5 to 8, and 16."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from broker.groups.assignors import Assignment
from broker.groups.consumer_member import Member, MemberState, Owned, Subscription
from broker.groups.records import GroupRecord
from protocol.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    OwnedPartitions,
    TopicPartitions,
)

# -- the group -------------------------------------------------------------------------------------------------


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def assignment_epoch_record(group_id: str, epoch: int, now_ms: int) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp_ms=now_ms),
    )


def regex_record(group_id: str, regex: str, topics: Iterable[str], version: int, now_ms: int) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp_ms=now_ms),
    )


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def group_tombstones(group_id: str) -> list[GroupRecord]:
    """Of the records of the group itself. They go behind the tombstones of its members and expressions."""
    return [
        GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


# -- a member --------------------------------------------------------------------------------------------------


def member_record(group_id: str, member: Member) -> GroupRecord:
    subscription = member.subscription
    return GroupRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=subscription.instance_id,
            rack_id=subscription.rack_id,
            client_id=subscription.client_id,
            client_host=subscription.client_host,
            subscribed_topic_names=list(subscription.topic_names),
            subscribed_topic_regex=subscription.topic_regex,
            rebalance_timeout_ms=subscription.rebalance_timeout_ms,
            server_assignor=subscription.server_assignor,
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(target[topic_id]))
                for topic_id in sorted(target)
            ]
        ),
    )


def assignment_record(group_id: str, member: Member) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state,
            assigned_partitions=_owned_partitions(member.assigned),
            partitions_pending_revocation=_owned_partitions(member.revoking),
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    return [
        GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


# -- from records ----------------------------------------------------------------------------------------------


def with_metadata(member: Member, value: ConsumerGroupMemberMetadataValue) -> Member:
    subscription = Subscription(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=tuple(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
    )
    return replace(member, subscription=subscription)


def with_assignment(member: Member, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_owned(value.assigned_partitions, value.member_epoch),
        revoking=_owned(value.partitions_pending_revocation, value.member_epoch),
    )


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}


def _owned_partitions(owned: Owned) -> list[OwnedPartitions]:
    result = []
    for topic_id in sorted(owned):
        partitions = sorted(owned[topic_id])
        epochs = [owned[topic_id][partition] for partition in partitions]
        result.append(OwnedPartitions(topic_id=topic_id, partitions=partitions, assignment_epochs=epochs))
    return result


def _owned(topics: list[OwnedPartitions], member_epoch: int) -> Owned:
    """Kafka before 4.3 wrote no assignment epochs. The epoch of the member stands for them, which is the strictest."""
    result: dict[UUID, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        result[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return result
