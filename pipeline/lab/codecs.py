"""codecs: what each compression saves on the wire, and what it costs the client and the brokers, by batch.size."""

from __future__ import annotations

from pipeline.lab.bench import Bench
from pipeline.lab.observed import Observed, Traffic, observe, orders
from pipeline.report.findings import TableOf, plot_of
from pipeline.report.sweep import Axis, Series, Sweep

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def run(bench: Bench) -> Sweep:
    sizes = (65_536,) if bench.is_quick else (4096, 65_536, 1_000_000)
    seconds = 0.5 if bench.is_quick else 3.0
    table = TableOf(
        "Codecs by batch.size",
        [
            "codec",
            ("batch.size", "B"),
            "ratio",
            ("acknowledged", "MB/s"),
            ("client", "CPU ms/MB"),
            ("brokers", "CPU ms/MB"),
            "records per batch",
        ],
        text="As fast as one producer goes, with JSON orders of some 300 B. Ratio: bytes of values for each byte sent.",
    )
    bench.warm_up()
    topic, values = bench.topic("codecs", partitions=3), orders()
    found: dict[tuple[str, int], Observed] = {}
    for size in sizes:
        for codec in CODECS:
            before_s = bench.broker_cpu_s()
            settings = {"compression.type": codec, "batch.size": size, "linger.ms": 20}
            observed = observe(bench.bootstrap_server, settings, Traffic(topic, values, seconds))
            found[codec, size] = observed
            after_s = bench.broker_cpu_s()
            megabytes = observed.value_bytes / 1e6
            brokers = None if before_s is None or after_s is None else (after_s - before_s) * 1000 / megabytes
            table.add(
                codec,
                size,
                observed.ratio,
                observed.megabytes_per_s,
                observed.client_cpu_s * 1000 / megabytes,
                brokers,
                observed.records_per_batch,
            )
            bench.say(f"{codec}, {size:,} B: {observed.megabytes_per_s:.1f} MB/s, ratio {observed.ratio:.2f}")
    plots = [
        plot_of(
            "Ratio by batch.size",
            Axis("batch.size", "B", "log"),
            Axis("bytes of values per byte sent", "", "linear"),
            *(Series(codec, [(size, found[codec, size].ratio) for size in sizes], False) for codec in CODECS),
        ),
        plot_of(
            "Throughput by codec",
            Axis("codec", "", "category"),
            Axis("acknowledged", "MB/s", "linear"),
            *(
                Series(
                    f"{size:,} B", [(codec, found[codec, size].megabytes_per_s) for codec in CODECS], False
                )
                for size in sizes
            ),
        ),
    ]
    return Sweep(
        "What compression costs and saves", _said(found, max(sizes), min(sizes)), [table.table()], plots
    )


def _said(found: dict[tuple[str, int], Observed], large: int, small: int) -> str:
    at_large = {codec: found[codec, large] for codec in CODECS}
    tightest = max(at_large, key=lambda codec: at_large[codec].ratio)
    fastest = max(at_large, key=lambda codec: at_large[codec].megabytes_per_s)
    plain = at_large["none"].megabytes_per_s
    text = (
        f"With batches of {large:,} B, {tightest} was the tightest ({at_large[tightest].ratio:.1f} bytes of values"
        f" per byte sent) and {fastest} the fastest ({at_large[fastest].megabytes_per_s:.1f} MB/s of values,"
        f" {plain:.1f} without compression)."
    )
    if small < large:
        text += (
            f" Small batches compress worse: {tightest} had {found[tightest, small].ratio:.1f} at {small:,} B, as"
            " there is less in a batch to repeat."
        )
    return text
