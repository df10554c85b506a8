"""The four codecs of record batches, with bounded output.

A compressed kilobyte can unfold to many megabytes, so nobody may decompress without saying how much is
acceptable: declared sizes are checked before memory is taken, undeclared ones are unfolded in steps.
The libraries are imported when a codec is first used.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import Struct

from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.records.batch import Compression
from protocol.schema import Buffer
from protocol.wire import read_uvarint

DEFAULT_MAX_OUTPUT_BYTES = 64 * 1024 * 1024

_GZIP_WINDOW_BITS = 31
_GZIP_STEP_BYTES = 4096
_STEP_BYTES = 256 * 1024
_ZSTD_STEP_BYTES = 256  # the densest block has 4 bytes and unfolds to 128 KiB
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")


def decompress(
    compression_id: int, data: memoryview, max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES
) -> memoryview:
    """Unfolds the records of a batch.

    Raises KafkaError: CORRUPT_MESSAGE for garbage, MESSAGE_TOO_LARGE above `max_output_bytes`,
    UNSUPPORTED_COMPRESSION_TYPE for ids that nobody uses.
    """
    if compression_id == Compression.NONE:
        return data
    codec = _DECOMPRESSORS.get(compression_id)
    if codec is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression {compression_id}")
    return memoryview(codec(data, max_output_bytes))


def compress(compression: Compression, data: Buffer) -> Buffer:
    """Folds the records of a batch, with each codec's usual level."""
    codec = _COMPRESSORS.get(compression)
    return data if codec is None else codec(data)


def _too_large(max_output_bytes: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"batch unfolds to more than {max_output_bytes} bytes")


def _corrupt(codec: str, reason: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{codec}: {reason}")


def _gunzip(data: memoryview, max_output_bytes: int) -> bytes:
    out = bytearray()
    pos = 0
    try:
        while pos < len(data):  # gzip allows several members, one behind the other
            member = zlib.decompressobj(_GZIP_WINDOW_BITS)
            while not member.eof:
                # By steps, as a member copies what is left behind its end: 50,000 empty ones took a second.
                step = data[pos : pos + _GZIP_STEP_BYTES]
                if not step:
                    raise _corrupt("gzip", "the stream is cut short")
                out += member.decompress(step, max_output_bytes + 1 - len(out))
                if len(out) > max_output_bytes:
                    raise _too_large(max_output_bytes)
                pos += len(step) - len(member.unused_data)
    except zlib.error as error:
        raise _corrupt("gzip", error) from None
    return bytes(out)


def _gzip(data: Buffer) -> bytes:
    folder = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    return folder.compress(data) + folder.flush()


def _unsnappy(data: memoryview, max_output_bytes: int) -> bytes:
    """Raw snappy (librdkafka, franz-go), or xerial's framing of it (Java): 16 bytes, then sized blocks."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnappy_block(data, max_output_bytes)
    out = bytearray()
    pos = _XERIAL_HEADER_BYTES
    if len(data) < pos:
        raise _corrupt("snappy", "the header is cut short")
    while pos < len(data):
        if len(data) - pos < _INT32.size:
            raise _corrupt("snappy", "the size of a block is cut short")
        (size_bytes,) = _INT32.unpack_from(data, pos)
        pos += _INT32.size
        if not 0 < size_bytes <= len(data) - pos:
            raise _corrupt("snappy", f"block of {size_bytes} bytes")
        out += _unsnappy_block(data[pos : pos + size_bytes], max_output_bytes - len(out))
        pos += size_bytes
    return bytes(out)


def _unsnappy_block(block: memoryview, max_output_bytes: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        declared_bytes, _ = read_uvarint(block, 0)
    except (IndexError, ProtocolError) as error:
        raise _corrupt("snappy", error) from None
    if declared_bytes > max_output_bytes:
        raise _too_large(max_output_bytes)
    try:
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise _corrupt("snappy", error) from None


def _snappy(data: Buffer) -> bytes:
    """Xerial's framing: what the Java client writes, and what every client reads."""
    from cramjam import snappy

    out = bytearray(_XERIAL_MAGIC + _INT32.pack(1) + _INT32.pack(1))
    view = memoryview(data)
    for pos in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[pos : pos + _XERIAL_BLOCK_BYTES]))
        out += _INT32.pack(len(block)) + block
    return bytes(out)


def _unlz4(data: memoryview, max_output_bytes: int) -> bytes:
    from lz4.frame import LZ4FrameDecompressor

    frame = LZ4FrameDecompressor()
    out = bytearray()
    rest: Buffer = data
    try:
        while not frame.eof:
            piece = frame.decompress(rest, max_length=min(_STEP_BYTES, max_output_bytes + 1 - len(out)))
            rest = b""
            out += piece
            if len(out) > max_output_bytes:
                raise _too_large(max_output_bytes)
            if not piece and not frame.eof:
                raise _corrupt("lz4", "the frame is cut short")
    except RuntimeError as error:
        raise _corrupt("lz4", error) from None
    return bytes(out)


def _lz4(data: Buffer) -> bytes:
    from lz4.frame import compress

    return bytes(compress(data, content_checksum=False, store_size=False))


def _unzstd(data: memoryview, max_output_bytes: int) -> bytes:
    """The library's stream reader ends silently where a frame is cut short, and its other ways take no limit
    on output. So the input goes in by small steps, each of which can unfold to 16 MiB at the worst."""
    from zstandard import ZstdDecompressor, ZstdError

    out = bytearray()
    rest = data
    try:
        while rest:  # several frames may follow each other
            frame = ZstdDecompressor().decompressobj()
            while rest and not frame.eof:
                out += frame.decompress(rest[:_ZSTD_STEP_BYTES])
                rest = rest[_ZSTD_STEP_BYTES:]
                if len(out) > max_output_bytes:
                    raise _too_large(max_output_bytes)
            if not frame.eof:
                raise _corrupt("zstd", "the frame is cut short")
            if frame.unused_data:
                rest = data[len(data) - len(rest) - len(frame.unused_data) :]
    except ZstdError as error:
        raise _corrupt("zstd", error) from None
    return bytes(out)


def _zstd(data: Buffer) -> bytes:
    from zstandard import ZstdCompressor

    return ZstdCompressor().compress(data)


_DECOMPRESSORS: dict[int, Callable[[memoryview, int], bytes]] = {
    Compression.GZIP: _gunzip,
    Compression.SNAPPY: _unsnappy,
    Compression.LZ4: _unlz4,
    Compression.ZSTD: _unzstd,
}
_COMPRESSORS: dict[int, Callable[[Buffer], bytes]] = {
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
