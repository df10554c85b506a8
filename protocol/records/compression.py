"""The four codecs of record batches. Decompression goes in pieces: bounded work and memory, whatever the data declare.

A kilobyte can be the compressed form of many megabytes. So nothing here decompresses much more than PIECE_BYTES at a
time, which takes about 0.2 ms, and no memory is taken because the data declare it. Whoever reads the pieces stops when
they have seen enough.

A payload is one stream of its codec with nothing behind it. Streams that Apache Kafka's broker accepts and some clients
cannot read are refused; "Non-obvious" in the README names them. Each library is imported when its codec is first used.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterator
from functools import cache
from struct import Struct
from typing import Any

from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.records.batch import Compression
from protocol.records.native_module import native
from protocol.schema import Buffer
from protocol.wire import read_uvarint

PIECE_BYTES = 64 * 1024
"""The largest piece, but for a block that the library decompresses at once: 128 KiB of zstd, 4 MiB of lz4, and all of a
raw snappy payload if the native module is missing."""

#: How many bytes one compressed byte can give: a match of deflate is 258 bytes in two bits, a copy of snappy 64 bytes
#: in three bytes, a length byte of lz4 255 bytes, a block of zstd 128 KiB in four bytes.
_MAX_RATIOS: dict[int, int] = {
    Compression.NONE: 1,
    Compression.GZIP: 1032,
    Compression.SNAPPY: 22,
    Compression.LZ4: 256,
    Compression.ZSTD: 32 * 1024,
}

_GZIP_WINDOW_BITS = 31
#: What zlib is given at a time. It copies the rest of its input with each piece.
_GZIP_INPUT_BYTES = 16 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_XERIAL_BLOCK_BYTES = 32 * 1024
#: Up to this size a block of snappy is decompressed by the library, at twice the speed of `unsnap`.
_SNAPPY_SHORT_BYTES = 128 * 1024
_INT32 = Struct(">i")
_LZ4_FLAGS_AT = 4
_LZ4_INDEPENDENT_BLOCKS = 0x20
_ZSTD_FRAME = 0xFD2FB528
_ZSTD_SKIPPABLE_FRAME = 0x184D2A50
_ZSTD_HAS_CHECKSUM = 0x04
_ZSTD_CHECKSUM_BYTES = 4
_ZSTD_FLAGS_AT = 4
_ZSTD_BLOCK_HEADER_BYTES = 3
_ZSTD_MAX_BLOCK_BYTES = 128 * 1024
_ZSTD_REPEATED_BYTE, _ZSTD_COMPRESSED = 1, 2
#: How many blocks make a piece at most. A block can be empty.
_ZSTD_MAX_BLOCKS = 1000


def max_payload_bytes(batch_bytes: int) -> int:
    """How large the payload of a batch of this size may be when it is decompressed.

    Apache Kafka has no such limit, but consumers have: librdkafka reads up to 100 MB at a time
    (`receive.message.max.bytes`), others what their memory holds. Who sends larger batches to a topic that allows them
    has consumers for them.
    """
    return max(64 << 20, 16 * batch_bytes)


def most_payload_bytes(compression_id: int, size_bytes: int) -> int:
    """How large the payload can be that this codec has compressed to so many bytes, if the batch is not refused."""
    return min(_MAX_RATIOS[compression_id] * size_bytes, max_payload_bytes(size_bytes))


def max_history_bytes(batch_bytes: int) -> int:
    """How much of its output a decompressor may keep, because what follows can refer to it: zstd its window, raw snappy
    everything. The levels of zstd up to 19 have windows of 8 MiB at most. Producers that send raw snappy (librdkafka,
    franz-go) have batches of a megabyte before compression."""
    return max(8 << 20, 8 * batch_bytes)


def decompressed(compression_id: int, data: memoryview) -> Iterator[Buffer]:
    """Yields the decompressed payload of a batch in pieces. Some may be empty.

    Raises KafkaError: CORRUPT_MESSAGE for malformed data, MESSAGE_TOO_LARGE above `max_payload_bytes` or
    `max_history_bytes` of it, UNSUPPORTED_COMPRESSION_TYPE for an unknown id.
    """
    codec = _DECOMPRESSORS.get(compression_id)
    if codec is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression {compression_id}")
    room_bytes = max_payload_bytes(len(data))
    for piece in codec(data):
        room_bytes -= len(piece)
        if room_bytes < 0:
            raise _too_large(max_payload_bytes(len(data)))
        yield piece


def decompress(compression_id: int, data: memoryview) -> memoryview:
    """The whole decompressed payload of a batch. Raises what `decompressed` raises."""
    if compression_id == Compression.NONE:
        return data
    pieces = list(decompressed(compression_id, data))
    return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def compress(compression: Compression, data: Buffer) -> Buffer:
    """Compresses the records of a batch with the default level of the codec."""
    codec = _COMPRESSORS.get(compression)
    return data if codec is None else codec(data)


def _too_large(limit_bytes: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the batch decompresses to more than {limit_bytes} bytes")


def _corrupt(codec: str, reason: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{codec}: {reason}")


def _uncompressed(data: memoryview) -> Iterator[Buffer]:
    yield data


def _gzip(data: memoryview) -> Iterator[Buffer]:
    member = zlib.decompressobj(_GZIP_WINDOW_BITS)
    pos = 0
    rest: Buffer = b""
    try:
        while not member.eof:
            if not rest:
                rest = data[pos : pos + _GZIP_INPUT_BYTES]
                pos += len(rest)
                if not rest:
                    raise _corrupt("gzip", "the stream is cut short")
            yield member.decompress(rest, PIECE_BYTES)
            rest = member.unconsumed_tail
    except zlib.error as error:
        raise _corrupt("gzip", error) from None
    if member.unused_data or pos < len(data):
        raise _corrupt("gzip", "there is more behind the first member")


def _compress_gzip(data: Buffer) -> bytes:
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _snappy(data: memoryview) -> Iterator[Buffer]:
    """Raw snappy (librdkafka, franz-go), or snappy in xerial's framing (Java): 16 bytes, then blocks with their
    size."""
    room_bytes = max_history_bytes(len(data))
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield from _snappy_block(data, room_bytes)
        return
    pos = _XERIAL_HEADER_BYTES
    while pos < len(data):
        if len(data) - pos < _INT32.size:
            raise _corrupt("snappy", "the size of a block is cut short")
        (size_bytes,) = _INT32.unpack_from(data, pos)
        pos += _INT32.size
        if not 0 < size_bytes <= len(data) - pos:
            raise _corrupt("snappy", f"block of {size_bytes} bytes")
        yield from _snappy_block(data[pos : pos + size_bytes], room_bytes)
        pos += size_bytes
    if pos != len(data):
        raise _corrupt("snappy", "the header is cut short")


def _snappy_block(block: memoryview, room_bytes: int) -> Iterator[Buffer]:
    from cramjam import DecompressionError, snappy

    try:
        declared_bytes, pos = read_uvarint(block, 0)
    except (IndexError, ProtocolError) as error:
        raise _corrupt("snappy", error) from None
    if declared_bytes > room_bytes:
        raise _too_large(room_bytes)
    if declared_bytes > _MAX_RATIOS[Compression.SNAPPY] * len(block):
        raise _corrupt("snappy", f"{declared_bytes} bytes in a block of {len(block)}")
    if native is None or declared_bytes <= _SNAPPY_SHORT_BYTES:
        try:
            yield memoryview(snappy.decompress_raw(block))
        except DecompressionError as error:
            raise _corrupt("snappy", error) from None
        return
    output = native.unfilled_bytearray(declared_bytes)
    end = 0
    while pos < len(block):
        start = end
        try:
            pos, end = native.unsnap(block, pos, output, start, start + PIECE_BYTES)
        except ValueError as error:
            raise _corrupt("snappy", error) from None
        yield memoryview(output)[start:end]
    if end != declared_bytes:
        raise _corrupt("snappy", f"{end} bytes instead of {declared_bytes}")


def _compress_snappy(data: Buffer) -> bytes:
    """Snappy in xerial's framing, which the Java client writes and every client reads."""
    from cramjam import snappy

    out = bytearray(_XERIAL_MAGIC + _INT32.pack(1) + _INT32.pack(1))
    view = memoryview(data)
    for pos in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[pos : pos + _XERIAL_BLOCK_BYTES]))
        out += _INT32.pack(len(block)) + block
    return bytes(out)


def _lz4(data: memoryview) -> Iterator[Buffer]:
    from lz4.frame import create_decompression_context, decompress_chunk

    if len(data) > _LZ4_FLAGS_AT and not data[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT_BLOCKS:
        raise _corrupt("lz4", "blocks that depend on each other")
    context = create_decompression_context()
    pos, is_complete = 0, False
    try:
        while not is_complete:
            piece, read_bytes, is_complete = decompress_chunk(context, data[pos:], max_length=PIECE_BYTES)
            pos += read_bytes
            if not (piece or read_bytes or is_complete):
                raise _corrupt("lz4", "the frame is cut short")
            yield piece
    except RuntimeError as error:
        raise _corrupt("lz4", error) from None
    if pos < len(data):
        raise _corrupt("lz4", f"{len(data) - pos} bytes behind the frame")


def _compress_lz4(data: Buffer) -> bytes:
    from lz4.frame import compress

    return bytes(compress(data, block_linked=False, store_size=False))


def _zstd(data: memoryview) -> Iterator[Buffer]:
    """The library has no function that bounds its output and also notices a frame that is cut short. So it is given
    some whole blocks at a time, each of which has 128 KiB at most (RFC 8878, section 3.1.1)."""
    from zstandard import ZstdError

    pos = 0
    try:
        while pos < len(data):
            magic = int.from_bytes(data[pos : pos + 4], "little")
            if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE_FRAME:
                pos += 8 + int.from_bytes(data[pos + 4 : pos + 8], "little")
                if pos > len(data):
                    raise _corrupt("zstd", "the frame is cut short")
                yield b""
            elif magic == _ZSTD_FRAME:
                pos = yield from _zstd_frame(data, pos)
            else:
                raise _corrupt("zstd", "unknown frame")
    except ZstdError as error:
        raise _corrupt("zstd", error) from None


def _zstd_frame(data: memoryview, start: int) -> Generator[Buffer, None, int]:
    """The pieces of the frame at `start`. Returns the position behind it."""
    from zstandard import ZstdDecompressor, get_frame_parameters

    limit_bytes = max_history_bytes(len(data))
    has_large_window = get_frame_parameters(data[start:]).window_size > limit_bytes
    frame = None
    output_bytes = 0
    for end, is_last in _zstd_inputs(data, start):
        if frame is None:
            # A context of its own takes 8 us to make. A frame of one piece does without.
            frame = (_zstd_context() if is_last else ZstdDecompressor()).decompressobj()
        piece = frame.decompress(data[start:end])
        output_bytes += len(piece)
        if has_large_window and output_bytes > limit_bytes:
            raise _too_large(limit_bytes)
        yield piece
        start = end
    if frame is None or not frame.eof:
        raise _corrupt("zstd", "the frame is cut short")
    return start


@cache
def _zstd_context() -> Any:
    from zstandard import ZstdDecompressor

    return ZstdDecompressor()


def _zstd_inputs(data: memoryview, pos: int) -> Iterator[tuple[int, bool]]:
    """Divides the frame at `pos` into parts of whole blocks, each of which gives a piece. Yields the end of each part,
    and whether it is the last one. Ends early if the frame is cut short."""
    from zstandard import frame_header_size

    has_checksum = data[pos + _ZSTD_FLAGS_AT] & _ZSTD_HAS_CHECKSUM
    pos += frame_header_size(data[pos:])
    output_bytes = block_count = 0
    while pos + _ZSTD_BLOCK_HEADER_BYTES <= len(data):
        block = int.from_bytes(data[pos : pos + _ZSTD_BLOCK_HEADER_BYTES], "little")
        is_last, kind, size_bytes = block & 1, block >> 1 & 3, block >> 3
        pos += _ZSTD_BLOCK_HEADER_BYTES + (1 if kind == _ZSTD_REPEATED_BYTE else size_bytes)
        if is_last:
            yield pos + (_ZSTD_CHECKSUM_BYTES if has_checksum else 0), True
            return
        output_bytes += _ZSTD_MAX_BLOCK_BYTES if kind == _ZSTD_COMPRESSED else size_bytes
        block_count += 1
        if output_bytes >= PIECE_BYTES or block_count == _ZSTD_MAX_BLOCKS:
            yield pos, False
            output_bytes = block_count = 0


def _compress_zstd(data: Buffer) -> bytes:
    from zstandard import ZstdCompressor

    return ZstdCompressor().compress(data)


_DECOMPRESSORS: dict[int, Callable[[memoryview], Iterator[Buffer]]] = {
    Compression.NONE: _uncompressed,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
_COMPRESSORS: dict[int, Callable[[Buffer], bytes]] = {
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
