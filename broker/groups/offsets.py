"""The committed offsets of all groups in one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, KeysView, Mapping
from uuid import UUID

from broker.coordinator.memory import CoordinatorMemory, text_size
from broker.coordinator.outcome import FEW
from broker.groups.commit import CommitAnswer, CommitCheck, CommitRequest, Place
from broker.groups.group import MAX_TEXT_BYTES
from broker.groups.pending_offsets import PendingOffsets, pending_size
from broker.groups.records import GroupRecord
from protocol.errors import ErrorCode
from protocol.group_records import OffsetCommitKey, OffsetCommitValue

INT64_MAX = 2**63 - 1
#: What the record of an offset takes in a batch beside its strings, rounded up.
_RECORD_OVERHEAD_BYTES = 64
#: Pending offsets that are committed or dropped in one step.
ENDS_PER_STEP = 50
#: What an offset takes in memory beside its metadata, and what the first one of a topic, and of a group, takes more.
OFFSET_BYTES = 256
TOPIC_BYTES = 350
GROUP_BYTES = 400
#: Metadata that changes its length by a little takes no more.
_METADATA_STEP_BYTES = 64


class Offsets:
    """Only `replay`, `replay_pending` and `end_transaction` change it. An offset of an open transaction is pending: it
    is committed with the transaction, or never was.

    Invariants: every group in it has at least one offset, committed or pending, and every topic of `_groups` has a
    committed one. `_committed_bytes` is the size of the committed ones (broker.coordinator.memory).
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        #: How many offsets each topic has, committed or pending. No topic without offsets.
        self._topic_counts: Counter[UUID] = Counter()
        self._committed_bytes = 0
        self._pending = PendingOffsets()

    # -- reading -----------------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return self._committed_bytes + self._pending.size_bytes

    @property
    def group_ids(self) -> Iterable[str]:
        """Of all groups with offsets, also of those that have only pending ones."""
        pending = self._pending.group_ids
        return self._groups.keys() | pending if pending else self._groups.keys()

    @property
    def topic_ids(self) -> KeysView[UUID]:
        """The ids of all topics with offsets. The nil id stands for offsets whose record names no topic id."""
        return self._topic_counts.keys()

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups or self._pending.has_group(group_id)

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction commits an offset of the group."""
        return self._pending.has_group(group_id)

    def is_pending(self, group_id: str, place: Place) -> bool:
        """Whether an open transaction commits an offset here: it is not known which one will count."""
        return self._pending.has_place(group_id, place)

    def pending_places(self, group_id: str) -> frozenset[Place]:
        """Those for which `is_pending` holds."""
        return self._pending.places(group_id)

    def holds(self, group_id: str, place: Place) -> bool:
        """Whether an offset is committed or pending here."""
        return self.get(group_id, place) is not None or self.is_pending(group_id, place)

    def pending_groups(self, producer_id: int) -> Mapping[str, int]:
        """The groups of which the producer's transaction commits offsets, and how many."""
        return self._pending.counts_of(producer_id)

    def get(self, group_id: str, place: Place) -> OffsetCommitValue | None:
        """The committed offset."""
        return self._groups.get(group_id, {}).get(place.topic, {}).get(place.partition)

    def of_group_by_topic(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        """Topic -> partition -> its committed offset."""
        return self._groups.get(group_id, {})

    def of_group(self, group_id: str) -> Iterator[tuple[Place, OffsetCommitValue]]:
        """The committed offsets."""
        for topic, partitions in self._groups.get(group_id, {}).items():
            for partition, value in partitions.items():
                yield Place(topic, partition), value

    def all_of_group(self, group_id: str) -> Iterator[tuple[Place, OffsetCommitValue]]:
        """The committed and the pending offsets. A place may come more than once."""
        yield from self.of_group(group_id)
        yield from self._pending.of_group(group_id)

    # -- deciding ----------------------------------------------------------------------------------------

    def commit(
        self,
        request: CommitRequest,
        check: CommitCheck | None,
        now_ms: int,
        max_metadata_bytes: int,
        max_batch_bytes: int,
        memory: CoordinatorMemory,
    ) -> Generator[None, None, tuple[list[GroupRecord], CommitAnswer]]:
        """The records of a commit that its group allows. The whole commit is refused if it is too large for a batch.
        Offsets that are new, or whose metadata is longer than before, are refused if there is no memory for them. Those
        of a transaction take some while they are pending, and need room as committed ones already now."""
        expire_ms = min(now_ms + request.retention_ms, INT64_MAX) if request.retention_ms >= 0 else -1
        records: list[GroupRecord] = []
        errors: list[ErrorCode] = []
        size_bytes, group_bytes = 0, len(request.group_id.encode())
        added_bytes, topics = 0, set(self._groups.get(request.group_id, ()))
        for count, each in enumerate(request.offsets, 1):
            if count % FEW == 0:
                yield
            error = ErrorCode.NONE if check is None else check(each.topic_id, each.partition)
            if error != ErrorCode.NONE:
                errors.append(error)
                continue
            if len(each.metadata) > max_metadata_bytes or len(each.metadata.encode()) > MAX_TEXT_BYTES:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            place = Place(each.topic, each.partition)
            more_bytes = self._added_bytes(request.group_id, place, each.metadata, topics)
            if request.producer is not None:
                pending_bytes = self._added_pending_bytes(request, place, each.metadata)
                more_bytes = max(more_bytes, 0) + max(pending_bytes, 0)
            if more_bytes > 0 and not memory.has_room(added_bytes + more_bytes):
                errors.append(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                continue
            added_bytes += more_bytes
            topics.add(each.topic)
            errors.append(ErrorCode.NONE)
            value = OffsetCommitValue(
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                commit_timestamp_ms=now_ms,
                expire_timestamp_ms=expire_ms,
                topic_id=each.topic_id,
            )
            records.append(GroupRecord(_key(request.group_id, place), value))
            texts_bytes = group_bytes + len(each.topic.encode()) + len(each.metadata.encode())
            size_bytes += _RECORD_OVERHEAD_BYTES + texts_bytes
        if size_bytes > max_batch_bytes:
            return [], CommitAnswer(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, [])
        return records, CommitAnswer(ErrorCode.NONE, errors)

    def _added_bytes(self, group_id: str, place: Place, metadata: str, topics: Collection[str]) -> int:
        """How much more memory an offset takes than the one that it replaces. `topics`: those that the group has
        offsets of by now."""
        before = self.get(group_id, place)
        if before is not None:
            return _value_size(metadata) - _value_size(before.metadata)
        size_bytes = _value_size(metadata)
        if place.topic not in topics:
            size_bytes += _topic_size(place.topic) + (0 if topics else _group_size(group_id))
        return size_bytes

    def _added_pending_bytes(self, request: CommitRequest, place: Place, metadata: str) -> int:
        """How much more memory a pending offset takes than the one of the same transaction that it replaces."""
        assert request.producer is not None
        before = self._pending.get(request.group_id, place, request.producer[0])
        if before is not None:
            return text_size(metadata) - text_size(before.metadata)
        return pending_size(request.group_id, place, metadata)

    def tombstone(self, group_id: str, place: Place) -> GroupRecord:
        return GroupRecord(_key(group_id, place), None)

    def tombstones(self, group_id: str) -> Generator[None, None, list[GroupRecord]]:
        """Of all offsets of a group, pending ones included. They must not change meanwhile."""
        tombstones = {}
        for place, _ in self.all_of_group(group_id):
            tombstones[place] = self.tombstone(group_id, place)
            yield
        return list(tombstones.values())

    # -- state -------------------------------------------------------------------------------------------

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """A commit or a deletion without a transaction. What is pending there was written before, and counts no
        more."""
        place = Place(key.topic, key.partition)
        for producer_id in self._pending.producers_at(key.group, place):
            self._drop_pending(producer_id, key.group, place)
        self._set(key.group, place, value)

    def replay_pending(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        place = Place(key.topic, key.partition)
        self._drop_pending(producer_id, key.group, place)
        self._topic_counts[value.topic_id] += 1
        self._pending.add(producer_id, key.group, place, value)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> Iterator[None]:
        """In steps: the offsets that are pending of the producer now, before the first step, are committed, or
        dropped."""
        return self._end(producer_id, self._pending.places_of(producer_id), is_commit)

    def _end(self, producer_id: int, places: Iterable[tuple[str, Place]], is_commit: bool) -> Iterator[None]:
        for count, (group_id, place) in enumerate(places, 1):
            earlier = self._pending.producers_at(group_id, place)
            value = self._drop_pending(producer_id, group_id, place)
            if is_commit and value is not None:
                # What another transaction has written here before counts no more; what it has written later does.
                for other in earlier[: earlier.index(producer_id)]:
                    self._drop_pending(other, group_id, place)
                self._set(group_id, place, value)
            if count % ENDS_PER_STEP == 0:
                yield

    def _drop_pending(self, producer_id: int, group_id: str, place: Place) -> OffsetCommitValue | None:
        value = self._pending.drop(producer_id, group_id, place)
        if value is not None:
            self._count_topic_out(value.topic_id)
        return value

    def _count_topic_out(self, topic_id: UUID) -> None:
        self._topic_counts[topic_id] -= 1
        if not self._topic_counts[topic_id]:
            del self._topic_counts[topic_id]

    def _set(self, group_id: str, place: Place, value: OffsetCommitValue | None) -> None:
        """The committed offset; None: there is none."""
        before = self.get(group_id, place)
        if before is not None:
            self._count_topic_out(before.topic_id)
        if value is not None:
            topics = self._groups.setdefault(group_id, {})
            self._committed_bytes += self._added_bytes(group_id, place, value.metadata, topics)
            self._topic_counts[value.topic_id] += 1
            topics.setdefault(place.topic, {})[place.partition] = value
        elif before is not None:
            topics = self._groups[group_id]
            del topics[place.topic][place.partition]
            self._committed_bytes -= _value_size(before.metadata)
            if not topics[place.topic]:
                del topics[place.topic]
                self._committed_bytes -= _topic_size(place.topic)
            if not topics:
                del self._groups[group_id]
                self._committed_bytes -= _group_size(group_id)


def _value_size(metadata: str) -> int:
    return OFFSET_BYTES + -(-text_size(metadata) // _METADATA_STEP_BYTES) * _METADATA_STEP_BYTES


def _topic_size(topic: str) -> int:
    return TOPIC_BYTES + text_size(topic)


def _group_size(group_id: str) -> int:
    return GROUP_BYTES + text_size(group_id)


def _key(group_id: str, place: Place) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=place.topic, partition=place.partition)
