"""The four codecs of record batches, with bounded output.

A kilobyte can be the compressed form of many megabytes. So `decompress` takes a limit. A size that the data declares is
checked before memory is allocated. Otherwise the data is decompressed in steps. Each library is imported when its codec
is first used.
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
_ZSTD_STEP_BYTES = 256  # The densest block has 4 bytes and decompresses to 128 KiB.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT32 = Struct(">i")


def decompress(
    compression_id: int, data: memoryview, max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES
) -> memoryview:
    """Decompresses the records of a batch.

    Raises KafkaError: CORRUPT_MESSAGE for malformed data, MESSAGE_TOO_LARGE above `max_output_bytes`,
    UNSUPPORTED_COMPRESSION_TYPE for an unknown id.
    """
    if compression_id == Compression.NONE:
        return data
    codec = _DECOMPRESSORS.get(compression_id)
    if codec is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression {compression_id}")
    return memoryview(codec(data, max_output_bytes))


def compress(compression: Compression, data: Buffer) -> Buffer:
    """Compresses the records of a batch with the default level of the codec."""
    codec = _COMPRESSORS.get(compression)
    return data if codec is None else codec(data)


def _too_large(max_output_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"batch decompresses to more than {max_output_bytes} bytes"
    )


def _corrupt(codec: str, reason: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{codec}: {reason}")


def _decompress_gzip(data: memoryview, max_output_bytes: int) -> bytes:
    out = bytearray()
    pos = 0
    try:
        while pos < len(data):  # gzip allows several members, one after the other.
            member = zlib.decompressobj(_GZIP_WINDOW_BITS)
            while not member.eof:
                # In steps, because a member copies all data behind its end: 50,000 empty members took a second.
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


def _compress_gzip(data: Buffer) -> bytes:
    compressor = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
    return compressor.compress(data) + compressor.flush()


def _decompress_snappy(data: memoryview, max_output_bytes: int) -> bytes:
    """Raw snappy (librdkafka, franz-go), or snappy in xerial's framing (Java): 16 bytes, then blocks with their
    size."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, max_output_bytes)
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
        out += _decompress_snappy_block(data[pos : pos + size_bytes], max_output_bytes - len(out))
        pos += size_bytes
    return bytes(out)


def _decompress_snappy_block(block: memoryview, max_output_bytes: int) -> bytes:
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


def _compress_snappy(data: Buffer) -> bytes:
    """Snappy in xerial's framing, which the Java client writes and every client reads."""
    from cramjam import snappy

    out = bytearray(_XERIAL_MAGIC + _INT32.pack(1) + _INT32.pack(1))
    view = memoryview(data)
    for pos in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[pos : pos + _XERIAL_BLOCK_BYTES]))
        out += _INT32.pack(len(block)) + block
    return bytes(out)


def _decompress_lz4(data: memoryview, max_output_bytes: int) -> bytes:
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


def _compress_lz4(data: Buffer) -> bytes:
    from lz4.frame import compress

    return bytes(compress(data, content_checksum=False, store_size=False))


def _decompress_zstd(data: memoryview, max_output_bytes: int) -> bytes:
    """The library's stream reader does not report a frame that is cut short, and its other functions have no limit on
    output. So the input is decompressed in small steps. Each can give 16 MiB at the worst."""
    from zstandard import ZstdDecompressor, ZstdError

    out = bytearray()
    rest = data
    try:
        while rest:  # There may be several frames, one after the other.
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


def _compress_zstd(data: Buffer) -> bytes:
    from zstandard import ZstdCompressor

    return ZstdCompressor().compress(data)


_DECOMPRESSORS: dict[int, Callable[[memoryview, int], bytes]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
_COMPRESSORS: dict[int, Callable[[Buffer], bytes]] = {
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
