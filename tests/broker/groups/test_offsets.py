"""The committed offsets of a shard, compared with a plain dict."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.memory import unbounded
from broker.groups.commit import CommitRequest, OffsetToCommit, Place
from broker.groups.offsets import Offsets
from broker.groups.records import decode, encode
from protocol.codec import at_once
from protocol.errors import ErrorCode
from protocol.group_records import OffsetCommitKey, OffsetCommitValue
from protocol.records.builder import NewRecord, build_batch

TOPIC_IDS = [UUID(int=number) for number in range(3)]
RECORDS = st.lists(
    st.tuples(
        st.sampled_from("gh"),
        st.sampled_from("st"),
        st.integers(0, 1),
        st.none() | st.sampled_from(TOPIC_IDS),
    ),
    max_size=40,
)


@given(RECORDS)
def test_replay_keeps_the_newest_offset_of_each_partition(
    records: list[tuple[str, str, int, UUID | None]],
) -> None:
    offsets = Offsets()
    assert offsets.size_bytes == 0
    plain: dict[tuple[str, Place], OffsetCommitValue] = {}
    for offset, (group, topic, partition, topic_id) in enumerate(records):
        key, place = OffsetCommitKey(group=group, topic=topic, partition=partition), Place(topic, partition)
        if topic_id is None:
            offsets.replay(key, None)
            plain.pop((group, place), None)
        else:
            metadata = "x" * (offset % 3 * 100)
            value = OffsetCommitValue(
                offset=offset, metadata=metadata, commit_timestamp_ms=0, topic_id=topic_id
            )
            offsets.replay(key, value)
            plain[group, place] = value
        assert {group: dict(offsets.of_group(group)) for group in offsets.group_ids} == {
            group: {place: value for (of, place), value in plain.items() if of == group} for group, _ in plain
        }
        assert set(offsets.topic_ids) == {value.topic_id for value in plain.values()}
        assert all(offsets.get(group, place) is value for (group, place), value in plain.items())
        anew = Offsets()
        for (group, place), value in plain.items():
            anew.replay(OffsetCommitKey(group=group, topic=place.topic, partition=place.partition), value)
        assert offsets.size_bytes == anew.size_bytes


def test_metadata_that_no_record_can_hold_is_refused_whatever_the_setting() -> None:
    """Older versions of the record hold 32,767 bytes. The setting counts characters."""
    wanted = [OffsetToCommit("t", TOPIC_IDS[1], 0, 5, metadata=text) for text in ("ü" * 16_384, "x" * 32_767)]
    commit = Offsets().commit(CommitRequest("g", wanted), None, 0, 1 << 20, 1 << 20, unbounded())
    _, answer = at_once(commit)
    assert answer.errors == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]


def test_a_retention_beyond_int64_never_expires() -> None:
    """It once gave a record that could not be encoded, and the shard was loaded anew."""
    wanted = CommitRequest("g", [OffsetToCommit("t", TOPIC_IDS[1], 0, 5)], retention_ms=2**63 - 1)
    (record,), _ = at_once(Offsets().commit(wanted, None, 1, 4096, 1 << 20, unbounded()))
    key, value = encode(record)
    assert value is not None
    loaded = decode(memoryview(key), memoryview(value))
    assert loaded is not None and isinstance(loaded.value, OffsetCommitValue)
    assert loaded.value.expire_timestamp_ms == 2**63 - 1


def test_a_commit_that_fits_into_a_batch_is_accepted() -> None:
    """Four bytes were once counted for each character."""
    group, topic = "connect-orders-to-warehouse-eu-central-1a", "orders.warehouse.eu-central-1.shipments"
    wanted = CommitRequest(group, [OffsetToCommit(topic, TOPIC_IDS[1], number, 5) for number in range(4000)])
    records, answer = at_once(Offsets().commit(wanted, None, 1, 4096, 1_048_588, unbounded()))
    assert (len(records), answer.error) == (4000, ErrorCode.NONE)
    batch = build_batch([NewRecord(*encode(record), 1) for record in records])
    assert 500_000 < len(batch) < 1_048_588
    _, answer = at_once(Offsets().commit(wanted, None, 1, 4096, len(batch) - 1, unbounded()))
    assert answer.error == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
