"""What deleting records costs: DeleteRecords on many partitions, alone and beside producing (KIP-811's case).

The rounds are interleaved: in each, every interval has its turn on the same topic, so what else the machine does meets
all of them alike. An interval's effect is the median, over the rounds, of its throughput by that of the same round
without a purge.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from rich import box
from rich.console import Console
from rich.table import Table

from benchmark.driver import DriverError
from benchmark.measure import Bench, Run
from benchmark.process_stats import sample_cpu
from benchmark.report import number
from benchmark.rows import ROW_BY_NAME

#: Seconds between purges; None: without. 30 s is Kafka Streams' default, 0.1 s a commit of its exactly-once mode.
INTERVALS_S: tuple[float | None, ...] = (None, 30.0, 1.0, 0.1)
#: Every partition gets a record so often, purged or not, that each purge has something to delete.
TRICKLE_S = 0.5
#: Calls, one right after the other, for the price of one.
CALLS = 200
TIMEOUT_S = 30.0


@dataclass
class Purges:
    """The calls of one run: each deletes records of all partitions."""

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

        with _repeating(trickle, TRICKLE_S, TRICKLE_S):
            yield

    @contextmanager
    def purging(self, interval_s: float | None, seconds: float) -> Iterator[Purges]:
        """Every so often, in the background. An interval that is longer than the run has one in its middle."""
        purges = Purges()
        if interval_s is None:
            yield purges
            return
        first_s = min(interval_s, seconds / 2)
        with _repeating(lambda: self.purge(OFFSET_END, purges), first_s, interval_s):
            yield purges


@contextmanager
def _repeating(action: Callable[[], None], first_s: float, interval_s: float) -> Iterator[None]:
    """A thread that does it at its times, one after the other; never two at once."""
    is_over = threading.Event()

    def work() -> None:
        due_s = time.monotonic() + first_s
        while not is_over.wait(max(0.0, due_s - time.monotonic())):
            action()
            due_s = max(due_s + interval_s, time.monotonic())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@dataclass
class Beside:
    """The runs with one interval between purges."""

    interval_s: float | None
    runs: list[Run] = field(default_factory=list)
    purges: list[Purges] = field(default_factory=list)

    def median(self, metric: str) -> float | None:
        values = [run.metrics[metric] for run in self.runs if metric in run.metrics]
        return statistics.median(values) if values else None

    def effect(self, without: Beside) -> float:
        """Throughput by that without a purge, run by run."""
        pairs = zip(self.runs, without.runs, strict=True)
        return statistics.median([run.metrics["mb_per_s"] / base.metrics["mb_per_s"] for run, base in pairs])

    @property
    def calls_ms(self) -> list[float]:
        return [ms for purges in self.purges for ms in purges.calls_ms]

    @property
    def errors(self) -> list[str]:
        noted = [run.note or f"{run.errors} errors" for run in self.runs if run.errors]
        return noted + [error for purges in self.purges for error in purges.errors]


def measure_beside(bench: Bench, partitions: int, rounds: int) -> list[Beside]:
    """Producing as fast as it goes into the first partition while all are purged."""
    topic = bench.create_topic(partitions)
    purger = Purger(bench.cluster.bootstrap, topic, partitions)
    results = [Beside(interval_s) for interval_s in INTERVALS_S]
    with purger.trickling():
        for number_of_round in range(rounds):
            shift = number_of_round % len(results)
            for result in (*results[shift:], *results[:shift]):
                bench.log(
                    f"{bench.cluster.name}: round {number_of_round + 1} of {rounds}, {_every(result.interval_s)}"
                )
                with purger.purging(result.interval_s, bench.seconds) as purges:
                    result.runs.append(bench.produce_into(topic, ROW_BY_NAME["produce-1k-16k"]))
                result.purges.append(purges)
    bench.delete_topic(topic)
    return results


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
    without = results[0]
    return {
        "calls": calls,
        "beside": [
            {
                "interval_s": result.interval_s,
                "mb_per_s": result.median("mb_per_s"),
                "to_none": result.effect(without),
                "cpu_ms_per_mb": result.median("cpu_ms_per_mb"),
                "calls_ms": result.calls_ms,
                "errors": result.errors,
                "runs_mb_per_s": [run.metrics["mb_per_s"] for run in result.runs],
            }
            for result in results
        ],
    }


def print_purge(results: Sequence[Beside], calls: dict[str, float], partitions: int, out: Console) -> None:
    shown = ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in calls.items())
    out.print(f"a call deletes records of {partitions} partitions; one after the other: {shown}")
    table = Table(
        "purge",
        "MB/s",
        "to none",
        "broker CPU ms/MB",
        "calls",
        "p50 ms",
        "longest ms",
        "errors",
        box=box.SIMPLE,
    )
    for index in range(1, 8):
        table.columns[index].justify = "right"
    for result in results:
        calls_ms = result.calls_ms
        table.add_row(
            _every(result.interval_s),
            number(result.median("mb_per_s")),
            f"{100 * (result.effect(results[0]) - 1):+.1f} %",
            number(result.median("cpu_ms_per_mb")),
            str(len(calls_ms)),
            number(statistics.median(calls_ms) if calls_ms else None),
            number(max(calls_ms, default=None)),
            str(len(result.errors)),
        )
    out.print(table)
    for error in dict.fromkeys(error for result in results for error in result.errors):
        out.print(error, markup=False)


def _every(interval_s: float | None) -> str:
    return "none" if interval_s is None else f"every {interval_s:g} s"
