"""Decompression: exact, in small pieces, and never much memory, whatever the data declare."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ErrorCode, KafkaError
from protocol.records import compression as module
from protocol.records.batch import Compression
from protocol.records.compression import (
    PIECE_BYTES,
    compress,
    decompress,
    decompressed,
    max_history_bytes,
    max_payload_bytes,
    most_payload_bytes,
)
from protocol.records.native_module import native
from tests.protocol.defects import CODECS, snappy, xerial, zstd

QUICK = settings(max_examples=25, deadline=None, database=None)
#: What a library decompresses at once is the largest piece.
LARGEST_PIECE_BYTES = 128 * 1024
LARGE = 40_000_000

needs_native = pytest.mark.skipif(native is None, reason="the native module was not built")


def text(size: int) -> bytes:
    """Compresses to something like a third."""
    rng = random.Random(size)
    return b" ".join(
        rng.choice((b"produce", b"fetch", b"%d" % rng.randrange(10**6))) for _ in range(size // 6)
    )


def refusal(compression: Compression, data: bytes) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        for _ in decompressed(compression, memoryview(data)):
            pass
    return raised.value


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 100, PIECE_BYTES, PIECE_BYTES + 1, 1_000_000])
def test_data_come_back_in_small_pieces(codec: str, size: int) -> None:
    compression, compressor = CODECS[codec]
    for data in (bytes(size), text(size), random.Random(size).randbytes(size)):
        packed = memoryview(compressor(data))
        pieces = list(decompressed(compression, packed))
        assert b"".join(pieces) == decompress(compression, packed) == data
        if native is not None or compression is not Compression.SNAPPY:
            assert max(map(len, pieces), default=0) <= LARGEST_PIECE_BYTES
        assert size <= most_payload_bytes(compression, len(packed))


@pytest.mark.parametrize("compression", Compression)
@QUICK
@given(data=st.binary(max_size=300))
def test_what_we_compress_comes_back(compression: Compression, data: bytes) -> None:
    assert decompress(compression, memoryview(compress(compression, data))) == data


@pytest.mark.parametrize("codec", CODECS)
@QUICK
@given(noise=st.binary(max_size=100), data=st.data())
def test_random_bytes_are_decompressed_or_corrupt(codec: str, noise: bytes, data: st.DataObject) -> None:
    compression, compressor = CODECS[codec]
    good = bytearray(compressor(text(500)))
    good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    for garbage in (noise, bytes(good)):
        try:
            decompress(compression, memoryview(garbage))
        except KafkaError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
    # The next ones are not disturbed: contexts of libraries are used again.
    assert decompress(compression, memoryview(compressor(b"abc"))) == b"abc"


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_that_is_cut_short_is_corrupt(codec: str) -> None:
    compression, compressor = CODECS[codec]
    for data in (b"short", bytes(range(256)) * 4000):
        packed = compressor(data)
        for size in {1, 10, len(packed) // 2, len(packed) - 1}:
            if size < len(packed):
                assert refusal(compression, packed[:size]).code == ErrorCode.CORRUPT_MESSAGE


def pieces_in_bounded_memory(compression: Compression, packed: bytes, peak_bytes: int) -> int:
    """Decompresses all, and returns its size."""
    size_bytes = 0
    tracemalloc.start()
    try:
        for piece in decompressed(compression, memoryview(packed)):
            size_bytes += len(piece)
        assert tracemalloc.get_traced_memory()[1] < peak_bytes
    finally:
        tracemalloc.stop()
    return size_bytes


@pytest.mark.parametrize("codec", ["gzip", "xerial", "lz4", "zstd"])
def test_forty_megabytes_never_lie_in_memory(codec: str) -> None:
    compression, compressor = CODECS[codec]
    packed = compressor(bytes(LARGE))
    if codec == "xerial":  # as the Java client makes it
        packed = bytes(compress(Compression.SNAPPY, bytes(LARGE)))
    assert pieces_in_bounded_memory(compression, packed, 1_000_000) == LARGE


def test_a_payload_above_the_limit_is_too_large() -> None:
    bomb = zstd(bytes(max_payload_bytes(0) + 1))
    assert len(bomb) < 20_000
    pieces = decompressed(Compression.ZSTD, memoryview(bomb))
    size_bytes = 0
    with pytest.raises(KafkaError) as raised:
        for piece in pieces:
            size_bytes += len(piece)
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert size_bytes <= max_payload_bytes(0)
    # A large batch may have a larger payload.
    assert max_payload_bytes(10_000_000) == 160_000_000


def test_what_a_decompressor_has_to_keep_is_bounded() -> None:
    limit = max_history_bytes(0)
    assert refusal(Compression.SNAPPY, snappy(bytes(limit + 1))).code == ErrorCode.MESSAGE_TOO_LARGE
    assert refusal(Compression.SNAPPY, xerial(bytes(limit + 1))).code == ErrorCode.MESSAGE_TOO_LARGE
    large_window = zstd(bytes(limit + 1), window_log=25)
    assert refusal(Compression.ZSTD, large_window).code == ErrorCode.MESSAGE_TOO_LARGE
    small_window = zstd(bytes(limit + 1), window_log=23)
    assert pieces_in_bounded_memory(Compression.ZSTD, small_window, 1_000_000) == limit + 1
    assert len(decompress(Compression.ZSTD, memoryview(zstd(bytes(1000), window_log=27)))) == 1000


def test_a_declared_size_takes_no_memory() -> None:
    """Six bytes of snappy that declare 7 MB, and a frame of zstd that declares 2^40 bytes."""
    block_of_abc = bytes.fromhex("190000 616263")
    tracemalloc.start()
    try:
        short = bytes.fromhex("c09fab03 0061")
        assert refusal(Compression.SNAPPY, short).code == ErrorCode.CORRUPT_MESSAGE
        frame = bytes.fromhex("28b52ffd c0 58 0000000000010000") + block_of_abc
        assert refusal(Compression.ZSTD, frame).code == ErrorCode.CORRUPT_MESSAGE
        assert tracemalloc.get_traced_memory()[1] < 300_000
    finally:
        tracemalloc.stop()


def test_empty_blocks_do_not_keep_the_caller_waiting() -> None:
    """A megabyte can hold 350,000 blocks of zstd, or 120,000 frames that are skipped. The caller is let in between."""
    empty_block = bytes(3)
    frame = bytes.fromhex("28b52ffd0058") + empty_block * 350_000 + b"\1\0\0"
    assert len(list(decompressed(Compression.ZSTD, memoryview(frame)))) >= 350
    skipped = bytes.fromhex("502a4d1800000000") * 1000
    assert len(list(decompressed(Compression.ZSTD, memoryview(skipped)))) == 1000


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(KafkaError) as raised:
        decompress(5, memoryview(b"x"))
    assert raised.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


# -- the decoder of snappy in C


def unsnapped(block: bytes, size: int, step: int) -> bytes:
    """`block` has no size in front. Raises ValueError."""
    assert native is not None
    output, pos, end = bytearray(size), 0, 0
    while pos < len(block):
        before = end
        pos, end = native.unsnap(block, pos, output, end, end + step)
        assert end > before
    return bytes(output[:end])


@needs_native
@settings(max_examples=200, deadline=None, database=None)
@given(parts=st.lists(st.binary(min_size=1, max_size=20), max_size=8), data=st.data())
def test_snappy_in_steps_is_snappy(parts: list[bytes], data: st.DataObject) -> None:
    text = b"".join(part * data.draw(st.sampled_from((1, 2, 7, 300))) for part in parts)
    packed = snappy(text)
    size_bytes = next(index for index, byte in enumerate(packed) if byte < 0x80) + 1
    assert unsnapped(packed[size_bytes:], len(text), data.draw(st.sampled_from((1, 10, 1 << 20)))) == text


@needs_native
@settings(max_examples=500, deadline=None, database=None)
@given(
    elements=st.lists(st.binary(min_size=1, max_size=6), max_size=12).map(b"".join),
    size=st.sampled_from((0, 1, 64, 1000)),
)
def test_snappy_of_arbitrary_bytes_is_decoded_as_the_library_does(elements: bytes, size: int) -> None:
    from cramjam import DecompressionError
    from cramjam import snappy as library

    def declared(size: int) -> bytes:
        return bytes((size & 0x7F | 0x80, size >> 7))

    try:
        ours = unsnapped(elements, size, 1 << 20)
    except ValueError:
        ours = None
    # The library takes a block only if its size is right.
    size = size if ours is None else len(ours)
    try:
        theirs = bytes(library.decompress_raw(declared(size) + elements))
    except DecompressionError:
        theirs = None
    assert theirs == ours


@needs_native
@pytest.mark.parametrize(
    "block",
    [
        pytest.param("f4", id="no size of a long literal"),
        pytest.param("fcffffffff61", id="a literal of 4 GiB"),
        pytest.param("0861", id="a literal cut short"),
        pytest.param("0061 05", id="a copy cut short"),
        pytest.param("0061 0500", id="a copy from 0 bytes back"),
        pytest.param("0061 0502", id="a copy from before the beginning"),
        pytest.param("0061 fe0100", id="more output than there is room"),
        pytest.param("0061 ffffffffff", id="a copy from 4 GiB back"),
    ],
)
def test_malformed_snappy_is_noticed(block: str) -> None:
    with pytest.raises(ValueError):
        unsnapped(bytes.fromhex(block), 10, 1 << 20)


@needs_native
def test_positions_outside_the_buffers_are_errors() -> None:
    assert native is not None
    for position, end in ((-1, 0), (3, 0), (0, -1), (0, 11)):
        with pytest.raises(IndexError):
            native.unsnap(b"\0a", position, bytearray(10), end, 10)


def test_without_the_native_module_snappy_is_decompressed_by_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "native", None)
    data = text(1_000_000)
    (piece,) = decompressed(Compression.SNAPPY, memoryview(snappy(data)))
    assert bytes(piece) == data
    assert refusal(Compression.SNAPPY, snappy(data)[:-1]).code == ErrorCode.CORRUPT_MESSAGE
