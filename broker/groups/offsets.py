"""The committed offsets of all groups in one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, KeysView, Mapping
from typing import NamedTuple
from uuid import UUID

from broker.coordinator.outcome import FEW
from broker.groups.commit import CommitAnswer, CommitCheck, CommitRequest
from broker.groups.group import MAX_TEXT_BYTES
from broker.groups.memory import GroupMemory, text_size
from broker.groups.records import GroupRecord
from protocol.errors import ErrorCode
from protocol.group_records import OffsetCommitKey, OffsetCommitValue

INT64_MAX = 2**63 - 1
#: What the record of an offset takes in a batch beside its strings, rounded up.
_RECORD_OVERHEAD_BYTES = 64
#: What an offset takes in memory beside its metadata, and what the first one of a topic, and of a group, takes more.
OFFSET_BYTES = 256
TOPIC_BYTES = 350
GROUP_BYTES = 400
#: Metadata that changes its length by a little takes no more.
_METADATA_STEP_BYTES = 64


class Place(NamedTuple):
    """A partition of a topic, named by the topic's name: where an offset was committed."""

    topic: str
    partition: int


class Offsets:
    """Only `replay` changes it.

    Invariants: every group in it has at least one offset, and so has every topic of a group. `size_bytes` is the size
    of all of them (broker.groups.memory).
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        #: How many offsets each topic has. No topic without offsets.
        self._topic_counts: Counter[UUID] = Counter()
        self.size_bytes = 0

    # -- reading -----------------------------------------------------------------------------------------

    @property
    def group_ids(self) -> Iterable[str]:
        return self._groups.keys()

    @property
    def topic_ids(self) -> KeysView[UUID]:
        """The ids of all topics with offsets. The nil id stands for offsets whose record names no topic id."""
        return self._topic_counts.keys()

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def get(self, group_id: str, place: Place) -> OffsetCommitValue | None:
        return self._groups.get(group_id, {}).get(place.topic, {}).get(place.partition)

    def of_group_by_topic(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        """Topic -> partition -> its committed offset."""
        return self._groups.get(group_id, {})

    def of_group(self, group_id: str) -> Iterator[tuple[Place, OffsetCommitValue]]:
        for topic, partitions in self._groups.get(group_id, {}).items():
            for partition, value in partitions.items():
                yield Place(topic, partition), value

    # -- deciding ----------------------------------------------------------------------------------------

    def commit(
        self,
        request: CommitRequest,
        check: CommitCheck | None,
        now_ms: int,
        max_metadata_bytes: int,
        max_batch_bytes: int,
        memory: GroupMemory,
    ) -> Generator[None, None, tuple[list[GroupRecord], CommitAnswer]]:
        """The records of a commit that its group allows. The whole commit is refused if it is too large for a batch.
        Offsets that are new, or whose metadata is longer than before, are refused if there is no memory for them."""
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

    def tombstone(self, group_id: str, place: Place) -> GroupRecord:
        return GroupRecord(_key(group_id, place), None)

    def tombstones(self, group_id: str) -> Generator[None, None, list[GroupRecord]]:
        """Of all offsets of a group, which must not change meanwhile."""
        tombstones = []
        for place, _ in self.of_group(group_id):
            tombstones.append(self.tombstone(group_id, place))
            yield
        return tombstones

    # -- state -------------------------------------------------------------------------------------------

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        place = Place(key.topic, key.partition)
        before = self.get(key.group, place)
        if before is not None:
            self._topic_counts[before.topic_id] -= 1
            if not self._topic_counts[before.topic_id]:
                del self._topic_counts[before.topic_id]
        if value is not None:
            topics = self._groups.setdefault(key.group, {})
            self.size_bytes += self._added_bytes(key.group, place, value.metadata, topics)
            self._topic_counts[value.topic_id] += 1
            topics.setdefault(key.topic, {})[key.partition] = value
        elif before is not None:
            topics = self._groups[key.group]
            del topics[key.topic][key.partition]
            self.size_bytes -= _value_size(before.metadata)
            if not topics[key.topic]:
                del topics[key.topic]
                self.size_bytes -= _topic_size(key.topic)
            if not topics:
                del self._groups[key.group]
                self.size_bytes -= _group_size(key.group)


def _value_size(metadata: str) -> int:
    return OFFSET_BYTES + -(-text_size(metadata) // _METADATA_STEP_BYTES) * _METADATA_STEP_BYTES


def _topic_size(topic: str) -> int:
    return TOPIC_BYTES + text_size(topic)


def _group_size(group_id: str) -> int:
    return GROUP_BYTES + text_size(group_id)


def _key(group_id: str, place: Place) -> OffsetCommitKey:
    return OffsetCommitKey(group=group_id, topic=place.topic, partition=place.partition)
