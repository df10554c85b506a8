"""What one decision does to a consumer group, step by step. The group itself changes when the records are replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from broker.groups import consumer_records as as_records
from broker.groups.assignors import ASSIGNORS, EMPTY, Assignment, MemberSpec
from broker.groups.consumer_member import Member
from broker.groups.consumer_state import ConsumerGroupState
from broker.groups.consumer_subscriptions import Subscriptions, all_names, topic_ids, topic_names
from broker.groups.records import GroupRecord
from broker.metadata.image import MetadataImage
from protocol.errors import ErrorCode, KafkaError

MAX_TARGET_IDS_BYTES = 4 << 20
"""What a target for all members takes in the log beside their partitions, which are a few bytes each. The rest of a
batch (broker.coordinator.runtime) is for these, and for whatever else a decision brings about."""
_TARGET_OVERHEAD_BYTES = 64


class Draft:
    """`records` lead from the group as it was to the group as this shows it, in an order that can be replayed."""

    def __init__(
        self,
        group_id: str,
        durable: ConsumerGroupState,
        subscriptions: Subscriptions,
        image: MetadataImage,
        assignors: Sequence[str],
    ) -> None:
        self._group_id = group_id
        self._subscriptions = subscriptions
        self._image = image
        self._assignors = assignors
        self.members = dict(durable.members)
        self.targets = dict(durable.targets)
        self.epoch = durable.epoch
        self.assignment_epoch = durable.assignment_epoch
        self._metadata_hash = durable.metadata_hash
        self._regexes = dict(durable.regexes)
        self.records: list[GroupRecord] = []

    # -- members -----------------------------------------------------------------------------------------

    def put(self, member: Member) -> None:
        """A new member, or a new subscription of one. Raises KafkaError where there is no room for another one."""
        if member.member_id not in self.members:
            self._check_room_for(member.member_id)
        self.members[member.member_id] = member
        self.records.append(as_records.member_record(self._group_id, member))

    def _check_room_for(self, member_id: str) -> None:
        """A target may be another for all members, and whoever loads it must not see half of it: it is one batch."""
        ids_bytes = sum(len(each.encode()) for each in (*self.members, member_id))
        each_bytes = len(self._group_id.encode()) + _TARGET_OVERHEAD_BYTES
        if ids_bytes + each_bytes * (len(self.members) + 1) > MAX_TARGET_IDS_BYTES:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{self._group_id} has no room for more ids")

    def replace(self, member_id: str, successor: Member) -> None:
        """A static member is back under another member id, to the same partitions."""
        target = self.targets.pop(member_id, EMPTY)
        self._bury(member_id)
        self.put(successor)
        self._aim(successor.member_id, target)

    def step(self, member: Member) -> None:
        """What a member has is another."""
        self.members[member.member_id] = member
        self.records.append(as_records.assignment_record(self._group_id, member))

    def remove(self, member_ids: Iterable[str]) -> None:
        """The target for those who are left is for somebody else to compute."""
        for member_id in member_ids:
            self._bury(member_id)
            self.targets.pop(member_id, None)
        self._drop_unused_regexes()
        self.raise_epoch(must=True)

    def _bury(self, member_id: str) -> None:
        del self.members[member_id]
        self.records += as_records.member_tombstones(self._group_id, member_id)

    # -- what they want ----------------------------------------------------------------------------------

    def use_regexes(self, now: float) -> None:
        """Members may use other expressions, or there may be other topics."""
        used = self._drop_unused_regexes()
        self._subscriptions.use(used, self._regexes.keys(), now)

    def match(self, now: float, now_ms: int) -> None:
        """Bring expressions up to date with the topics there are, as far as one decision may."""
        self.use_regexes(now)
        for regex, names in self._subscriptions.match(self._regexes).items():
            self._regexes[regex] = names
            version = self._image.end_offset
            self.records.append(as_records.regex_record(self._group_id, regex, names, version, now_ms))

    @property
    def has_new_regexes(self) -> bool:
        """Somebody uses an expression of which nobody has looked yet what matches."""
        used = {member.subscription.topic_regex for member in self.members.values()} - {""}
        return not used <= self._regexes.keys()

    def _drop_unused_regexes(self) -> set[str]:
        """Returns those that are used."""
        used = {member.subscription.topic_regex for member in self.members.values()} - {""}
        for regex in self._regexes.keys() - used:
            del self._regexes[regex]
            self.records.append(as_records.regex_tombstone(self._group_id, regex))
        return used

    def raise_epoch(self, *, must: bool) -> None:
        """`must`, or where the topics are others than at the last time."""
        names = all_names(self.members.values(), self._regexes)
        metadata_hash = self._subscriptions.look(names)
        if must or metadata_hash != self._metadata_hash:
            self.epoch += 1
            self._metadata_hash = metadata_hash
            self.records.append(as_records.epoch_record(self._group_id, self.epoch, metadata_hash))

    # -- what they are to have ---------------------------------------------------------------------------

    def assign(self, now_ms: int) -> None:
        """Compute the target anew."""
        ids = {
            wanted: topic_ids(topic_names(wanted, self._regexes), self._image)
            for wanted in {member.subscription.topics for member in self.members.values()}
        }
        members = {
            member_id: MemberSpec(
                ids[member.subscription.topics], member.subscription.instance_id, self.targets.get(member_id)
            )
            for member_id, member in self.members.items()
        }
        topics = frozenset().union(*ids.values())
        counts = {topic_id: len(self._image.topics[topic_id].partitions) for topic_id in topics}
        assign = ASSIGNORS[assignor_of(self.members.values(), self._assignors)]
        for member_id, target in assign(members, counts).items():
            if target != self.targets.get(member_id):
                self._aim(member_id, target)
        self.assignment_epoch = self.epoch
        self.records.append(as_records.assignment_epoch_record(self._group_id, self.epoch, now_ms))

    def _aim(self, member_id: str, target: Assignment) -> None:
        self.targets[member_id] = target
        self.records.append(as_records.target_record(self._group_id, member_id, target))


def assignor_of(members: Iterable[Member], offered: Sequence[str]) -> str:
    """The one that most members ask for of those that are offered, and the first of those that as many ask for."""
    votes = Counter(member.subscription.server_assignor for member in members)
    return max(offered, key=lambda name: votes[name])
