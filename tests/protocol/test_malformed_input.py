"""Decoding of any bytes gives a value or a ProtocolError, in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.codec import decode, decoder, encode
from protocol.errors import ProtocolError
from protocol.headers import parse_request_header, parse_response_header
from protocol.messages import ALL_MESSAGES
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from protocol.peer import PEER_KINDS, decode_peer, encode_peer
from protocol.schema import Message
from protocol.wire import MAX_HEADER_TAGS, NUMBERS_PER_ELEMENT, uvarint
from tests.protocol.strategies import all_versions, messages

EDGES = [(cls, v) for cls in ALL_MESSAGES for v in {all_versions(cls)[0], all_versions(cls)[-1]}]
#: How many elements a message may hold in these tests.
ROOM = 10_000
BOUNDED = settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def tolerate(cls: type[Message], version: int, data: bytes) -> None:
    try:
        _, end = decode(cls, version, memoryview(data))
    except ProtocolError:
        return
    assert end <= len(data)


@pytest.mark.parametrize(("cls", "version"), EDGES, ids=lambda x: x if isinstance(x, int) else x.__name__)
@BOUNDED
@given(data=st.data())
def test_every_truncation_is_refused(cls: type[Message], version: int, data: Any) -> None:
    encoded = encode(data.draw(messages(cls, version)), version)
    step = max(1, len(encoded) // 300)
    for size in range(0, len(encoded), step):
        with pytest.raises(ProtocolError):
            decode(cls, version, memoryview(encoded)[:size])


@pytest.mark.parametrize(("cls", "version"), EDGES, ids=lambda x: x if isinstance(x, int) else x.__name__)
@BOUNDED
@given(data=st.data())
def test_changed_bytes_are_refused_or_decoded(cls: type[Message], version: int, data: Any) -> None:
    encoded = bytearray(encode(data.draw(messages(cls, version)), version))
    if not encoded:
        return
    for position in data.draw(st.lists(st.integers(0, len(encoded) - 1), max_size=30)):
        for value in (0, 0x7F, 0x80, 0xFF, encoded[position] ^ 1):
            mutated = bytearray(encoded)
            mutated[position] = value
            tolerate(cls, version, bytes(mutated))


@pytest.mark.parametrize(("cls", "version"), EDGES, ids=lambda x: x if isinstance(x, int) else x.__name__)
@BOUNDED
@given(noise=st.binary(max_size=200))
def test_random_bytes_are_refused_or_decoded(cls: type[Message], version: int, noise: bytes) -> None:
    tolerate(cls, version, noise)


@pytest.mark.parametrize("count", [2**31 - 1, 10_000_000, -2])
def test_a_count_is_bounded_by_what_follows_it(count: int) -> None:
    decode_v1 = decoder(MetadataRequest, 1)
    data = memoryview(count.to_bytes(4, "big", signed=True) + bytes(1000))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=r"MetadataRequest\.topics"):
            decode_v1(data, 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def _empty_topics(count: int) -> bytes:
    """The body of a Produce v3 request with this many topics without name and partitions."""
    return b"\xff\xff" + bytes(6) + count.to_bytes(4, "big") + bytes(6 * count)


def _one_topic_of(count: int) -> bytes:
    """The body of a Produce v3 request with one topic of this many partitions without records."""
    one_topic = (1).to_bytes(4, "big") + bytes(2) + count.to_bytes(4, "big")
    return b"\xff\xff" + bytes(6) + one_topic + b"\0\0\0\0\xff\xff\xff\xff" * count


def _tags(count: int) -> bytes:
    """The body of a Produce v9 request without topics, with this many unknown tagged fields."""
    return b"\0" + bytes(6) + b"\1" + uvarint(count) + b"\5\0" * count


@pytest.mark.parametrize(
    ("version", "body"),
    [(3, _empty_topics), (3, _one_topic_of), (9, _tags)],
    ids=["topics", "partitions", "tags"],
)
def test_a_message_holds_only_so_many_elements(version: int, body: Callable[[int], bytes]) -> None:
    """Otherwise a frame of 100 MiB would become gigabytes of objects."""
    decode_produce = decoder(ProduceRequest, version)
    decode_produce(memoryview(body(ROOM - 1)), 0, ROOM)
    data = memoryview(body(ROOM + 1))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=r"more than|too many"):
            decode_produce(data, 0, ROOM)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_long_array_of_numbers_counts_towards_the_elements() -> None:
    """Each number may be a partition that is looked up and has its own part in the answer."""
    topic = TopicRequest(name="t", partition_indexes=[])
    request = DescribeProducersRequest(topics=[topic])
    most = ROOM * NUMBERS_PER_ELEMENT
    decode_producers = decoder(DescribeProducersRequest, 0)
    topic.partition_indexes = [0] * (most - 2 * NUMBERS_PER_ELEMENT)
    decode_producers(memoryview(encode(request, 0)), 0, ROOM)
    topic.partition_indexes = [0] * (most + NUMBERS_PER_ELEMENT)
    with pytest.raises(ProtocolError, match="more than"):
        decode_producers(memoryview(encode(request, 0)), 0, ROOM)


def test_a_request_header_holds_only_so_many_tags() -> None:
    count = MAX_HEADER_TAGS + 1
    frame = b"\0\0\0\x09\0\0\0\1\xff\xff" + uvarint(count) + b"\5\0" * count
    with pytest.raises(ProtocolError, match="too many"):
        parse_request_header(memoryview(frame))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\0\3a\xff\xfe", id="not UTF-8"),
        pytest.param(b"\xff\xfe", id="length -2"),
        pytest.param(b"\x7f\xff", id="length beyond the end"),
    ],
)
def test_bad_strings_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(ProduceRequest, 3, memoryview(body))


def test_null_is_refused_where_it_is_not_allowed() -> None:
    one_topic_without_name = b"\0\0\0\1\xff\xff"
    with pytest.raises(ProtocolError, match=r"MetadataRequestTopic\.name"):
        decode(MetadataRequest, 1, memoryview(one_topic_without_name))


def test_unknown_tags_are_skipped_and_bounded() -> None:
    plain = encode(MetadataRequest(topics=None), 9)
    assert plain[-1] == 0
    with_tags = plain[:-1] + b"\2" + b"\x05\3abc" + b"\x80\x01\0"
    assert decode(MetadataRequest, 9, memoryview(with_tags)) == (MetadataRequest(topics=None), len(with_tags))
    for bad in (b"\xff\xff\xff\xff\x07", b"\x7f", b"\1\5\x7f", b"\xff\xff\xff\xff\xff\xff"):
        with pytest.raises(ProtocolError):
            decode(MetadataRequest, 9, memoryview(plain[:-1] + bad + bytes(20)))


def test_an_undeclared_version_is_refused() -> None:
    with pytest.raises(ProtocolError, match="no version 2"):
        decoder(ProduceRequest, 2)
    with pytest.raises(ValueError, match="no version 14"):
        encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), 14)


@BOUNDED
@given(frame=st.binary(max_size=60))
def test_random_bytes_as_headers_are_refused_or_decoded(frame: bytes) -> None:
    try:
        _, pos = parse_request_header(memoryview(frame))
        assert pos <= len(frame)
        _, pos = parse_response_header(3, 12, memoryview(frame))
        assert pos <= len(frame)
    except ProtocolError:
        pass


@pytest.mark.parametrize("kind", PEER_KINDS)
@BOUNDED
@given(data=st.data())
def test_incomplete_peer_frames_are_refused(kind: int, data: Any) -> None:
    frame = b"".join(encode_peer(data.draw(messages(PEER_KINDS[kind], 0))))
    for size in range(0, len(frame), max(1, len(frame) // 100)):
        with pytest.raises(ProtocolError):
            decode_peer(memoryview(frame)[:size])
    with pytest.raises(ProtocolError):
        decode_peer(memoryview(frame + b"\0"))
