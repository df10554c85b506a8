"""The jobs that read: from offset 0 to the end, for the time it takes or for what is there."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from benchmarks.python_driver.client import client, emit, log_end, new_producer

CONSUME_BATCH = 20_000


@dataclass
class Pass:
    """One reading of offsets 0 up to an end. The clock runs from the first records to the last."""

    records: int = 0
    size_bytes: int = 0
    errors: int = 0
    timed_records: int = 0
    timed_bytes: int = 0
    seconds: float = 0.0


def read_through(options: argparse.Namespace, end_offset: int, seen: Counter[int] | None) -> Pass:
    result, next_offset, first_s, progress_s = Pass(), 0, 0.0, time.monotonic()
    settings = client(options, group_id="varve-bench", enable_auto_commit=False, auto_offset_reset="error")
    consumer = Consumer(settings | {"queued.min.messages": 2_000_000, "queued.max.messages.kbytes": 262_144})
    consumer.assign([TopicPartition(options.topic, 0, 0)])
    before_timing = (0, 0)
    while next_offset < end_offset:
        messages = consumer.consume(CONSUME_BATCH, 0.1)
        now_s = time.monotonic()
        if not messages and now_s - progress_s > options.timeout_ms / 1e3:
            result.errors += end_offset - next_offset
            break
        for message in messages:
            offset, value = message.offset(), message.value() or b""
            if message.error() is not None or offset is None:
                result.errors += 1
                continue
            result.errors += offset != next_offset
            next_offset = offset + 1
            result.records += 1
            result.size_bytes += len(value)
            if seen is not None:
                seen[int.from_bytes(value[:8], sys.byteorder)] += 1
        if messages:
            if not first_s:
                first_s, before_timing = now_s, (result.records, result.size_bytes)
            progress_s = now_s
    result.seconds = progress_s - first_s
    result.timed_records, result.timed_bytes = (
        result.records - before_timing[0],
        result.size_bytes - before_timing[1],
    )
    consumer.close()
    return result


def run_consume(options: argparse.Namespace) -> None:
    emit("begin")
    passes: list[Pass] = []
    deadline = time.monotonic() + options.seconds
    while not passes or (time.monotonic() < deadline and not passes[-1].errors):
        passes.append(read_through(options, options.expect_records, None))
    emit("end")
    emit(
        "result",
        records=sum(one.records for one in passes),
        bytes=sum(one.size_bytes for one in passes),
        timed_records=sum(one.timed_records for one in passes),
        timed_bytes=sum(one.timed_bytes for one in passes),
        seconds=sum(one.seconds for one in passes),
        passes=len(passes),
        errors=sum(one.errors for one in passes),
    )


def run_check(options: argparse.Namespace) -> None:
    seen: Counter[int] = Counter()
    result = read_through(options, log_end(new_producer(options, 1, 0), options), seen)
    expected = range(options.expect_records)
    foreign = sum(count for sequence, count in seen.items() if sequence not in expected)
    emit(
        "result",
        records=result.records,
        missing=sum(sequence not in seen for sequence in expected),
        duplicates=sum(seen[sequence] - 1 for sequence in expected if seen[sequence] > 1),
        errors=result.errors + foreign,
    )
