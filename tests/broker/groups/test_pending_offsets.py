"""Offsets that are committed with a transaction: they count when it is committed, whatever is read meanwhile."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from broker.coordinator.memory import CoordinatorMemory
from broker.groups.commit import CommitRequest, OffsetToCommit, Place
from broker.groups.offsets import ENDS_PER_STEP, Offsets
from broker.groups.pending_offsets import pending_size
from protocol.codec import at_once
from protocol.errors import ErrorCode
from protocol.group_records import OffsetCommitKey, OffsetCommitValue

PLACE = Place("foo", 0)
KEY = OffsetCommitKey(group="g", topic="foo", partition=0)


def value(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, commit_timestamp_ms=1)


def committed(offsets: Offsets, place: Place = PLACE) -> int | None:
    found = offsets.get("g", place)
    return None if found is None else found.offset


def test_a_pending_offset_counts_when_its_transaction_is_committed() -> None:
    offsets = Offsets()
    offsets.replay(KEY, value(1))
    offsets.replay_pending(7, KEY, value(2))
    assert committed(offsets) == 1
    assert offsets.is_pending("g", PLACE) and offsets.has_pending("g")
    list(offsets.end_transaction(7, is_commit=True))
    assert committed(offsets) == 2
    assert not offsets.is_pending("g", PLACE) and not offsets.has_pending("g")


def test_a_pending_offset_of_an_aborted_transaction_never_was() -> None:
    offsets = Offsets()
    offsets.replay_pending(7, KEY, value(2))
    assert offsets.has_group("g"), "a group whose first commit is pending"
    list(offsets.end_transaction(7, is_commit=False))
    assert committed(offsets) is None
    assert not offsets.has_group("g")


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("later", [3, None])
def test_a_later_commit_or_deletion_without_a_transaction_takes_its_place(
    later: int | None, is_commit: bool
) -> None:
    offsets = Offsets()
    offsets.replay_pending(7, KEY, value(2))
    offsets.replay(KEY, None if later is None else value(later))
    assert not offsets.is_pending("g", PLACE)
    list(offsets.end_transaction(7, is_commit=is_commit))
    assert committed(offsets) == later


def test_two_transactions_have_offsets_pending_for_one_place() -> None:
    offsets = Offsets()
    offsets.replay_pending(7, KEY, value(2))
    offsets.replay_pending(8, KEY, value(3))
    list(offsets.end_transaction(7, is_commit=False))
    assert offsets.is_pending("g", PLACE)
    list(offsets.end_transaction(8, is_commit=True))
    assert committed(offsets) == 3


def test_deleting_a_group_deletes_what_is_pending() -> None:
    offsets = Offsets()
    offsets.replay_pending(7, KEY, value(2))
    for record in at_once(offsets.tombstones("g")):
        assert isinstance(record.key, OffsetCommitKey)
        offsets.replay(record.key, None)
    list(offsets.end_transaction(7, is_commit=True))
    assert committed(offsets) is None


@pytest.mark.parametrize("seed", range(30))
def test_any_history_gives_what_a_plain_model_gives(seed: int) -> None:
    """The model keeps every record with its position, as Apache Kafka does: at a commit the later record wins."""
    rng = random.Random(seed)
    offsets = Offsets()
    model: dict[int, tuple[int, int | None]] = {}
    pending: dict[int, dict[int, tuple[int, int]]] = {}
    for position in range(200):
        partition, producer_id = rng.randrange(4), rng.randrange(3)
        key = OffsetCommitKey(group="g", topic="foo", partition=partition)
        match rng.randrange(5):
            case 0:
                offsets.replay(key, value(position))
                model[partition] = (position, position)
            case 1:
                offsets.replay(key, None)
                model[partition] = (position, None)
            case 2 | 3:
                offsets.replay_pending(producer_id, key, value(position))
                pending.setdefault(producer_id, {})[partition] = (position, position)
            case 4:
                is_commit = rng.random() < 0.5
                list(offsets.end_transaction(producer_id, is_commit=is_commit))
                for at, (written_at, offset) in pending.pop(producer_id, {}).items():
                    if is_commit and model.get(at, (-1, None))[0] < written_at:
                        model[at] = (written_at, offset)
        for at in range(4):
            assert committed(offsets, Place("foo", at)) == model.get(at, (0, None))[1]


def test_what_is_pending_counts_as_memory_and_as_offsets_of_its_topic() -> None:
    offsets = Offsets()
    pending = OffsetCommitValue(offset=1, commit_timestamp_ms=1, metadata="m" * 100, topic_id=UUID(int=7))
    offsets.replay_pending(7, KEY, pending)
    offsets.replay_pending(7, KEY, pending)
    assert offsets.size_bytes == pending_size("g", PLACE, pending.metadata) > 100
    assert list(offsets.topic_ids) == [UUID(int=7)] and dict(offsets.pending_groups(7)) == {"g": 1}
    list(offsets.end_transaction(7, is_commit=True))
    after = offsets.size_bytes
    offsets.replay(KEY, None)
    assert after > 0 and offsets.size_bytes == 0
    assert not list(offsets.topic_ids) and not offsets.pending_groups(7) and not list(offsets.group_ids)


@pytest.mark.parametrize("steps_before", [0, 1])
def test_what_becomes_pending_while_a_transaction_ends_is_of_the_next_one(steps_before: int) -> None:
    offsets = Offsets()
    for partition in range(2 * ENDS_PER_STEP):
        offsets.replay_pending(7, OffsetCommitKey(group="g", topic="foo", partition=partition), value(2))
    steps = offsets.end_transaction(7, is_commit=True)
    for _ in range(steps_before):
        next(steps)
    other = OffsetCommitKey(group="h", topic="foo", partition=0)
    offsets.replay_pending(7, other, value(3))
    list(steps)
    assert dict(offsets.pending_groups(7)) == {"h": 1}
    assert all(committed(offsets, Place("foo", at)) == 2 for at in range(2 * ENDS_PER_STEP))


def _asked(offsets: Offsets, memory: CoordinatorMemory, partitions: int) -> list[ErrorCode]:
    wanted = [OffsetToCommit("foo", UUID(int=7), partition, 5) for partition in range(partitions)]
    request = CommitRequest("g", wanted, producer=(7, 0))
    _, answer = at_once(offsets.commit(request, None, 0, 100, 1 << 20, memory))
    return answer.errors


def test_pending_offsets_need_room_and_those_that_are_there_move_on() -> None:
    offsets = Offsets()
    memory = CoordinatorMemory(3 * pending_size("g", PLACE, ""), lambda: offsets.size_bytes)
    assert _asked(offsets, memory, 3) == [0, 0, ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    for partition in range(2):
        key = OffsetCommitKey(group="g", topic="foo", partition=partition)
        offsets.replay(key, value(1))
        offsets.replay_pending(7, key, value(2))
    memory.max_bytes = 0
    assert _asked(offsets, memory, 3) == [0, 0, ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
