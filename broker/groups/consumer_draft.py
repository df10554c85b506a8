"""The changes of one decision about a consumer group. The group itself changes when their records are replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from uuid import UUID

from broker.groups import consumer_records as as_records
from broker.groups.assignors import ASSIGNORS, EMPTY, Assignment, MemberSpec
from broker.groups.consumer_member import Member, TopicsWanted
from broker.groups.consumer_size import topics_size
from broker.groups.consumer_state import ConsumerGroupState
from broker.groups.consumer_subscriptions import (
    MEMBERS_PER_STEP,
    Subscriptions,
    all_names,
    partition_counts,
    topic_names,
)
from broker.groups.records import GroupRecord
from broker.metadata.image import MetadataImage
from protocol.errors import ErrorCode, KafkaError

MAX_TARGET_IDS_BYTES = 4 << 20
"""How much of a batch the target assignments of all members may take, partitions not counted. The rest of the batch
(broker.coordinator.runtime) is for the partitions, a few bytes each, and for the other records of the decision."""
_TARGET_OVERHEAD_BYTES = 64

#: The steps of a decision. A group may have thousands of members, and a member ten thousand topics.
Steps = Generator[None, None, None]


class Draft:
    """The group after the decision. `records` lead there from the durable state, in an order that can be replayed."""

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
        #: What the topics that members are subscribed to make the group take in memory. None: not looked at.
        self.topics_bytes: int | None = None

    # -- members -----------------------------------------------------------------------------------------

    def put_member(self, member: Member) -> None:
        """Add a member, or change its subscription. Raises KafkaError if there is no room for another one."""
        if member.member_id not in self.members:
            self._check_room_for(member.member_id)
        self.members[member.member_id] = member
        self.records.append(as_records.member_record(self._group_id, member))

    def _check_room_for(self, member_id: str) -> None:
        """A decision may change the target of every member. It is one batch, because a coordinator that loads the group
        must not see half of it."""
        ids_bytes = sum(len(each.encode()) for each in (*self.members, member_id))
        each_bytes = len(self._group_id.encode()) + _TARGET_OVERHEAD_BYTES
        if ids_bytes + each_bytes * (len(self.members) + 1) > MAX_TARGET_IDS_BYTES:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"{self._group_id} has no room for more ids")

    def replace_member(self, member_id: str, successor: Member) -> None:
        """A static member is back under another member id. It gets the same partitions."""
        target = self.targets.pop(member_id, EMPTY)
        self._delete_member(member_id)
        self.put_member(successor)
        self._set_target(successor.member_id, target)

    def put_assignment(self, member: Member) -> None:
        """Change the epoch, the state or the partitions of a member."""
        self.members[member.member_id] = member
        self.records.append(as_records.assignment_record(self._group_id, member))

    def remove_members(self, member_ids: Iterable[str]) -> Steps:
        """Does not compute the target of the members that are left."""
        for member_id in member_ids:
            self._delete_member(member_id)
            self.targets.pop(member_id, None)
        self._drop_unused_regexes()
        yield from self.raise_epoch(must=True)

    def _delete_member(self, member_id: str) -> None:
        del self.members[member_id]
        self.records += as_records.member_tombstones(self._group_id, member_id)

    # -- subscriptions -----------------------------------------------------------------------------------

    def use_regexes(self, now: float) -> None:
        """Called if members may use other expressions than before, or if topics may have changed."""
        used = self._drop_unused_regexes()
        self._subscriptions.use_regexes(used, self._regexes.keys(), now)

    def match_regexes(self, now: float, now_ms: int) -> Steps:
        """Match pending expressions with the topics, as many as one decision may."""
        self.use_regexes(now)
        changed = yield from self._subscriptions.match_regexes(self._regexes)
        for regex, names in changed.items():
            self._regexes[regex] = names
            version = self._image.end_offset
            self.records.append(as_records.regex_record(self._group_id, regex, names, version, now_ms))

    @property
    def has_new_regexes(self) -> bool:
        """A member uses an expression that was never matched."""
        used = {member.subscription.topic_regex for member in self.members.values()} - {""}
        return not used <= self._regexes.keys()

    def _drop_unused_regexes(self) -> set[str]:
        """Returns the expressions that members use."""
        used = {member.subscription.topic_regex for member in self.members.values()} - {""}
        for regex in self._regexes.keys() - used:
            del self._regexes[regex]
            self.records.append(as_records.regex_tombstone(self._group_id, regex))
        return used

    def raise_epoch(self, *, must: bool) -> Steps:
        """Raise the group epoch if `must`, or if the subscribed topics have changed since it was last raised."""
        names = yield from all_names(self.members.values(), self._regexes)
        metadata_hash = yield from self._subscriptions.hash_topics(names)
        self.topics_bytes = yield from topics_size(self.members, self._regexes.keys(), names, self._image)
        if must or metadata_hash != self._metadata_hash:
            self.epoch += 1
            self._metadata_hash = metadata_hash
            self.records.append(as_records.epoch_record(self._group_id, self.epoch, metadata_hash))

    # -- the target assignment ---------------------------------------------------------------------------

    def compute_target(self, now_ms: int) -> Steps:
        """Compute the target assignment of every member for the group epoch."""
        ids: dict[TopicsWanted, frozenset[UUID]] = {}
        counts: dict[UUID, int] = {}
        members: dict[str, MemberSpec] = {}
        for count, (member_id, member) in enumerate(self.members.items()):
            wanted = member.subscription.topics
            if wanted not in ids:
                found = yield from partition_counts(topic_names(wanted, self._regexes), self._image)
                ids[wanted] = frozenset(found)
                counts.update(found)
            members[member_id] = MemberSpec(
                ids[wanted], member.subscription.instance_id, self.targets.get(member_id)
            )
            if count % MEMBERS_PER_STEP == 0:
                yield
        assign = ASSIGNORS[assignor_of(self.members.values(), self._assignors)]
        targets = yield from assign(members, counts)
        for count, (member_id, target) in enumerate(targets.items()):
            if target != self.targets.get(member_id):
                self._set_target(member_id, target)
            if count % MEMBERS_PER_STEP == 0:
                yield
        self.assignment_epoch = self.epoch
        self.records.append(as_records.assignment_epoch_record(self._group_id, self.epoch, now_ms))

    def _set_target(self, member_id: str, target: Assignment) -> None:
        self.targets[member_id] = target
        self.records.append(as_records.target_record(self._group_id, member_id, target))


def assignor_of(members: Iterable[Member], offered: Sequence[str]) -> str:
    """The offered assignor that most members ask for. Of several, the one that is offered first."""
    votes = Counter(member.subscription.server_assignor for member in members)
    return max(offered, key=lambda name: votes[name])
