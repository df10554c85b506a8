"""density: how many records get into a batch, beside the model: what comes within linger.ms, up to batch.size.

A batch costs the same requests, headers and turns whether it holds one record or a hundred.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.lab.bench import Bench
from pipeline.lab.observed import Observed, Traffic, filled, observe
from pipeline.report.findings import TableOf, plot_of
from pipeline.report.sweep import Axis, Plot, Series, Sweep

_VALUE_BYTES = 200
#: Of a record in format 2: lengths, deltas, no key, no headers.
_RECORD_OVERHEAD_BYTES = 8
#: Of a record batch in format 2.
BATCH_HEADER_BYTES = 61
_CLOSE = 0.5


@dataclass(frozen=True, slots=True)
class Point:
    batch_bytes: int
    linger_ms: float
    rate_per_s: float
    partitions: int

    @property
    def model(self) -> float:
        """Records per batch: those that come to one partition within linger.ms, one at least, at most as many as"
        " fit."""
        come = self.rate_per_s / self.partitions * self.linger_ms / 1000
        fit = self.batch_bytes / (_VALUE_BYTES + _RECORD_OVERHEAD_BYTES)
        return max(1.0, min(1.0 + come, fit))


def points(is_quick: bool) -> list[Point]:
    if is_quick:
        return [Point(16_384, linger_ms, 2000, 1) for linger_ms in (0, 20)]
    return [
        Point(batch_bytes, linger_ms, rate_per_s, partitions)
        for rate_per_s in (1000, 5000)
        for partitions in (1, 12)
        for batch_bytes in (4096, 65_536)
        for linger_ms in (0, 5, 20, 100)
    ]


def run(bench: Bench) -> Sweep:
    seconds = 1.0 if bench.is_quick else 3.0
    tried = TableOf(
        "Records per batch, measured and by the model",
        [
            ("rate", "1/s"),
            "partitions",
            ("batch.size", "B"),
            ("linger.ms", "ms"),
            "measured",
            "model",
            ("headers", "%"),
            ("p50", "ms"),
            ("p99", "ms"),
        ],
        text="Records go to the partitions in turn. Headers: share of the batch header in the bytes of a batch.",
    )
    bench.warm_up()
    topics = {
        count: bench.topic("density", partitions=count)
        for count in {p.partitions for p in points(bench.is_quick)}
    }
    found: list[tuple[Point, Observed]] = []
    for point in points(bench.is_quick):
        observed = observe(
            bench.bootstrap_server,
            {"batch.size": point.batch_bytes, "linger.ms": point.linger_ms},
            Traffic(
                topics[point.partitions], filled(_VALUE_BYTES), seconds, point.rate_per_s, point.partitions
            ),
        )
        found.append((point, observed))
        tried.add(
            int(point.rate_per_s),
            point.partitions,
            point.batch_bytes,
            point.linger_ms,
            observed.records_per_batch,
            point.model,
            100 * header_share(observed),
            observed.latency_ms(0.5),
            observed.latency_ms(0.99),
        )
        bench.say(f"{point}: {observed.records_per_batch:.1f} records per batch, model {point.model:.1f}")
    sticky = _sticky(bench, seconds)
    return Sweep("Density of batches", _said(found, sticky), [tried.table(), sticky.table()], [_plot(found)])


def header_share(observed: Observed) -> float:
    return BATCH_HEADER_BYTES * observed.batches / observed.batch_bytes if observed.batch_bytes else 0.0


def _sticky(bench: Bench, seconds: float) -> TableOf:
    """Records without keys over 12 partitions, a few at a time: where all go to one partition for a while, and where
    each goes to another."""
    table = TableOf(
        "Sparse records without keys over 12 partitions",
        ["partitioner", ("linger.ms", "ms"), "records per batch", ("p50", "ms")],
        text=(
            "sticky.partitioning.linger.ms keeps records without a key on one partition for a while (KIP-480); 0:"
            " each goes its own way."
        ),
    )
    topic = bench.topic("density-sticky", partitions=12)
    for name, sticky_ms in (("sticky", 20), ("random", 0)):
        settings = {"linger.ms": 10, "sticky.partitioning.linger.ms": sticky_ms}
        observed = observe(
            bench.bootstrap_server, settings, Traffic(topic, filled(_VALUE_BYTES), seconds, 1000)
        )
        table.add(name, 10, observed.records_per_batch, observed.latency_ms(0.5))
    return table


def _plot(found: list[tuple[Point, Observed]]) -> Plot:
    """Of the highest rate with the largest batches: the curve that linger.ms makes, over one partition."""
    rate = max(point.rate_per_s for point, _ in found)
    size = max(point.batch_bytes for point, _ in found)
    chosen = [
        (point, observed)
        for point, observed in found
        if (point.rate_per_s, point.batch_bytes, point.partitions) == (rate, size, 1)
    ]
    return plot_of(
        f"Density by linger.ms, {rate:,.0f} records/s over one partition",
        Axis("linger.ms", "ms", "linear"),
        Axis("records in a batch", "", "log"),
        Series("measured", [(p.linger_ms, max(o.records_per_batch, 1.0)) for p, o in chosen], False),
        Series("1 + rate x linger", [(p.linger_ms, p.model) for p, _ in chosen], True),
    )


def _said(found: list[tuple[Point, Observed]], sticky: TableOf) -> str:
    near = [p for p, o in found if abs(o.records_per_batch - p.model) <= _CLOSE * p.model]
    thin, dense = (pick(found, key=lambda each: each[1].records_per_batch) for pick in (min, max))
    (_, _, stuck, _), (_, _, scattered, _) = sticky.rows
    assert isinstance(stuck, int | float) and isinstance(scattered, int | float)
    return (
        f"In {len(near)} of {len(found)} points the batches held within {_CLOSE:.0%} of what the model says. The"
        f" thinnest had {thin[1].records_per_batch:.1f} records ({100 * header_share(thin[1]):.0f} % of the bytes"
        f" were headers of batches), at {thin[0].rate_per_s:,.0f} records/s over {thin[0].partitions} partitions with"
        f" linger.ms={thin[0].linger_ms:g}; the densest {dense[1].records_per_batch:.1f}"
        f" ({100 * header_share(dense[1]):.1f} %), with linger.ms={dense[0].linger_ms:g} and"
        f" batch.size={dense[0].batch_bytes:,}. Sparse records without keys: {stuck:.1f} in a batch with the sticky"
        f" partitioner, {scattered:.1f} when each goes to a partition of its own."
    )
