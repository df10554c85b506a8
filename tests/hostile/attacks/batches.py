"""Record batches that unfold to very much, and batches that are not what they claim to be."""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import zstandard
from confluent_kafka import Consumer, TopicPartition

from protocol.errors import ErrorCode
from protocol.records.batch import HEADER_BYTES, parse_header
from protocol.records.builder import NewRecord, build_batch
from protocol.records.crc import crc32c
from protocol.records.record import encode_varint
from protocol.wire import uvarint
from tests.hostile.attacks.attack import Seen
from tests.hostile.target import Target
from tests.integration.wire import Wire, produce_request

MIB = 1 << 20
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
_TOPICS = {
    "hostile-plain": {},
    "hostile-compacted": {"cleanup_policy": "compact"},
    "hostile-dated": {"message_timestamp_before_max_ms": "3600000"},
    "hostile-append-time": {"message_timestamp_type": "LogAppendTime"},
}


def batch(
    codec: int, payload: bytes, count: int, *, delta: int | None = None, timestamp_ms: int | None = None
) -> bytes:
    """A batch with a valid CRC over any payload. `delta`: the last offset delta, if it is not what `count` says."""
    at_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    last = count - 1 if delta is None else delta
    body = struct.pack(">hiqqqhii", codec, last, at_ms, at_ms, -1, -1, -1, count) + payload
    return struct.pack(">qiib", 0, 9 + len(body), 0, 2) + struct.pack(">I", crc32c(body)) + body


# -- bombs -------------------------------------------------------------------------------------------------


def _zeros(size_mib: int) -> Iterator[bytes]:
    yield from (bytes(MIB) for _ in range(size_mib))


def _gzip(size_mib: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(each) for each in _zeros(size_mib)) + packer.flush()


def _lz4(size_mib: int) -> bytes:
    packer = lz4.frame.LZ4FrameCompressor()
    parts = [packer.begin(), *(packer.compress(each) for each in _zeros(size_mib)), packer.flush()]
    return b"".join(parts)


def _zstd(size_mib: int) -> bytes:
    packer = zstandard.ZstdCompressor(level=19).compressobj()
    return b"".join(packer.compress(each) for each in _zeros(size_mib)) + packer.flush()


def _snappy(size_mib: int) -> bytes:
    """One literal byte, and copies of it."""
    size = size_mib * MIB
    return uvarint(size) + b"\x00\x00" + b"\xfe\x01\x00" * ((size - 1) // 64)


def _bombs() -> dict[str, bytes]:
    return {
        "gzip of 900 MiB": batch(GZIP, _gzip(900), 1000),
        "snappy of 16 MiB": batch(SNAPPY, _snappy(16), 1000),
        "snappy that declares 4 GiB": batch(SNAPPY, uvarint(2**32 - 1) + b"\0\0", 1000),
        "lz4 of 200 MiB": batch(LZ4, _lz4(200), 1000),
        "zstd of 2 GiB": batch(ZSTD, _zstd(2048), 1000),
    }


def bombs(target: Target) -> Seen:
    """Batches that unfold to up to 2 GiB, on topics of four kinds: one of each, then 200 of each over 20 connections.
    Each has to be refused."""
    seen = Seen()
    for topic, configs in _TOPICS.items():
        target.create(topic, 1, **configs)
    prepared = _bombs()
    for topic in _TOPICS:
        leader = target.leader_of(topic)
        for name, each in prepared.items():
            with target.connect(leader, 60) as wire:
                _note(seen, f"{name} on {topic}", wire.produce(topic, each).error_code)
    for each in prepared.values():
        _flood(target, seen, "hostile-compacted", each)
    return seen


def _flood(target: Target, seen: Seen, topic: str, bomb: bytes) -> None:
    leader = target.leader_of(topic)
    request = produce_request(topic, bomb)

    def flood(_: int) -> list[str]:
        answers: list[str] = []
        with target.connect(leader, 60) as wire:
            for _ in range(10):
                wire.send(request, 9)
            try:
                for _ in range(10):
                    wire.receive_frame()
                    answers.append("answered")
            except TimeoutError:
                answers.append("no answer")
            except OSError:
                answers.append("closed")
        return answers

    with ThreadPoolExecutor(20) as pool:
        for answers in pool.map(flood, range(20)):
            seen.counts.update(answers)
            if "no answer" in answers:
                seen.defects.append(f"no answer to a batch on {topic} within 60 s")


def _note(seen: Seen, what: str, error_code: int) -> None:
    """The answer to a batch that has to be refused."""
    error = ErrorCode(error_code)
    seen.counts[error.name] += 1
    if error is ErrorCode.NONE:
        seen.defects.append(f"{what}: acknowledged")


# -- poison ------------------------------------------------------------------------------------------------


def _zigzag(value: int) -> bytes:
    return bytes(encode_varint(value))


def _poison() -> dict[str, bytes]:
    good = bytes(build_batch([NewRecord(b"k", b"v", int(time.time() * 1000))]))
    record = good[HEADER_BYTES:]
    many_headers = _zigzag(30) + b"\0\0\0" + b"\x02k\x02v" + _zigzag(2**31 - 1) + bytes(20)
    return {
        "1,000 records claimed, one there": batch(0, record, 1000),
        "2^31 - 1 records claimed": batch(GZIP, gzip.compress(record), 2**31 - 1),
        "two records claimed, one there": batch(0, record, 2),
        "one record claimed, two there": batch(0, record + record, 1),
        "no record": batch(0, record, 0, delta=-1),
        "-1 records": batch(0, record, -1, delta=-2),
        "an offset delta beyond the count": batch(0, record, 1, delta=2**31 - 2),
        "garbage as gzip": batch(GZIP, b"garbage" * 10, 5),
        "garbage as snappy": batch(SNAPPY, b"garbage" * 10, 5),
        "garbage as lz4": batch(LZ4, b"garbage" * 10, 5),
        "garbage as zstd": batch(ZSTD, b"garbage" * 10, 5),
        "an unknown codec": batch(7, record, 1),
        "a negative length of a record": batch(0, _zigzag(-5) + bytes(20), 1),
        "an endless varint": batch(0, b"\xff" * 9 + b"\x01" + bytes(20), 1),
        "2^31 - 1 headers": batch(0, many_headers, 1),
        "a key of 2^31 bytes": batch(0, _zigzag(30) + b"\0\0\0" + _zigzag(2**31 - 1) + b"k" * 25, 1),
        "a negative offset delta": batch(0, _zigzag(8) + b"\0\0" + _zigzag(-7) + b"\x02k\x02v\0", 1),
        "a control batch": batch(0x20, record, 1),
    }


def poison(target: Target) -> Seen:
    """Batches with a valid CRC that no consumer could read. Each has to be refused, and a consumer has to get what was
    produced before, between and after them."""
    seen = Seen()
    good = bytes(build_batch([NewRecord(b"k", b"v", int(time.time() * 1000))]))
    assert parse_header(good).count == 1
    for topic, configs in _TOPICS.items():
        target.create(topic, 1, **configs)
        leader = target.leader_of(topic)
        good_offsets: list[int] = []
        for name, each in _poison().items():
            with target.connect(leader) as wire:
                good_offsets.append(_produced(wire, topic, good))
                _note(seen, f"{name} on {topic}", wire.produce(topic, each).error_code)
                good_offsets.append(_produced(wire, topic, good))
        lacking = set(good_offsets) - _consumed(target, topic, good_offsets[0], good_offsets[-1])
        if lacking:
            seen.defects.append(
                f"{topic}: a consumer does not get {len(lacking)} of {len(good_offsets)} records"
            )
    return seen


def _produced(wire: Wire, topic: str, good: bytes) -> int:
    answer = wire.produce(topic, good)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.base_offset


def _consumed(target: Target, topic: str, first: int, last: int) -> set[int]:
    """The offsets in [first, last] that librdkafka delivers."""
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "hostile-poison", "log_level": 0})
    found: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, 0, first)])
        while last not in found and (message := consumer.poll(10)) is not None and not message.error():
            found.add(message.offset() or 0)
    finally:
        consumer.close()
    return found
