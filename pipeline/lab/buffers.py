"""buffers: a thousand partitions and a bounded queue. What blocks when, how that shows, and what memory it takes.

Java's producer gives each partition a buffer of batch.size; librdkafka keeps records by the message, and its
queue.buffering.max.kbytes bounds them all.
"""

from __future__ import annotations

from pipeline.lab.bench import Bench
from pipeline.lab.observed import Observed, Traffic, filled, observe
from pipeline.report.findings import TableOf, plot_of
from pipeline.report.sweep import Axis, Series, Sweep

_VALUE_BYTES = 1000
_BATCH_BYTES = 16_384


def run(bench: Bench) -> Sweep:
    partitions = 20 if bench.is_quick else 1000
    seconds = 1.0 if bench.is_quick else 8.0
    bounds_kb = (1024, 65_536) if bench.is_quick else (1024, 8192, 65_536)
    table = TableOf(
        f"A queue with a bound, over {partitions:,} partitions",
        [
            ("queue.buffering.max.kbytes", "KiB"),
            ("acked", "MB/s"),
            "full",
            ("waiting for room", "% of the time"),
            ("in the queue", "ms"),
            ("p50", "ms"),
            ("p99", "ms"),
            ("memory", "MiB"),
            "records per batch",
        ],
        text=(
            "As fast as it goes. Full: how often `produce` found no room (BufferError; Java's `send` blocks instead,"
            f" for max.block.ms). {partitions:,} x batch.size would be {partitions * _BATCH_BYTES / 2**20:,.0f} MiB."
        ),
    )
    bench.warm_up()
    topic = bench.topic("buffers", partitions=partitions)
    found: dict[int, Observed] = {}
    for bound_kb in bounds_kb:
        settings = {
            "queue.buffering.max.kbytes": bound_kb,
            "batch.size": _BATCH_BYTES,
            "linger.ms": 5,
        }
        traffic = Traffic(topic, filled(_VALUE_BYTES), seconds, spread_over=partitions)
        observed = found[bound_kb] = observe(bench.bootstrap_server, settings, traffic)
        table.add(
            bound_kb,
            observed.megabytes_per_s,
            observed.full_waits,
            100 * min(1.0, observed.full_s / observed.seconds),
            observed.queue_ms,
            observed.latency_ms(0.5),
            observed.latency_ms(0.99),
            observed.memory_bytes / 2**20,
            observed.records_per_batch,
        )
        bench.say(
            f"{bound_kb:,} KiB: {observed.megabytes_per_s:.1f} MB/s, full {observed.full_waits:,} times"
        )
    plot = plot_of(
        "Where the time goes, by the queue's bound",
        Axis("queue.buffering.max.kbytes", "KiB", "log"),
        Axis("time", "ms", "log"),
        Series("in the queue (mean)", [(kb, max(o.queue_ms, 0.01)) for kb, o in found.items()], False),
        Series("to the acknowledgement (p50)", [(kb, o.latency_ms(0.5)) for kb, o in found.items()], False),
    )
    return Sweep("Buffers of a producer", _said(found, partitions), [table.table()], [plot])


def _said(found: dict[int, Observed], partitions: int) -> str:
    smallest, largest = found[min(found)], found[max(found)]
    return (
        f"With room for {min(found):,} KiB the producer found its queue full {smallest.full_waits:,} times and waited"
        f" {100 * min(1.0, smallest.full_s / smallest.seconds):.0f} % of the time for room; it acknowledged"
        f" {smallest.megabytes_per_s:.1f} MB/s. With {max(found):,} KiB it was {largest.megabytes_per_s:.1f} MB/s,"
        f" {largest.full_waits:,} times full, and a record spent {largest.queue_ms:,.0f} ms in the queue (before:"
        f" {smallest.queue_ms:,.0f}): a larger queue turns waiting in front of it into waiting within it. The process"
        f" grew by {smallest.memory_bytes / 2**20:,.0f} and {largest.memory_bytes / 2**20:,.0f} MiB, where"
        f" {partitions:,} buffers of batch.size would be {partitions * _BATCH_BYTES / 2**20:,.0f} MiB."
    )
