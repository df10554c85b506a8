"""The codec of the records of `__consumer_offsets`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.groups.records import GroupRecord, decode, encode
from protocol.errors import ProtocolError
from protocol.group_records import RECORD_TYPES, OffsetCommitKey, OffsetCommitValue
from protocol.schema import NIL_UUID
from tests.protocol.strategies import messages


@pytest.mark.parametrize("number", RECORD_TYPES)
@settings(max_examples=30, deadline=None, database=None)
@given(data=st.data())
def test_a_record_that_is_encoded_is_decoded_again(number: int, data: Any) -> None:
    key_type, value_type, version = RECORD_TYPES[number]
    key = data.draw(messages(key_type, 0))
    value = data.draw(st.none() | messages(value_type, version))
    raw_key, raw_value = encode(GroupRecord(key, value))
    read = decode(memoryview(raw_key), None if raw_value is None else memoryview(raw_value))
    assert read == GroupRecord(key, value)


def test_a_commit_with_a_retention_is_encoded_in_version_1() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    value = OffsetCommitValue(offset=5, leader_epoch=3, commit_timestamp_ms=100, expire_timestamp_ms=200)
    raw_key, raw_value = encode(GroupRecord(key, value))
    assert raw_value is not None and raw_value[:2] == b"\0\1"
    read = decode(memoryview(raw_key), memoryview(raw_value))
    assert read is not None
    assert read.value == OffsetCommitValue(offset=5, commit_timestamp_ms=100, expire_timestamp_ms=200)


def test_bytes_of_a_commit() -> None:
    """`DumpLogSegments --offsets-decoder` of Kafka 4.3.1 decodes these bytes (tests/integration runs the tool)."""
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    value = OffsetCommitValue(
        offset=5, leader_epoch=3, metadata="m", commit_timestamp_ms=100, topic_id=NIL_UUID
    )
    raw_key, raw_value = encode(GroupRecord(key, value))
    assert raw_key.hex() == "000100016700017400000001"
    assert raw_value is not None
    assert raw_value.hex() == "0004000000000000000500000003026d000000000000006400"


def test_record_types_that_no_shard_replays_are_passed_over() -> None:
    """Type 11 is of share groups. Type 4 is what Kafka 4.0 stored of a consumer group's topics."""
    assert decode(memoryview(b"\0\x0b\0\1g"), memoryview(b"\0\0\0\0\0\1\0")) is None
    assert decode(memoryview(b"\0\4\0\1g"), memoryview(b"\0\0\1\0")) is None


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0", None), (b"\0\1", None), (b"\0\1\0\1g\0\1t\0\0\0\1", b"\0\x09")]
)
def test_bytes_that_are_no_record_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode(memoryview(key), None if value is None else memoryview(value))
