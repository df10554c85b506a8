"""The 61-byte header of a record batch.

    baseOffset int64 | batchLength int32 | partitionLeaderEpoch int32 | magic int8 | crc uint32 |
    attributes int16 | lastOffsetDelta int32 | baseTimestamp int64 | maxTimestamp int64 |
    producerId int64 | producerEpoch int16 | baseSequence int32 | recordCount int32 | records

`batchLength` counts from the leader epoch on. The CRC covers everything from the attributes on. So the broker can write
base offset and leader epoch without a new CRC, and the CRC does not protect them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from struct import Struct
from struct import error as struct_error
from typing import Any, NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.records.crc import crc32c
from protocol.schema import Buffer

HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
"""The size of base offset and length, which `length` does not count."""
MIN_LENGTH = HEADER_BYTES - LENGTH_PREFIX_BYTES
MAGIC = 2

_HEADER = Struct(">qiibIhiqqqhii")
_STAMPED = Struct(">qii")
_CRC = Struct(">I")
_CRC_AT = 17
_ATTRIBUTES_AT = 21
assert _HEADER.size == HEADER_BYTES

ATTR_COMPRESSION = 0x07
ATTR_LOG_APPEND_TIME = 0x08
ATTR_TRANSACTIONAL = 0x10
#: Where the low byte of the attributes lies in a batch.
_ATTRIBUTES_LOW_BYTE = 22
ATTR_CONTROL = 0x20
ATTR_DELETE_HORIZON = 0x40
"""Only compaction sets it. The base timestamp is the delete horizon then (KIP-534)."""

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header of a batch as on the wire. It is complete, and nothing else was checked."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # It hides tuple.count, which nobody needs.

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset behind the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch."""
        return self.length + LENGTH_PREFIX_BYTES

    @property
    def compression_id(self) -> int:
        """The number of a `Compression`, or 5 to 7, which do not exist."""
        return self.attributes & ATTR_COMPRESSION

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & ATTR_LOG_APPEND_TIME) // ATTR_LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & ATTR_TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & ATTR_CONTROL != 0

    @property
    def is_filler(self) -> bool:
        """Whether it stands for offsets whose records compaction removed (`builder.build_filler`)."""
        return self.count == 0 and self.producer_id == NO_PRODUCER_ID and not self.is_control

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record. 0 follows 2^31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


#: A header from its fields, in order. `_make` would check their number once more.
_header_of: Callable[[tuple[Any, ...]], BatchHeader] = partial(tuple.__new__, BatchHeader)


def is_transactional(batch: memoryview) -> bool:
    """As of the header. False for what is no batch."""
    return len(batch) >= HEADER_BYTES and batch[_ATTRIBUTES_LOW_BYTE] & ATTR_TRANSACTIONAL != 0


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Decodes the header at `pos`. Raises KafkaError CORRUPT_MESSAGE if there are fewer than 61 bytes."""
    try:
        return _header_of(_HEADER.unpack_from(buf, pos))
    except struct_error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "record batch is shorter than its header") from None


def pack_header(header: BatchHeader) -> bytes:
    """The 61 bytes of a header."""
    return _HEADER.pack(*header)


def check_crc(buf: memoryview, pos: int, header: BatchHeader) -> bool:
    """Whether the CRC in the header of a batch is right. The batch at `pos` must be complete."""
    return crc32c(buf[pos + _ATTRIBUTES_AT : pos + header.length + LENGTH_PREFIX_BYTES]) == header.crc


def stamp(
    buf: bytearray | memoryview, header: BatchHeader, base_offset: int, leader_epoch: int
) -> BatchHeader:
    """Writes base offset and leader epoch into the batch at the beginning of the buffer. `header` is its header. The
    CRC stays valid. Returns the new header."""
    stamped = (base_offset, header.length, leader_epoch)
    _STAMPED.pack_into(buf, 0, *stamped)
    return _header_of(stamped + header[3:])


def renew_crc(buf: bytearray | memoryview, pos: int = 0) -> BatchHeader:
    """Computes and writes the CRC of a complete batch. Returns its header."""
    view = memoryview(buf)
    header = parse_header(view, pos)
    crc = crc32c(view[pos + _ATTRIBUTES_AT : pos + header.size_bytes])
    _CRC.pack_into(view, pos + _CRC_AT, crc)
    return header._replace(crc=crc)


def iter_batches(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of each complete batch from `pos` on. Stops before a partial batch at the end.

    CRCs are not checked. Raises KafkaError CORRUPT_MESSAGE for a length below that of an empty batch, because the next
    batch cannot be found then.
    """
    end = len(buf)
    while end - pos >= HEADER_BYTES:
        header = _header_of(_HEADER.unpack_from(buf, pos))
        if header.length < MIN_LENGTH:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"record batch of length {header.length} at {pos}")
        following = pos + header.length + LENGTH_PREFIX_BYTES
        if following > end:
            return
        yield pos, header
        pos = following
