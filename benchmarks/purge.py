"""What deleting records costs: DeleteRecords on many partitions, alone and beside producing (KIP-811's case).

Beside producing: one long run of a producer, cut into windows. In every other one records are purged, at each interval
in turn; its throughput is compared with that of the two windows around it, so what else the machine does meets both.
An interval's effect is the median of its windows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.driver import DriverError
from benchmarks.measure import Bench
from benchmarks.process_stats import sample_cpu
from benchmarks.repeating import repeating
from benchmarks.report import number, percent
from benchmarks.results import range_of_median
from benchmarks.rows import ROW_BY_NAME

#: Seconds between purges. 30 s is Kafka Streams' default, 0.1 s a commit of its exactly-once mode.
INTERVALS_S = (30.0, 1.0, 0.1)
#: Every partition gets a record so often, purged or not, that each purge has something to delete.
TRICKLE_S = 0.5
#: What is produced meanwhile.
ROW = ROW_BY_NAME["produce-1k-16k"]
#: Calls, one right after the other, for the price of one.
CALLS = 200
TIMEOUT_S = 30.0
#: What a window takes besides: the end of the log is asked for twice, and a purge under way is waited for.
BETWEEN_S = 0.5


@dataclass
class Purges:
    """Calls, each of which deletes records of all partitions."""

    calls_ms: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


class Purger:
    """Deletes records of all partitions of a topic by Kafka's own admin request."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = range(partitions)
        self._settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(self._settings)
        self._producer = Producer({**self._settings, "linger.ms": 5, "acks": "all"})
        self._reader = Consumer({**self._settings, "group.id": "none"})

    def fill(self, records: int) -> None:
        """So many small records for every partition, each in a batch of its own."""
        for _ in range(records):
            for partition in self._partitions:
                self._producer.produce(self._topic, b"x" * 100, partition=partition)
            self._producer.flush(TIMEOUT_S)

    def purge(self, offset: int, purges: Purges) -> None:
        """One call. Raises nothing: an error is counted."""
        began_s = time.monotonic()
        try:
            try:
                self._delete_records(offset)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                    raise
                # librdkafka's admin client remembers leaders for a quarter of an hour, whatever it is answered.
                self._admin = AdminClient(self._settings)
                self._delete_records(offset)
        except KafkaException as error:
            purges.errors.append(str(error))
        purges.calls_ms.append(1e3 * (time.monotonic() - began_s))

    def _delete_records(self, offset: int) -> None:
        wanted = [TopicPartition(self._topic, partition, offset) for partition in self._partitions]
        futures = self._admin.delete_records(wanted, request_timeout=TIMEOUT_S, operation_timeout=TIMEOUT_S)
        for future in futures.values():
            future.result()

    @contextmanager
    def trickling(self) -> Iterator[None]:
        """A record for every partition but the first, now and then, in the background."""

        def trickle() -> None:
            for partition in self._partitions[1:]:
                self._producer.produce(self._topic, b"x" * 100, partition=partition)
            self._producer.flush(TIMEOUT_S)

        with repeating(trickle, TRICKLE_S, TRICKLE_S):
            yield

    def first_end(self) -> int:
        """How many records of the first partition are acknowledged."""
        return self._reader.get_watermark_offsets(TopicPartition(self._topic, 0), TIMEOUT_S, cached=False)[1]

    @contextmanager
    def purging(self, interval_s: float | None, seconds: float, purges: Purges) -> Iterator[None]:
        """Every so often, in the background. An interval that is longer than the window has one in its middle."""
        if interval_s is None:
            yield
            return
        first_s = min(interval_s, seconds / 2)
        with repeating(lambda: self.purge(OFFSET_END, purges), first_s, interval_s):
            yield


@dataclass(frozen=True)
class Window:
    """A stretch of the producer's run: what was acknowledged in it, and what the brokers used."""

    mb_per_s: float
    cpu_ms_per_mb: float | None


@dataclass
class Beside:
    """The windows with one interval between purges, or (None) those without, which have no ratios."""

    interval_s: float | None
    windows: list[Window] = field(default_factory=list)
    #: For each window: its throughput by the mean of its two neighbours', which are without a purge.
    ratios: list[float] = field(default_factory=list)
    purges: Purges = field(default_factory=Purges)

    @property
    def mb_per_s(self) -> float:
        return statistics.median(window.mb_per_s for window in self.windows)

    @property
    def cpu_ms_per_mb(self) -> float | None:
        known = [window.cpu_ms_per_mb for window in self.windows if window.cpu_ms_per_mb is not None]
        return statistics.median(known) if known else None

    @property
    def effect(self) -> float:
        """Throughput by that without a purge."""
        return statistics.median(self.ratios) if self.ratios else 1.0

    @property
    def effect_range(self) -> tuple[float, float]:
        """Where the effect lies with a certainty of 95 %."""
        return range_of_median(self.ratios) if self.ratios else (1.0, 1.0)


def measure_beside(bench: Bench, partitions: int, rounds: int, intervals_s: Sequence[float]) -> list[Beside]:
    """Producing as fast as it goes into the first partition while all are purged."""
    topic = bench.create_topic(partitions)
    purger = Purger(bench.cluster.bootstrap, topic, partitions)
    without, *others = results = [Beside(interval_s) for interval_s in (None, *intervals_s)]
    seconds = (bench.seconds + BETWEEN_S) * (2 * rounds * len(others) + 1)

    def take(result: Beside) -> Window:
        with purger.purging(result.interval_s, bench.seconds, result.purges):
            window = _take_window(bench, purger)
        result.windows.append(window)
        return window

    def take_all() -> None:
        before = take(without)
        for number_of_round in range(rounds):
            bench.log(f"{bench.cluster.name}: round {number_of_round + 1} of {rounds}")
            for result in others:
                purged, after = take(result), take(without)
                result.ratios.append(2 * purged.mb_per_s / (before.mb_per_s + after.mb_per_s))
                before = after

    with purger.trickling():
        run = bench.produce_into(topic, ROW, seconds, take_all)
    if run.errors:
        raise DriverError(f"{run.errors} records were not acknowledged or not written once: {run.note}")
    bench.delete_topic(topic)
    return results


def _take_window(bench: Bench, purger: Purger) -> Window:
    pids = bench.cluster.pids()
    before, began, began_s = sample_cpu(pids), purger.first_end(), time.monotonic()
    time.sleep(bench.seconds)
    mb = (purger.first_end() - began) * ROW.record_bytes / 1e6
    elapsed_s = time.monotonic() - began_s
    if not mb:
        raise DriverError("nothing was acknowledged for a whole window")
    used_ms = sum(before.used_ms_until(sample_cpu(pids)).values())
    return Window(mb / elapsed_s, used_ms / mb if pids else None)


def measure_calls(bench: Bench, partitions: int) -> dict[str, float]:
    """One call right after the other, each of which deletes a record of every partition."""
    topic = bench.create_topic(partitions)
    purger, purges = Purger(bench.cluster.bootstrap, topic, partitions), Purges()
    bench.log(f"{bench.cluster.name}: {CALLS} calls, one after the other")
    purger.fill(CALLS)
    pids = bench.cluster.pids()
    before, began_s = sample_cpu(pids), time.monotonic()
    for offset in range(1, CALLS + 1):
        purger.purge(offset, purges)
    seconds = time.monotonic() - began_s
    used_ms = sum(before.used_ms_until(sample_cpu(pids)).values())
    bench.delete_topic(topic)
    if purges.errors:
        raise DriverError(f"a purge failed: {purges.errors[0]}")
    figures = {
        "calls_per_s": CALLS / seconds,
        "partitions_per_s": CALLS * partitions / seconds,
        "call_p50_ms": statistics.median(purges.calls_ms),
        "call_max_ms": max(purges.calls_ms),
    }
    return figures | ({"cpu_us_per_partition": 1e3 * used_ms / (CALLS * partitions)} if pids else {})


def document_of(results: Sequence[Beside], calls: dict[str, float]) -> dict[str, Any]:
    """For --format json."""
    return {
        "calls": calls,
        "beside": [
            {
                "interval_s": result.interval_s,
                "mb_per_s": result.mb_per_s,
                "to_none": result.effect,
                "to_none_range": result.effect_range,
                "cpu_ms_per_mb": result.cpu_ms_per_mb,
                "calls_ms": result.purges.calls_ms,
                "errors": result.purges.errors,
                "windows_mb_per_s": [window.mb_per_s for window in result.windows],
                "windows_to_none": result.ratios,
            }
            for result in results
        ],
    }


def print_purge(results: Sequence[Beside], calls: dict[str, float], partitions: int, out: Console) -> None:
    shown = ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in calls.items())
    out.print(f"a call deletes records of {partitions} partitions; one after the other: {shown}")
    columns = (
        "MB/s",
        "to none",
        "95 %",
        "broker CPU ms/MB",
        "windows",
        "calls",
        "p50 ms",
        "longest ms",
        "errors",
    )
    table = Table("purge", *columns, box=box.SIMPLE)
    for column in table.columns[1:]:
        column.justify = "right"
    for result in results:
        calls_ms = result.purges.calls_ms
        lowest, highest = result.effect_range
        table.add_row(
            _every(result.interval_s),
            number(result.mb_per_s),
            percent(result.effect),
            f"{percent(lowest)} .. {percent(highest)}" if result.ratios else "-",
            number(result.cpu_ms_per_mb),
            str(len(result.windows)),
            str(len(calls_ms)),
            number(statistics.median(calls_ms) if calls_ms else None),
            number(max(calls_ms, default=None)),
            str(len(result.purges.errors)),
        )
    out.print(table)
    for error in dict.fromkeys(error for result in results for error in result.purges.errors):
        out.print(error, markup=False)


def _every(interval_s: float | None) -> str:
    return "none" if interval_s is None else f"every {interval_s:g} s"
