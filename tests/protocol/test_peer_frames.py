"""Frames between nodes: every one that is not the next one is noticed."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from crcmod.predefined import mkPredefinedCrcFun
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from protocol.peer_frames import FrameCheck, plain_frame
from protocol.schema import Buffer

reference_crc: Callable[[bytes], int] = mkPredefinedCrcFun("crc-32c")
START = 0x12345678


def sealed(check: FrameCheck, *parts: bytes) -> bytes:
    """A frame without its size."""
    frame = b"".join(check.seal(list(parts)))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4:]


def opened(check: FrameCheck, frame: bytes) -> bytes:
    return bytes(check.open(memoryview(frame)))


def test_a_plain_frame_is_a_size_and_what_it_is_made_of() -> None:
    large = bytearray(1000)
    parts = plain_frame([b"kind", large, b"end"])
    assert parts[1] is large
    assert b"".join(parts) == (1007).to_bytes(4, "big") + b"kind" + bytes(1000) + b"end"


def test_large_parts_are_neither_joined_nor_copied() -> None:
    large = memoryview(bytes(100_000))
    frame: list[Buffer] = FrameCheck(START).seal([b"head", large])
    assert frame[1] is large


@given(
    st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=3), max_size=5), st.integers(0, 2**32 - 1)
)
def test_frames_arrive_as_they_were_sent(messages: list[list[bytes]], start: int) -> None:
    sender, receiver = FrameCheck(start), FrameCheck(start)
    for parts in messages:
        assert opened(receiver, sealed(sender, *parts)) == b"".join(parts)


def test_the_checksum_is_the_crc_32c_of_everything_up_to_there() -> None:
    """By an implementation of its own. The start is the CRC of what was before the first frame."""
    before = b"what comes before the first frame"
    sender = FrameCheck(reference_crc(before))
    one, two = sealed(sender, b"first", b" frame"), sealed(sender, b"second")
    assert int.from_bytes(one[-4:], "big") == reference_crc(before + b"first frame")
    assert int.from_bytes(two[-4:], "big") == reference_crc(before + b"first framesecond")


def test_every_flipped_bit_is_noticed() -> None:
    frame = sealed(FrameCheck(START), b"\0\7a message of a node")
    for bit in range(8 * len(frame)):
        changed = bytearray(frame)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError, match="not the one"):
            opened(FrameCheck(START), bytes(changed))


@pytest.mark.parametrize("order", [(1,), (0, 0), (0, 2), (1, 0), (0, 1, 1), (0, 1, 0)])
def test_a_lost_doubled_or_moved_frame_is_noticed(order: tuple[int, ...]) -> None:
    """Also if all messages have the same bytes."""
    for texts in ((b"one", b"two", b"three"), (b"same", b"same", b"same")):
        sender, receiver = FrameCheck(START), FrameCheck(START)
        frames = [sealed(sender, text) for text in texts]
        for due, position in enumerate(order):
            if position == due:
                opened(receiver, frames[position])
                continue
            with pytest.raises(ProtocolError, match="not the one"):
                opened(receiver, frames[position])
            break


def test_a_frame_of_another_connection_is_noticed() -> None:
    rng = random.Random(1)
    for _ in range(1000):
        frame = sealed(FrameCheck(rng.getrandbits(32)), rng.randbytes(40))
        with pytest.raises(ProtocolError, match="not the one"):
            opened(FrameCheck(START), frame)


@pytest.mark.parametrize("size", range(4))
def test_a_frame_without_room_for_a_checksum_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="no checksum"):
        opened(FrameCheck(START), bytes(size))
