"""Other readers make the same of compacted batches: aiokafka, and a consumer with librdkafka."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from aiokafka.record import MemoryRecords

from protocol.records.batch import Compression, parse_header, renew_crc
from protocol.records.control import remnant_is_commit
from storage.compaction.rewriting import emptied
from tests.storage.compaction.model import History, Replica, data_of, horizon_of, read_committed
from tests.storage.compaction.one_log_broker import TOPIC, one_log_broker

_CONSUMER = """
import json, os, sys, time
from confluent_kafka import Consumer, TopicPartition
address, topic, isolation = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False,
    "isolation.level": isolation, "enable.partition.eof": True, "check.crcs": True})
consumer.assign([TopicPartition(topic, 0, 0)])
seen, end = [], None
deadline = time.monotonic() + 10
while end is None and time.monotonic() < deadline:
    message = consumer.poll(0.1)
    if message is None:
        continue
    if message.error() is None:
        text = lambda data: None if data is None else data.decode()
        seen.append([message.offset(), message.timestamp()[1], text(message.key()), text(message.value())])
    elif message.error().name() == "_PARTITION_EOF":
        end = message.offset()
print(json.dumps([seen, end]), flush=True)
os._exit(0)
"""


def compacted() -> Replica:
    """A log with a batch of each kind that compaction writes: records left out, a delete horizon, the transactional bit
    cleared, emptied data, markers with a horizon, and remnants of both kinds."""
    history = History()
    replica = history.replica()
    for compression in Compression:
        for pid, is_commit in [(1, True), (2, False)]:
            key = b"%d" % compression
            history.write(
                (key, b"v"), (b"only " + key, b"v" * 300), (key, None),
                pid=pid, is_transactional=True, compression=compression,
            )  # fmt: skip
            history.end(pid, is_commit=is_commit)
        if compression == Compression.SNAPPY:
            history.roll()
            replica.compact()
            history.now_ms += 600
    history.write((b"end", b"v"), is_append_time=True)
    history.roll()
    replica.compact(max_tombstone_remove_offset=-1)
    headers = [parse_header(batch) for batch in replica.batches]
    assert {remnant_is_commit(header) for header in headers} == {None, True, False}
    assert any(not header.count and not header.is_control for header in headers)
    assert any(horizon_of(batch) is not None and header.is_control and header.count
               for batch, header in zip(replica.batches, headers, strict=True))  # fmt: skip
    history.write((b"open", b"v"), pid=1, is_transactional=True)
    history.end(1, is_commit=False)
    history.write((b"last", b"v"))
    return replica


def consumed(batches: list[bytes], *, isolation: str, is_one_by_one: bool, aborted: Any = ()) -> Any:
    with one_log_broker(batches, aborted, is_one_by_one=is_one_by_one) as address:
        done = subprocess.run(
            [sys.executable, "-c", _CONSUMER, address, TOPIC, isolation],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("is_one_by_one", [False, True])
def test_librdkafka_reads_a_compacted_log_to_its_end(is_one_by_one: bool) -> None:
    replica = compacted()
    history = replica.history
    first_offset = history.end_offset - 3
    seen, end = consumed(
        replica.batches, isolation="read_committed", is_one_by_one=is_one_by_one, aborted=[(1, first_offset)]
    )
    assert end == history.end_offset
    expected = read_committed(replica.batches, history.end_offset)
    assert [offset for offset, *_ in seen] == [record.offset for record in expected]
    assert [[time, *map(_bytes, pair)] for _, time, *pair in seen] == [
        list(record[1:4]) for record in expected
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def test_librdkafka_stops_at_a_compressed_batch_without_records() -> None:
    """So `emptied` clears the codec."""
    history = History()
    replica = history.replica()
    for key in (b"a", b"b", b"c"):
        history.write((key, b"v"))
    empty = emptied(parse_header(replica.batches[1]))
    for codec, expected in [(Compression.NONE, [0, 2]), (Compression.GZIP, [0])]:
        empty[22] = codec
        renew_crc(empty)
        batches = [replica.batches[0], bytes(empty), replica.batches[2]]
        seen, end = consumed(batches, isolation="read_uncommitted", is_one_by_one=True)
        assert [offset for offset, *_ in seen] == expected
        assert (end is None) is (codec is Compression.GZIP)


def test_aiokafka_reads_a_compacted_log() -> None:
    replica = compacted()
    records = MemoryRecords(b"".join(replica.batches))
    seen = []
    for stored in replica.batches:
        batch = records.next_batch()
        header = parse_header(stored)
        assert batch.validate_crc()
        assert batch.is_transactional is header.is_transactional
        assert batch.is_control_batch is header.is_control
        assert batch.base_offset == header.base_offset
        if not header.is_control:
            seen += [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch]
    assert records.next_batch() is None
    assert seen == data_of(replica.batches)
