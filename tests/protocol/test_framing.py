"""Any split of a stream gives the same frames, and a frame takes memory only as its bytes come."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.framing import FIRST_BYTES, SHARED_BUFFER_BYTES, USUAL_BYTES, FrameReader, SharedBuffer

MAX_FRAME_BYTES = 8 * 1024 * 1024


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def receive(reader: FrameReader, data: bytes, most: int) -> tuple[list[tuple[bytes, bool]], int]:
    """One recv of at most `most` bytes, as a transport does it. Frames are copied while they are valid."""
    buffer = reader.get_buffer()
    assert len(buffer) > 0
    size = min(len(buffer), most, len(data))
    buffer[:size] = data[:size]
    return [(bytes(frame), owned) for frame, owned in reader.received(size)], size


def receive_all(reader: FrameReader, data: bytes, sizes: list[int]) -> list[tuple[bytes, bool]]:
    """Receives all of `data`, in pieces of the given sizes in turn."""
    frames = []
    turn = pos = 0
    while pos < len(data):
        got, size = receive(reader, data[pos:], sizes[turn % len(sizes)])
        frames += got
        pos += size
        turn += 1
    return frames


@pytest.mark.parametrize(
    ("start", "said"),
    [(b"\x16\x03\x01\x02\x00\x01", "a TLS handshake"), (b"GET / HTTP/1.1\r\n", "an HTTP request")],
)
def test_who_speaks_another_protocol_is_named(start: bytes, said: str) -> None:
    """It was "frame of 369295617 bytes", which says nothing to whoever reads the log."""
    reader = FrameReader(100 << 20)
    reader.get_buffer()[: len(start)] = start
    with pytest.raises(ProtocolError, match=said):
        reader.received(len(start))


@settings(max_examples=200, deadline=None, database=None)
@given(
    bodies=st.lists(st.binary(max_size=60), max_size=12),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=8),
)
def test_any_split_of_the_stream_gives_the_same_frames(bodies: list[bytes], sizes: list[int]) -> None:
    reader = FrameReader(MAX_FRAME_BYTES)
    stream = b"".join(map(framed, bodies))
    assert [frame for frame, _ in receive_all(reader, stream, sizes)] == bodies
    assert reader.pending_bytes == 0


@pytest.mark.parametrize("seed", range(4))
def test_large_and_small_frames_are_received(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [0, 1, SHARED_BUFFER_BYTES - 4, SHARED_BUFFER_BYTES, 700_000, USUAL_BYTES - 4, 5_000_000]
    rng.shuffle(lengths)
    bodies = [rng.randbytes(length) for length in lengths]
    reader = FrameReader(MAX_FRAME_BYTES)
    sizes = [rng.choice((1, 3, 4, 5, 65_536, 1_000_000)) for _ in range(5)] + [1_000_000]
    assert [frame for frame, _ in receive_all(reader, b"".join(map(framed, bodies)), sizes)] == bodies


def test_two_connections_share_the_buffer_only_between_frames() -> None:
    one, other = FrameReader(MAX_FRAME_BYTES), FrameReader(MAX_FRAME_BYTES)
    assert one.get_buffer().obj is other.get_buffer().obj
    message = framed(b"from one")
    assert receive(one, message[:7], 7) == ([], 7)
    assert receive(other, framed(b"from other"), 100)[0] == [(b"from other", False)]
    assert receive(one, message[7:], 100)[0] == [(b"from one", True)]
    assert one.pending_bytes == other.pending_bytes == 0


def test_an_owned_frame_keeps_its_bytes() -> None:
    reader = FrameReader(MAX_FRAME_BYTES)
    receive(reader, framed(b"kept")[:6], 6)
    reader.get_buffer()[:2] = b"pt"
    [(frame, owned)] = reader.received(2)
    assert owned
    receive_all(reader, framed(b"another") * 3, [5])
    assert bytes(frame) == b"kept"


def reader_of_large_frames() -> FrameReader:
    """Of a connection that has sent a frame of 1 MB."""
    reader = FrameReader(100 * 1024 * 1024)
    receive_all(reader, framed(bytes(1_000_000)), [SHARED_BUFFER_BYTES])
    return reader


def test_the_remainder_of_a_frame_is_received_in_place() -> None:
    """Of a connection that has sent such frames before. Bytes behind the frame are not received into its memory, and
    the complete frame is not copied."""
    reader = reader_of_large_frames()
    receive(reader, framed(b"x" * 1_000_000), SHARED_BUFFER_BYTES)
    buffer = reader.get_buffer()
    assert len(buffer) == 1_000_004 - SHARED_BUFFER_BYTES
    [(frame, owned)] = reader.received(len(buffer))
    assert owned
    assert frame.obj is buffer.obj


@pytest.mark.parametrize("size", [-1, -(2**31), MAX_FRAME_BYTES + 1, 2**31 - 1])
@pytest.mark.parametrize("chunk", [1, 3, 4, 100])
def test_a_size_beyond_the_limits_is_refused_before_memory_is_taken(size: int, chunk: int) -> None:
    reader = FrameReader(MAX_FRAME_BYTES)
    with pytest.raises(ProtocolError, match=f"frame of {size} bytes"):
        receive_all(reader, size.to_bytes(4, "big", signed=True) + b"rest", [chunk])
    assert reader.pending_bytes <= 4


def test_the_error_names_what_limits_a_frame() -> None:
    with pytest.raises(ProtocolError, match=r"socket\.request\.max\.bytes is 1000"):
        receive_all(FrameReader(1000, "socket.request.max.bytes"), framed(bytes(1001)), [100])


def test_a_frame_takes_at_most_twice_what_has_come() -> None:
    reader = FrameReader(100 * 1024 * 1024)
    stream = framed(bytes(50_000_000))
    pos = 0
    while pos < len(stream):
        _, size = receive(reader, stream[pos:], 30_000)
        pos += size
        assert reader.pending_bytes <= max(FIRST_BYTES, 2 * pos)
        assert reader.missing_bytes == (len(stream) - pos if reader.pending_bytes else 0)


def test_announcing_a_large_frame_costs_no_more_after_one_was_sent() -> None:
    reader = reader_of_large_frames()
    announced = (100 * 1024 * 1024 - 4).to_bytes(4, "big")
    receive(reader, announced + b"and no more", 100)
    assert reader.pending_bytes == FIRST_BYTES
    assert reader.announced_bytes == 100 * 1024 * 1024
    while reader.pending_bytes == FIRST_BYTES:
        receive(reader, bytes(1000), 1000)
    assert reader.pending_bytes == 2_000_008


def test_reads_into_the_shared_buffer_can_be_limited() -> None:
    shared = SharedBuffer()
    reader = FrameReader(MAX_FRAME_BYTES, shared=shared)
    shared.limit_reads(1000)
    assert len(reader.get_buffer()) == 1000
    bodies = [bytes([number]) * 700 for number in range(9)]
    stream = b"".join(map(framed, bodies))
    assert [frame for frame, _ in receive_all(reader, stream, [5000])] == bodies
    shared.limit_reads()
    assert len(reader.get_buffer()) == SHARED_BUFFER_BYTES


def test_http_is_refused() -> None:
    with pytest.raises(ProtocolError):
        receive_all(FrameReader(100 * 1024 * 1024), b"GET / HTTP/1.1\r\n", [100])
