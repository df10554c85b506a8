"""Batches with one defect each, a right CRC over it, and what Apache Kafka 4.3.1 and its clients make of them.

The answers were measured with raw Produce requests to a node of Apache Kafka 4.3.1. The fates were measured with
confluent-kafka 2.16 (librdkafka), which read what a broker without a look at records had accepted.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from protocol.errors import ErrorCode
from protocol.records.batch import HEADER_BYTES, BatchHeader, Compression, pack_header, renew_crc
from protocol.records.record import encode_varint

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000

OK, UNKNOWN, INVALID, MISDATED = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
)


def _bytes(value: bytes | None, size: int | None = None) -> bytes:
    """A field with its length, or with another one."""
    if value is None:
        return encode_varint(-1)
    return encode_varint(len(value) if size is None else size) + value


def headers(*pairs: tuple[bytes | None, bytes | None]) -> bytes:
    return encode_varint(len(pairs)) + b"".join(_bytes(key) + _bytes(value) for key, value in pairs)


def record(
    delta: int = 0,
    *,
    time: int | bytes = 0,
    offset: bytes | None = None,
    key: bytes | None = b"k",
    key_bytes: int | None = None,
    value: bytes | None = b"v",
    value_bytes: int | None = None,
    attributes: int = 0,
    headers: bytes = b"\0",
    extra: bytes = b"",
    length: int | bytes | None = None,
) -> bytes:
    """A record with this offset delta. The other arguments make it odd. A number can be given as its encoding."""
    body = bytes((attributes,)) + (time if isinstance(time, bytes) else encode_varint(time))
    body += encode_varint(delta) if offset is None else offset
    body += _bytes(key, key_bytes) + _bytes(value, value_bytes) + headers + extra
    if isinstance(length, bytes):
        return length + body
    return encode_varint(len(body) if length is None else length) + body


def raw_batch(payload: bytes, count: int, compression: int = 0, **header: int) -> bytearray:
    """A batch of this payload, which is compressed already, with a right CRC."""
    fields = BatchHeader(
        base_offset=0,
        length=HEADER_BYTES - 12 + len(payload),
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=compression,
        last_offset_delta=count - 1,
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )._replace(**header)
    batch = bytearray(pack_header(fields)) + payload
    renew_crc(batch)
    return batch


@dataclass(frozen=True)
class Defect:
    """`payload` holds `count` records, but for the defect. The codes are those of a topic without settings."""

    payload: bytes
    count: int = 2
    kafka: ErrorCode = INVALID
    #: Of a compressed batch, where that differs.
    kafka_compressed: ErrorCode | None = None
    #: Where it differs from Kafka's: a client would never get past the record, or Kafka's code says nothing.
    ours: ErrorCode | None = None
    header: dict[str, int] = field(default_factory=dict)

    @property
    def expected(self) -> ErrorCode:
        return self.kafka if self.ours is None else self.ours


_LONG = b"\x80" * 5 + b"\0"
_ONE, _TWO = record(), record(1)

DEFECTS: dict[str, Defect] = {
    "none": Defect(_ONE + _TWO, kafka=OK),
    "no defect: headers": Defect(record(headers=headers((b"a", b"b"), (b"", None))) + _TWO, kafka=OK),
    "no defect: nulls": Defect(record(key=None, value=None) + _TWO, kafka=OK),
    # The count. librdkafka reads what is there, at wrong offsets.
    "fewer records than the count": Defect(_ONE + _TWO, 3),
    "far fewer": Defect(_ONE + _TWO, 2**31 - 1),
    "more records than the count": Defect(_ONE + _TWO, 1),
    "a count of 0": Defect(_ONE + _TWO, 0),
    "a negative count": Defect(_ONE + _TWO, -1),
    # The next two: a batch without records ends a process with librdkafka ("Assertion `r == 0' failed").
    "nothing, and a count of 0": Defect(b"", 0),
    "nothing, and a count of 1": Defect(b"", 1),
    "last offset delta above the count": Defect(_ONE + _TWO, header={"last_offset_delta": 5}),
    "last offset delta below the count": Defect(_ONE + _TWO, header={"last_offset_delta": 0}),
    "a byte behind": Defect(_ONE + _TWO + b"\0"),
    # The length of a record. With any of these librdkafka's consumers stay at the batch for ever.
    "garbage": Defect(b"garbage" * 10, 5),
    "zeros": Defect(bytes(70), 5),
    "a negative length": Defect(record(length=-5) + _TWO, kafka_compressed=OK),
    "a length of 0": Defect(record(length=0) + _TWO, kafka_compressed=OK),
    "a length of 3": Defect(record(length=3) + _TWO, kafka_compressed=OK),
    "a length below the fields": Defect(record(length=7) + _TWO, kafka_compressed=OK),
    "a length above the fields": Defect(record(length=9) + _TWO, kafka_compressed=OK),
    "a length beyond the payload": Defect(_ONE + record(1, length=100), kafka_compressed=OK),
    "a length of 2^31 - 1": Defect(record(length=2**31 - 1) + _TWO, kafka_compressed=OK),
    "a byte more than the fields": Defect(record(extra=b"x") + _TWO),
    # Numbers. Java ignores bits beyond 32, others do not.
    "a length of 11 bytes": Defect(
        record(length=b"\xff" * 10 + b"\1") + _TWO, kafka=UNKNOWN, kafka_compressed=INVALID, ours=INVALID
    ),
    "a length of 6 bytes": Defect(
        record(length=_LONG) + _TWO, kafka=UNKNOWN, kafka_compressed=INVALID, ours=INVALID
    ),
    "no defect: a length in two bytes": Defect(record(length=b"\x90\x00") + _TWO, kafka=OK),
    "no defect: a length in five bytes": Defect(record(length=b"\x90\x80\x80\x80\x00") + _TWO, kafka=OK),
    "a length of 33 bits": Defect(record(length=b"\x90\x80\x80\x80\x10") + _TWO, kafka=OK, ours=INVALID),
    "a timestamp of 11 bytes": Defect(record(time=b"\xff" * 10 + b"\1") + _TWO),
    "no defect: a timestamp in ten bytes": Defect(record(time=b"\x80" * 9 + b"\0") + _TWO, kafka=OK),
    "a timestamp of 65 bits": Defect(record(time=b"\x80" * 9 + b"\2") + _TWO, kafka=OK, ours=INVALID),
    "an offset of 6 bytes": Defect(record(offset=_LONG) + _TWO),
    # Keys, values, headers. Java reads -2 as null; librdkafka stays at the batch.
    "a key of -2 bytes": Defect(record(key=b"", key_bytes=-2) + _TWO, kafka=OK, ours=INVALID),
    "a key beyond its record": Defect(record(key_bytes=20) + _TWO),
    "a key beyond the last record": Defect(_ONE + record(1, key_bytes=20)),
    "a key of 2^31 - 1 bytes": Defect(record(key_bytes=2**31 - 1) + _TWO),
    "a value of -2 bytes": Defect(record(value=b"", value_bytes=-2) + _TWO, kafka=OK, ours=INVALID),
    "a value beyond its record": Defect(record(value_bytes=10) + _TWO),
    "a value beyond the last record": Defect(_ONE + record(1, value_bytes=10)),
    "no headers at all": Defect(record(headers=b"") + _TWO),
    "-1 headers": Defect(record(headers=encode_varint(-1)) + _TWO),
    "2^31 - 1 headers": Defect(record(headers=encode_varint(2**31 - 1)) + _TWO),
    "five headers, none there": Defect(record(headers=encode_varint(5)) + _TWO),
    "a header without a key": Defect(record(headers=headers((None, b"v"))) + _TWO),
    "a header key of -2 bytes": Defect(record(headers=b"\2" + encode_varint(-2) + _bytes(b"v")) + _TWO),
    "a header key beyond its record": Defect(
        record(headers=b"\2" + encode_varint(20) + b"a" + _bytes(b"v")) + _TWO
    ),
    "no defect: a header key not in UTF-8": Defect(record(headers=headers((b"\xff", b"v"))) + _TWO, kafka=OK),
    "a header value of -2 bytes": Defect(
        record(headers=b"\2" + _bytes(b"k") + encode_varint(-2)) + _TWO, kafka=OK, ours=INVALID
    ),
    "a header value beyond its record": Defect(
        record(headers=b"\2" + _bytes(b"k") + encode_varint(20) + b"a") + _TWO
    ),
    "no defect: attributes": Defect(record(attributes=255) + _TWO, kafka=OK),
    # Offset deltas. Kafka's broker does not look at them in uncompressed batches, and fails in compressed ones.
    "deltas from 1 on": Defect(record(1) + record(2), kafka=OK, kafka_compressed=UNKNOWN, ours=INVALID),
    "deltas that fall": Defect(record(1) + record(0), kafka=OK, kafka_compressed=UNKNOWN, ours=INVALID),
    "deltas that repeat": Defect(record(0) + record(0), kafka=OK, kafka_compressed=UNKNOWN, ours=INVALID),
    "deltas with a hole": Defect(record(0) + record(5), kafka=OK, kafka_compressed=UNKNOWN, ours=INVALID),
    "a negative delta": Defect(record(0) + record(-1), kafka=OK, kafka_compressed=UNKNOWN, ours=INVALID),
    "a delta of -2^31": Defect(record(-(2**31)) + _TWO, kafka=OK, kafka_compressed=UNKNOWN, ours=INVALID),
    # Timestamps.
    "a timestamp before 1970 by far": Defect(
        _ONE + _TWO, kafka=MISDATED, header={"base_timestamp": -(2**63), "max_timestamp": -(2**63)}
    ),
    "a timestamp of more than 64 bits": Defect(record(time=2**63 - 1) + _TWO, kafka=MISDATED),
    "two hours ahead": Defect(record(time=2 * HOUR_MS) + _TWO, kafka=MISDATED),
    "two hours ahead, as the header says": Defect(
        record(time=2 * HOUR_MS) + _TWO, kafka=MISDATED, header={"max_timestamp": NOW_MS + 2 * HOUR_MS}
    ),
}

#: The header's largest timestamp is corrected: (payload, what the header says, what is right).
MAX_TIMESTAMPS: dict[str, tuple[bytes, dict[str, int], int]] = {
    "right": (_ONE + record(1, time=7), {"max_timestamp": NOW_MS + 7}, NOW_MS + 7),
    "below the records": (record(time=5000) + _TWO, {}, NOW_MS + 5000),
    "above the records": (_ONE + _TWO, {"max_timestamp": NOW_MS + 7000}, NOW_MS),
    "all before the base": (record(time=-3000) + record(1, time=-2000), {}, NOW_MS - 2000),
    "-1": (_ONE + _TWO, {"max_timestamp": -1}, NOW_MS),
    "the largest": (_ONE + _TWO, {"max_timestamp": 2**63 - 1}, NOW_MS),
    "the least": (_ONE + _TWO, {"max_timestamp": -(2**63)}, NOW_MS),
    "no timestamps": (_ONE + _TWO, {"base_timestamp": -1, "max_timestamp": -1}, -1),
    "a few milliseconds before 1970": (_ONE + _TWO, {"base_timestamp": -5, "max_timestamp": -5}, -1),
}


def snappy(data: bytes) -> bytes:
    from cramjam import snappy as codec

    return bytes(codec.compress_raw(data))


def xerial(data: bytes) -> bytes:
    block = snappy(data)
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


def lz4(data: bytes, **options: object) -> bytes:
    from lz4.frame import compress

    return bytes(compress(data, **{"store_size": False, "block_linked": False} | options))


def zstd(data: bytes, window_log: int = 0) -> bytes:
    from zstandard import ZstdCompressionParameters, ZstdCompressor

    stream = ZstdCompressor(
        compression_params=ZstdCompressionParameters(compression_level=1, window_log=window_log)
    ).compressobj()
    return stream.compress(data) + stream.flush()


CODECS: dict[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    "gzip": (Compression.GZIP, gzip.compress),
    "snappy": (Compression.SNAPPY, snappy),
    "xerial": (Compression.SNAPPY, xerial),
    "lz4": (Compression.LZ4, lz4),
    "zstd": (Compression.ZSTD, zstd),
}

_GOOD = _ONE + _TWO
#: Two records that take two blocks of lz4, which can then depend on each other.
_TWO_BLOCKS = b"".join(record(delta, value=bytes(range(256)) * 200) for delta in (0, 1))


def _flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def _stream_defects(codec: str) -> dict[str, tuple[bytes, ErrorCode, ErrorCode]]:
    compress = CODECS[codec][1]
    good = compress(_GOOD)
    kafka_ignores = OK if codec in ("gzip", "lz4") else UNKNOWN
    return {
        "none": (good, OK, OK),
        "empty": (b"", INVALID if codec == "zstd" else UNKNOWN, INVALID),
        "garbage": (b"garbage" * 10, UNKNOWN, INVALID),
        "cut by 1": (good[:-1], UNKNOWN, INVALID),
        "cut by 9": (good[:-9], UNKNOWN, INVALID),
        "cut in the middle": (good[: len(good) // 2], UNKNOWN, INVALID),
        "garbage behind": (good + b"garbage", kafka_ignores, INVALID),
        "zeros behind": (good + bytes(9), kafka_ignores, INVALID),
        # A batch without records ends a process with librdkafka.
        "of nothing": (compress(b""), INVALID, INVALID),
    }


#: "codec: defect" -> (compression, compressed payload, Kafka's code, ours). All hold two records, if any.
STREAM_DEFECTS: dict[str, tuple[Compression, bytes, ErrorCode, ErrorCode]] = {
    f"{codec}: {name}": (CODECS[codec][0], *rest)
    for codec in CODECS
    for name, rest in _stream_defects(codec).items()
} | {
    f"{codec}: {name}": (CODECS[codec][0], payload, kafka, ours)
    for codec, name, payload, kafka, ours in [
        # librdkafka reads the first member of gzip alone, and the records of the second are lost.
        ("gzip", "two members", gzip.compress(_ONE) + gzip.compress(_TWO), OK, INVALID),
        ("gzip", "wrong CRC", _flipped(gzip.compress(_GOOD), -8), UNKNOWN, INVALID),
        ("gzip", "wrong size", _flipped(gzip.compress(_GOOD), -4), UNKNOWN, INVALID),
        ("gzip", "zlib's format", zlib.compress(_GOOD), UNKNOWN, INVALID),
        ("snappy", "more declared than there is", b"\x20" + snappy(_GOOD)[1:], UNKNOWN, INVALID),
        ("snappy", "4 GiB declared", b"\xff\xff\xff\xff\x0f" + snappy(_GOOD)[1:], UNKNOWN, INVALID),
        ("xerial", "two blocks", xerial(_ONE) + xerial(_TWO)[16:], OK, OK),
        ("xerial", "two streams", xerial(_ONE) + xerial(_TWO), OK, INVALID),
        ("xerial", "a block of 0 bytes", xerial(_GOOD) + struct.pack(">i", 0), UNKNOWN, INVALID),
        ("xerial", "a block of -1 bytes", xerial(_GOOD) + struct.pack(">i", -1), UNKNOWN, INVALID),
        ("xerial", "no block", xerial(_GOOD)[:16], INVALID, INVALID),
        # Java reads the first frame of lz4 alone, and librdkafka nothing then.
        ("lz4", "two frames", lz4(_ONE) + lz4(_TWO), INVALID, INVALID),
        ("lz4", "an empty second frame", lz4(_GOOD) + lz4(b""), OK, INVALID),
        ("lz4", "blocks that depend on each other", lz4(_TWO_BLOCKS, block_linked=True), UNKNOWN, INVALID),
        ("lz4", "independent blocks", lz4(_TWO_BLOCKS), OK, OK),
        ("lz4", "blocks of 4 MiB", lz4(_TWO_BLOCKS, block_size=7), OK, OK),
        ("lz4", "its size", lz4(_GOOD, store_size=True), OK, OK),
        ("lz4", "checksums", lz4(_GOOD, content_checksum=True, block_checksum=True), OK, OK),
        ("lz4", "wrong content checksum", _flipped(lz4(_GOOD, content_checksum=True), -1), OK, INVALID),
        ("lz4", "wrong block checksum", _flipped(lz4(_GOOD, block_checksum=True), -5), UNKNOWN, INVALID),
        ("lz4", "wrong header checksum", _flipped(lz4(_GOOD), 6), UNKNOWN, INVALID),
        ("zstd", "two frames", zstd(_ONE) + zstd(_TWO), OK, OK),
        ("zstd", "a skippable frame", struct.pack("<II", 0x184D2A5F, 3) + b"abc" + zstd(_GOOD), OK, OK),
        ("zstd", "a skippable frame cut", zstd(_GOOD) + struct.pack("<II", 0x184D2A5F, 3), OK, INVALID),
        ("zstd", "window of 128 MiB", zstd(_GOOD, window_log=27), OK, OK),
        ("zstd", "window of 256 MiB", zstd(_GOOD, window_log=28), UNKNOWN, INVALID),
    ]
}
