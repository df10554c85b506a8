"""Messages between nodes survive the wire, and large records cross it without being copied."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.peer import PEER_KINDS, Append, AppendRow, TimeoutNow, decode_peer, encode_peer
from tests.protocol.strategies import messages

TOPIC = uuid.UUID(int=0x00112233445566778899AABBCCDDEEFF)


@pytest.mark.parametrize("kind", PEER_KINDS)
@settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_round_trip(kind: int, data: Any) -> None:
    message = data.draw(messages(PEER_KINDS[kind], 0))
    assert decode_peer(memoryview(b"".join(encode_peer(message)))) == message


def append(**changes: Any) -> Append:
    values: dict[str, Any] = {
        "topic_id": TOPIC, "partition": 1, "incarnation": 2, "follower_incarnation": 3, "term": 4,
        "start_index": 5, "prev_term": 4, "to_index": 7, "commit_end": 5, "log_start": 0, "start_offset": 5,
    }  # fmt: skip
    return Append(**(values | changes))


def test_records_are_neither_joined_nor_copied() -> None:
    first, second = bytearray(b"a" * 5000), memoryview(b"b" * 3000)
    row = AppendRow(index=5, term=4, offset=5, kind=1, payload=b"p")
    parts = encode_peer(append(records=[first, second], rows=[row]))
    assert parts[1] is first
    assert parts[2] is second

    frame = memoryview(b"".join(parts))
    decoded = decode_peer(frame)
    assert isinstance(decoded, Append)
    assert isinstance(decoded.records, memoryview)
    assert decoded.records.obj is frame.obj
    assert bytes(decoded.records) == first + second
    assert decoded.rows == [row]


def test_golden_bytes() -> None:
    message = TimeoutNow(topic_id=TOPIC, partition=1, incarnation=2, term=3)
    assert b"".join(encode_peer(message)).hex(" ", 2) == (
        "0008 0011 2233 4455 6677 8899 aabb ccdd eeff 0000 0001 0000 0002 0000 0003"
    )


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ProtocolError, match="unknown kind 99"):
        decode_peer(memoryview(b"\0\x63rest"))
