"""The durable state of one consumer group: what `__consumer_offsets` says about it. Only `replay` changes it."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from broker.groups.assignors import Assignment
from broker.groups.consumer_member import LEAVE_EPOCH, Member, Subscription
from broker.groups.consumer_records import target_of, with_assignment, with_metadata
from broker.groups.consumer_size import member_size, names_size
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
)


class ConsumerGroupState:
    """Compaction may have removed any record that a later one replaces. So the kinds of records are independent of each
    other: a member's assignment, for example, may come before the record of the member."""

    def __init__(self) -> None:
        self.members_bytes = 0
        """Size of `members`, their assignments not counted, and of `regexes` (broker.groups.consumer_size)."""
        self.epoch = 0
        self.metadata_hash = 0
        """Hash of the subscribed topics when the group epoch was last raised."""
        self.assignment_epoch = 0
        """The group epoch that `targets` was computed for. Invariant: not above `epoch`."""
        self._members: dict[str, Member] = {}
        self._targets: dict[str, Assignment] = {}
        self._regexes: dict[str, frozenset[str]] = {}
        #: Instance id -> member id, for the static members of `_members`.
        self._static_members: dict[str, str] = {}
        #: Topic id -> partition -> id of the member that owns it.
        self._owners: dict[UUID, dict[int, str]] = {}

    @property
    def members(self) -> Mapping[str, Member]:
        return self._members

    @property
    def targets(self) -> Mapping[str, Assignment]:
        return self._targets

    @property
    def regexes(self) -> Mapping[str, frozenset[str]]:
        """Expression -> the names of the topics that matched it last time."""
        return self._regexes

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self._static_members.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """The id of the member that owns a partition."""
        return self._owners.get(topic_id, {}).get(partition)

    def replay(self, record: GroupRecord) -> None:
        key, value = record.key, record.value
        match key:
            case ConsumerGroupMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupMetadataValue)
                self.epoch = 0 if value is None else value.epoch
                self.metadata_hash = 0 if value is None else value.metadata_hash
            case ConsumerGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
                self.assignment_epoch = 0 if value is None else value.assignment_epoch
            case ConsumerGroupRegularExpressionKey():
                assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
                old = self._regexes.pop(key.regular_expression, frozenset())
                self.members_bytes -= names_size(old)
                if value is not None:
                    self._regexes[key.regular_expression] = frozenset(value.topics)
                    self.members_bytes += names_size(value.topics)
            case ConsumerGroupMemberMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
                self._replay_member(key.member_id, value)
            case ConsumerGroupTargetAssignmentMemberKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                if value is None:
                    self._targets.pop(key.member_id, None)
                else:
                    self._targets[key.member_id] = target_of(value)
            case ConsumerGroupCurrentMemberAssignmentKey():
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                self._replay_assignment(key.member_id, value)

    def _replay_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        old = self._members.get(member_id)
        instance_id = None if old is None else old.subscription.instance_id
        if instance_id is not None and self._static_members.get(instance_id) == member_id:
            del self._static_members[instance_id]
        if old is not None:
            self.members_bytes -= member_size(member_id, old.subscription)
        if value is None:
            if old is not None:
                self._remove_ownership(old)
                del self._members[member_id]
            return
        member = with_metadata(old or Member(member_id), value)
        self._members[member_id] = member
        self.members_bytes += member_size(member_id, member.subscription)
        if member.subscription.instance_id is not None:
            self._static_members[member.subscription.instance_id] = member_id

    def _replay_assignment(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        old = self._members.get(member_id)
        if old is not None:
            self._remove_ownership(old)
        if value is None:
            if old is not None:
                self._members[member_id] = Member(member_id, old.subscription, LEAVE_EPOCH, LEAVE_EPOCH)
            return
        if old is None:
            self.members_bytes += member_size(member_id, Subscription())
        member = with_assignment(old or Member(member_id), value)
        self._members[member_id] = member
        for topic_id, partition in member.owned_partitions():
            self._owners.setdefault(topic_id, {})[partition] = member_id

    def _remove_ownership(self, member: Member) -> None:
        for topic_id, partition in member.owned_partitions():
            partitions = self._owners.get(topic_id, {})
            if partitions.get(partition) == member.member_id:
                del partitions[partition]
                if not partitions:
                    del self._owners[topic_id]
