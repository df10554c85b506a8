"""sinks: the ways from Spark into a cluster, and which part of each is the limit.

The same records go by the loader's producers in Python, by Spark's official connector in the JVM, by `format("varve")`,
and nowhere at all (Spark's `noop` sink, once made in the JVM and once handed to Python): what those two take is
Spark's own share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipeline.datasource import VarveDataSource
from pipeline.lab.bench import Bench
from pipeline.load.job import LoadOptions, Watcher, inputs, load
from pipeline.load.progress import Progress
from pipeline.report.findings import TableOf, plot_of
from pipeline.report.sweep import Axis, Series, Sweep
from pipeline.run_files import LOG
from pipeline.spark.connector import choose_connector
from pipeline.spark.session import spark_session
from pipeline.workloads.records import headers_column
from pipeline.workloads.spec import RunSpec

_RECORD_BYTES = 1024
_TASKS = 2
_PARTITIONS = 6
_NOWHERE = "nowhere, from the JVM"
_NOWHERE_BY_PYTHON = "nowhere, through Python"
_LOADER = "loader (Python producers)"
_CONNECTOR = 'format("kafka") (JVM)'
_OURS = 'format("varve") (Python)'


@dataclass(frozen=True, slots=True)
class Timed:
    """The median of some runs of one way."""

    way: str
    seconds: float
    megabytes: float

    @property
    def megabytes_per_s(self) -> float:
        return self.megabytes / self.seconds


class _Silent(Watcher):
    def progressed(self, progress: Progress) -> None:
        pass

    def begins(self, phase: str) -> None:
        pass


def run(bench: Bench) -> Sweep:
    records = 2_000 if bench.is_quick else 300_000
    runs = 1 if bench.is_quick else 3
    connector = choose_connector("auto", None, bench.say)
    with spark_session(bench.folder / LOG, _TASKS, records=records, connector=connector) as spark:
        spark.dataSource.register(VarveDataSource)
        ways = _ways(bench, spark, records, with_connector=connector is not None)
        found = []
        for name, way in ways.items():
            way()  # the first of each pays for what is done once
            seconds = median(way() for _ in range(runs))
            found.append(Timed(name, seconds, records * _RECORD_BYTES / 1e6))
            bench.say(f"{name}: {found[-1].megabytes_per_s:.1f} MB/s")
    table = TableOf(
        f"{records:,} records of {_RECORD_BYTES:,} B by {_TASKS} tasks",
        ["way", ("time", "s"), ("throughput", "MB/s"), ("throughput", "records/s")],
        text=(
            "Spark, its workers and, where they are on this machine, the brokers share its processors. The loader's"
            " time runs from its first record to its last acknowledgement, that of the others is the whole job's."
        ),
    )
    for timed in found:
        table.add(timed.way, timed.seconds, timed.megabytes_per_s, records / timed.seconds)
    plot = plot_of(
        "Throughput by way",
        Axis("way", "", "category"),
        Axis("throughput", "MB/s", "linear"),
        Series("median", [(timed.way, timed.megabytes_per_s) for timed in found], False),
    )
    return Sweep("From Spark into a cluster", said(found), [table.table()], [plot])


def _ways(
    bench: Bench, spark: SparkSession, records: int, *, with_connector: bool
) -> dict[str, Callable[[], float]]:
    """Each sends all records to a new topic; how long it took, in seconds."""
    numbers = iter(range(1_000_000))

    def spec(topic: str) -> RunSpec:
        now_ms = int(time.time() * 1000)
        return RunSpec(topic, records, 1, _RECORD_BYTES, 1000, _TASKS, None, now_ms)

    def frame() -> DataFrame:
        """As a user has it: the columns that a sink takes."""
        made = inputs(spark, spec("unused"))
        return made.select("key", "value", headers_column(spec("unused"), made["sequence"]).alias("headers"))

    def by_loader() -> float:
        folder = bench.folder / f"load-{next(numbers)}"
        options = LoadOptions(bench.bootstrap_server, folder, warm_up_s=0)
        figures = load(spark, spec(bench.topic("sinks", partitions=_PARTITIONS)), options, _Silent())
        duration_s: float = figures["duration_s"]
        return duration_s

    def by_format(name: str) -> float:
        topic = bench.topic("sinks", partitions=_PARTITIONS)
        options = {"kafka.bootstrap.servers": bench.bootstrap_server, "topic": topic}
        return _timed(lambda: frame().write.format(name).options(**options).mode("append").save())

    def nowhere(through_python: bool) -> float:
        sent = frame()
        if through_python:
            sent = sent.mapInArrow(_unchanged, sent.schema)
        return _timed(lambda: sent.write.format("noop").mode("overwrite").save())

    ways: dict[str, Callable[[], float]] = {
        _NOWHERE: lambda: nowhere(False),
        _NOWHERE_BY_PYTHON: lambda: nowhere(True),
        _LOADER: by_loader,
        _OURS: lambda: by_format("varve"),
    }
    if with_connector:
        ways[_CONNECTOR] = lambda: by_format("kafka")
    return ways


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _timed(job: Callable[[], None]) -> float:
    begun_s = time.monotonic()
    job()
    return time.monotonic() - begun_s


def said(found: list[Timed]) -> str:
    """Who is faster, and how much of it is Spark's own share."""
    by_way = {timed.way: timed for timed in found}
    loader, ours = by_way[_LOADER], by_way[_OURS]
    share = by_way[_NOWHERE_BY_PYTHON].seconds / ours.seconds
    text = (
        f"The loader sent {loader.megabytes_per_s:.1f} MB/s and {_OURS} {ours.megabytes_per_s:.1f} MB/s; to make the"
        f" records and to hand them to Python takes {100 * share:.0f} % of the latter's time by itself."
    )
    jvm = by_way.get(_CONNECTOR)
    if jvm is None:
        return f"{text} Spark's official connector was not tried: its jars are not to be had here."
    jvm_share = by_way[_NOWHERE].seconds / jvm.seconds
    limit = "making the records" if jvm_share > 0.5 else "the cluster and the client's way to it"
    return (
        f"{text} {_CONNECTOR} sent {jvm.megabytes_per_s:.1f} MB/s,"
        f" {jvm.megabytes_per_s / ours.megabytes_per_s:.1f} times as much as"
        f" {_OURS}; {100 * jvm_share:.0f} % of its time is making the records, so {limit} is its limit."
    )
