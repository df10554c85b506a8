"""The state of one partition of `__consumer_offsets`: groups by id, and their committed offsets.

Durable state changes in `replay` alone. Records of a decision are replayed when they are appended, and the whole log is
replayed when a node begins to lead the partition. The other methods decide or answer questions. None of them waits.

A simple group has offsets only: they were committed from outside, by a consumer that assigns partitions to itself or by
an admin tool. It has no records of its own, and it is not in `groups`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from broker.config.node_config import NodeConfig
from broker.coordinator.deadlines import Deadlines
from broker.coordinator.memory import CoordinatorMemory, unbounded
from broker.coordinator.outcome import FEW, Decided, Outcome
from broker.coordinator.ticket import Ticket
from broker.groups import consumer_shard
from broker.groups.classic_group import ClassicGroup
from broker.groups.classic_messages import ClassicDescription, JoinAnswer, JoinRequest
from broker.groups.classic_rebalance import MIN_INITIAL_DELAY_S, ClassicLimits
from broker.groups.classic_states import ClassicState
from broker.groups.commit import CommitAnswer, CommitCheck, CommitRequest, Place
from broker.groups.group import Group, check_group_id, check_texts
from broker.groups.offsets import Offsets
from broker.groups.records import GroupRecord
from broker.metadata.image import MetadataImage
from protocol.codec import at_once
from protocol.errors import ErrorCode, KafkaError
from protocol.group_records import RECORD_TYPES, GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from protocol.schema import NIL_UUID, Message

#: The protocol type of groups whose members say which topics they are subscribed to.
CONSUMER_PROTOCOL_TYPE = "consumer"

Deciding = Generator[None, None, Outcome[GroupRecord]]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: str
    group_type: str


class Shard:
    """`image` is the image of the node, which changes while the shard lives.

    Invariant: `_groups_bytes` is the sum of `_sizes`, which has the size of each group as of its last decision.
    """

    def __init__(
        self,
        config: NodeConfig,
        image: MetadataImage,
        rng: random.Random,
        max_batch_bytes: int,
        memory: CoordinatorMemory | None = None,
    ) -> None:
        """`memory`: of the node. None: no bound."""
        self.config = config
        self.memory = memory or unbounded()
        self.image = image
        self.rng = rng
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._max_batch_bytes = max_batch_bytes
        self._deadlines: Deadlines[str] = Deadlines()
        self._sizes: dict[str, int] = {}
        self._groups_bytes = 0

    @property
    def size_bytes(self) -> int:
        """What the groups and their offsets take in memory."""
        return self._groups_bytes + self.offsets.size_bytes

    # -- state -------------------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        _REPLAY[type(record.key)](self, record)

    def _replay_offset(self, record: GroupRecord) -> None:
        assert isinstance(record.key, OffsetCommitKey)
        assert record.value is None or isinstance(record.value, OffsetCommitValue)
        self.offsets.replay(record.key, record.value)

    def replay_pending(self, producer_id: int, record: GroupRecord) -> None:
        assert isinstance(record.key, OffsetCommitKey), "only offsets are written in transactions"
        assert isinstance(record.value, OffsetCommitValue), "no offset is deleted in a transaction"
        self.offsets.replay_pending(producer_id, record.key, record.value)

    def pending_keys(self, producer_id: int) -> Mapping[str, int]:
        return self.offsets.pending_groups(producer_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> Iterator[None]:
        return self.offsets.end_transaction(producer_id, is_commit=is_commit)

    def loaded(self, now: float, now_ms: int) -> Iterator[None]:
        """All of the log is replayed. The shard takes requests when these steps are done."""
        heard_until = now + self.config.stale_leader_ms / 1000
        for group in self.groups.values():
            group.loaded(now, heard_until)
            self._deadlines.set(group.group_id, group.next_deadline())
            yield from group.measure()
            self._update_size(group.group_id)
            yield

    # -- deadlines ---------------------------------------------------------------------------------------

    def update_deadline(self, group_id: str) -> None:
        """A decision about this group is carried out. Its deadline may have changed, and the group may be gone."""
        group = self.groups.get(group_id)
        deadline = None if group is None else group.next_deadline()
        if group is not None and deadline is None and not _exists(group):
            del self.groups[group_id]
        self._deadlines.set(group_id, deadline)
        self._update_size(group_id)

    def _update_size(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        before = self._sizes.pop(group_id, 0)
        if group is not None:
            self._sizes[group_id] = group.size_bytes
        self._groups_bytes += self._sizes.get(group_id, 0) - before

    def next_deadline(self) -> float | None:
        return self._deadlines.next()

    def take_due_keys(self, now: float, limit: int | None = None) -> list[str]:
        """At most `limit` of the groups whose deadline has come. The caller calls `expire` and `update_deadline` for
        each."""
        return self._deadlines.take_due(now, limit)

    def expire(self, group_id: str, now: float, now_ms: int) -> Decided[GroupRecord]:
        group = self.groups.get(group_id)
        return Outcome() if group is None else group.expire(now, now_ms)

    # -- offsets -----------------------------------------------------------------------------------------

    def commit_offsets(
        self, ticket: Ticket[CommitAnswer], request: CommitRequest, now: float, now_ms: int
    ) -> Decided[GroupRecord]:
        """Answer: CommitAnswer. Raises KafkaError if the group does not allow the commit."""
        steps = self._commit_offsets(ticket, request, now, now_ms)
        return at_once(steps) if len(request.offsets) <= FEW else steps

    def _commit_offsets(
        self, ticket: Ticket[CommitAnswer], request: CommitRequest, now: float, now_ms: int
    ) -> Deciding:
        check_group_id(request.group_id, may_be_empty=True)
        group = self.groups.get(request.group_id)
        check: CommitCheck | None = None
        if group is not None:
            check = group.check_commit(request, now)
        elif request.generation >= 0:
            is_simple = self.offsets.has_group(request.group_id)
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID if is_simple else ErrorCode.GROUP_ID_NOT_FOUND)
        records, answer = yield from self.offsets.commit(
            request,
            partial(self._check_topic, check),
            now_ms,
            self.config.offset_metadata_max_bytes,
            self._max_batch_bytes,
            self.memory,
        )
        outcome = Outcome(records, request.producer, request.check_append)
        return outcome.add_answer(ticket, answer)

    def _check_topic(self, check: CommitCheck | None, topic_id: UUID, partition: int) -> ErrorCode:
        """The topic was there when the request came, which may have waited since. An offset of a deleted topic would
        take the place of one of the topic that has the name by now."""
        if topic_id not in self.image.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if check is None else check(topic_id, partition)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Check that a member may fetch offsets. (None, -1) is a client that is no member. Raises KafkaError."""
        group = self.groups.get(group_id)
        if group is not None:
            group.check_fetch(member_id, member_epoch)

    def delete_offsets(self, ticket: Ticket[CommitAnswer], group_id: str, places: list[Place]) -> Deciding:
        """Answer: CommitAnswer. Deleting an offset that does not exist succeeds. Raises GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP."""
        group = self._existing_group(group_id)
        if group is not None and not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)  # The topics of its members are not known.
        kept: Set[str] = frozenset()
        if group is not None:
            kept = yield from group.subscribed_among({place.topic for place in places})
        errors: list[ErrorCode] = []
        # One record for each place, however often the request names it: every record holds the whole group id.
        tombstones: dict[Place, GroupRecord] = {}
        for place in places:
            yield
            is_kept = place.topic in kept
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_kept else ErrorCode.NONE)
            if not is_kept and place not in tombstones and self.offsets.holds(group_id, place):
                tombstones[place] = self.offsets.tombstone(group_id, place)
        answer = CommitAnswer(ErrorCode.NONE, errors)
        return Outcome(list(tombstones.values())).add_answer(ticket, answer)

    def expire_offsets(self, now_ms: int, group_id: str) -> Deciding:
        """Delete the offsets of a group that were not used for offsets.retention.minutes (KIP-211). An empty group is
        deleted with its last offset."""
        group = self.groups.get(group_id)
        retention_ms = self.config.offsets_retention_minutes * 60_000
        outcome: Outcome[GroupRecord] = Outcome()
        are_all_expired = True
        offsets = list(self.offsets.of_group(group_id))
        kept: Set[str] = frozenset()
        if group is not None:
            kept = yield from group.subscribed_among({place.topic for place, _ in offsets})
        for place, value in offsets:
            yield
            from_ms: int | None = value.commit_timestamp_ms
            if group is not None:
                from_ms = group.expires_from_ms(value.commit_timestamp_ms)
            if value.expire_timestamp_ms >= 0:
                is_expired = now_ms >= value.expire_timestamp_ms
            else:
                is_expired = from_ms is not None and now_ms - from_ms >= retention_ms
            if is_expired and place.topic not in kept and not self.offsets.is_pending(group_id, place):
                outcome.records.append(self.offsets.tombstone(group_id, place))
            else:
                are_all_expired = False
        has_offsets = not are_all_expired or self.offsets.has_pending(group_id)
        if group is not None and group.is_empty and not has_offsets:
            outcome.records += group.tombstones()
        return outcome

    # -- topics ------------------------------------------------------------------------------------------

    def has_offsets_of(self, topics: Set[UUID]) -> bool:
        """Whether a group may have offsets for one of these topics."""
        known = self.offsets.topic_ids
        return NIL_UUID in known or not known.isdisjoint(topics)

    def delete_topic_offsets(self, deleted: Mapping[UUID, str | None], group_id: str) -> Deciding:
        """Delete the offsets that a group has for deleted topics. The name of a topic finds offsets that were committed
        with a retention of their own and then loaded: that version of the record has no topic id. A tombstone names the
        place only. Where the topic that has the name by now has an offset, too, perhaps a pending one, it would be
        deleted as well: both stay for now."""
        names = set(deleted.values())
        tombstones: dict[Place, GroupRecord] = {}
        spared: set[Place] = set()
        for place, value in list(self.offsets.all_of_group(group_id)):
            if value.topic_id in deleted or (value.topic_id == NIL_UUID and place.topic in names):
                tombstones[place] = self.offsets.tombstone(group_id, place)
            else:
                spared.add(place)
            yield
        return Outcome([record for place, record in tombstones.items() if place not in spared])

    def unknown_topics(self) -> set[UUID]:
        """Topics with offsets that the image does not have. They are deleted, or newer than this node's image."""
        return self.offsets.topic_ids - self.image.topics.keys() - {NIL_UUID}

    # -- groups ------------------------------------------------------------------------------------------

    def group_ids(self) -> list[str]:
        """The ids of all groups, simple groups included."""
        return list(dict.fromkeys([*self.groups, *self.offsets.group_ids]))

    def listed(self, group_id: str) -> ListedGroup | None:
        """None: there is no such group."""
        group = self.groups.get(group_id)
        if group is not None and _exists(group):
            return ListedGroup(group_id, group.protocol_type, group.state, group.group_type)
        return ListedGroup(group_id, "", "Empty", "classic") if self.offsets.has_group(group_id) else None

    def delete_group(self, ticket: Ticket[ErrorCode], group_id: str) -> Deciding:
        """Delete the group and its offsets. Answer: ErrorCode. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._existing_group(group_id)
        if group is not None and not group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        records = yield from self.offsets.tombstones(group_id)
        records += [] if group is None else group.tombstones()
        return Outcome(records).add_answer(ticket, ErrorCode.NONE)

    def _existing_group(self, group_id: str) -> Group | None:
        """None: a simple group. Raises GROUP_ID_NOT_FOUND if there is no such group."""
        check_group_id(group_id, may_be_empty=True)
        group = self.groups.get(group_id)
        if group is not None and not _exists(group):
            group = None
        if group is None and not self.offsets.has_group(group_id):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        return group

    # -- the classic protocol ----------------------------------------------------------------------------

    def join(
        self, ticket: Ticket[JoinAnswer], group_id: str, request: JoinRequest, now: float, now_ms: int
    ) -> Outcome[GroupRecord]:
        """Answer: JoinAnswer, perhaps much later. Raises KafkaError."""
        check_group_id(group_id)
        check_texts(request.instance_id, request.protocol_type, *(name for name, _ in request.protocols))
        config = self.config
        shortest_ms, longest_ms = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.join(ticket, request, now, now_ms)
        if group is not None and not group.is_empty:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        successor = self._new_classic(group_id)
        outcome = successor.join(ticket, request, now, now_ms)
        if not successor.is_vacant:  # The join was not refused.
            if group is not None:
                outcome.records[:0] = group.tombstones()
            self.groups[group_id] = successor
        return outcome

    def classic(self, group_id: str) -> ClassicGroup:
        """The classic group that a member's request is about. Raises UNKNOWN_MEMBER_ID if there is none."""
        check_group_id(group_id)
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def describe_classic(self, group_id: str) -> ClassicDescription:
        """Raises GROUP_ID_NOT_FOUND if there is no such group, or if it is of the consumer protocol."""
        group = self._existing_group(group_id)
        if group is None:
            return ClassicDescription(ClassicState.EMPTY, "", "", ())
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        return group.describe()

    def _new_classic(self, group_id: str) -> ClassicGroup:
        limits = ClassicLimits(
            max(self.config.group_initial_rebalance_delay_ms / 1000, MIN_INITIAL_DELAY_S),
            self.config.group_max_size,
            self._max_batch_bytes,
            self.memory,
        )
        return ClassicGroup(group_id, limits, self.rng)

    def _replay_classic(self, record: GroupRecord) -> None:
        assert isinstance(record.key, GroupMetadataKey)
        group_id = record.key.group
        group = self.groups.get(group_id)
        if record.value is None:
            # A group that has changed to the consumer protocol stays.
            if isinstance(group, ClassicGroup):
                del self.groups[group_id]
            return
        if not isinstance(group, ClassicGroup):
            group = self.groups[group_id] = self._new_classic(group_id)
        group.replay(record)


_REPLAY: dict[type[Message], Callable[[Shard, GroupRecord], None]] = {
    OffsetCommitKey: Shard._replay_offset,
    GroupMetadataKey: Shard._replay_classic,
    **dict.fromkeys(consumer_shard.CONSUMER_KEYS, consumer_shard.replay),
}
assert _REPLAY.keys() == {key for key, _, _ in RECORD_TYPES.values()}, "what is decoded can be replayed"


def _exists(group: Group) -> bool:
    """False for a group of which there is only a member id that was given out to join with (KIP-394)."""
    return not group.is_empty or bool(group.tombstones())
