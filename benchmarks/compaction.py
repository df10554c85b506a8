"""One pass of compaction over one large log, flushes included: how long it takes, and what it needs.

The log is written while the topic is not compacted, and its policy is changed then. Of Varve, `varve topic compact`
tells how long the pass took. Of Apache Kafka, the time from the change of the policy until the folder of the log is
small counts; its cleaner looks for work every 100 ms.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.cluster import ApacheKafka, ClusterError, VarveCluster
from benchmarks.driver import DriverError
from benchmarks.measure import Bench
from benchmarks.process_stats import resident_mb
from benchmarks.report import number
from benchmarks.rows import Row

Side = VarveCluster | ApacheKafka

LIMIT_S = 300.0
LOOK_S = 0.02
SEGMENT_BYTES = 100 << 20
#: Settings with which Apache Kafka's cleaner begins at once.
KAFKA_SETTINGS = ("log.cleaner.backoff.ms=100", "log.initial.task.delay.ms=100")


@dataclass(frozen=True)
class Data:
    """Each key is written records / keys times on the average."""

    records: int
    keys: int
    value_bytes: int

    @property
    def name(self) -> str:
        return f"{self.records:,} records of {self.value_bytes} B, {self.keys:,} keys"

    def part(self, share: float) -> Data:
        return Data(int(self.records * share), max(int(self.keys * share), 1), self.value_bytes)


DATA = (Data(5_000_000, 1_000_000, 100), Data(1_500_000, 500_000, 1024))


@dataclass
class PassRow:
    data: Data
    mb_before: float
    mb_after: float
    seconds: float
    #: At the highest, of the largest node and its child processes; and before the pass.
    memory_mb: float
    memory_before_mb: float

    @property
    def mb_per_s(self) -> float:
        return self.mb_before / self.seconds


class _MemoryWatch(threading.Thread):
    """How much a node and its children hold at the highest."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        super().__init__(daemon=True)
        self._pids = pids
        self._over = threading.Event()
        self.before_mb = self.highest_mb = self._look()

    def _look(self) -> float:
        return max(resident_mb(self._pids).values())

    def run(self) -> None:
        while not self._over.wait(LOOK_S):
            self.highest_mb = max(self.highest_mb, self._look())

    def stop(self) -> None:
        self._over.set()
        self.join()


def measure_pass(cluster: Side, data: Data, log: Callable[[str], None]) -> PassRow:
    """Raises ClusterError, DriverError."""
    topic = f"compaction-{time.time_ns() // 1_000_000}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    settings = {"cleanup.policy": "delete", "segment.bytes": str(SEGMENT_BYTES)}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(30)
    log(f"{cluster.name}: writing {data.name}")
    _write(cluster, topic, data)
    # Kafka seals the last segment with the next record only.
    _set(admin, topic, {"segment.ms": "100"})
    time.sleep(0.5)
    _write(cluster, topic, Data(1, 1, 1))
    log(f"{cluster.name}: compacting")
    watch = _MemoryWatch(cluster.pids())
    watch.start()
    run_pass = _varve_pass if isinstance(cluster, VarveCluster) else _kafka_pass
    mb_before, mb_after, seconds = run_pass(cluster, admin, topic)
    watch.stop()
    admin.delete_topics([topic])[topic].result(30)
    return PassRow(data, mb_before, mb_after, seconds, watch.highest_mb, watch.before_mb)


@dataclass
class Window:
    """A stretch of producing: alone, or while a log is compacted on all three nodes."""

    is_beside: bool
    mb_per_s: float
    p99_ms: float
    #: Of the passes beside it, the longest.
    pass_s: float


def measure_producing(bench: Bench, cluster: VarveCluster, data: Data, row: Row, rounds: int) -> list[Window]:
    """What a pass over a log of three replicas costs whoever produces meanwhile. Raises ClusterError, DriverError."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topics = [f"compaction-{time.time_ns() // 1_000_000}-{number}" for number in range(rounds)]
    for topic in topics:
        settings = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        admin.create_topics([NewTopic(topic, 1, 3, config=settings)])[topic].result(30)
        bench.log(f"writing {data.name}")
        _write(cluster, topic, data)
    target = bench.create_topic()
    bench.produce_into(target, row)  # connections, page cache
    windows = [_window(bench, target, row, None)]
    for topic in topics:
        passes: list[float] = []

        def compact(topic: str = topic, passes: list[float] = passes) -> None:
            answer = cluster.run(
                "topic", "compact", topic, "--wait", "--format", "json", "-b", cluster.bootstrap
            )
            passes += [each["elapsed_ms"] / 1e3 for each in json.loads(answer)["replicas"]]

        bench.log("producing while a log is compacted")
        windows.append(_window(bench, target, row, compact, passes))
        bench.log("producing")
        windows.append(_window(bench, target, row, None))
    return windows


def _window(
    bench: Bench, topic: str, row: Row, beside: Callable[[], None] | None, passes: Sequence[float] = ()
) -> Window:
    metrics = bench.produce_into(topic, row, beside=beside).metrics
    return Window(
        beside is not None, metrics["mb_per_s"], metrics["record_p99_us"] / 1e3, max(passes, default=0.0)
    )


def print_windows(windows: Sequence[Window], out: Console) -> None:
    table = Table("producing", box=box.SIMPLE)
    for column in ("MB/s", "p99 ms", "pass s"):
        table.add_column(column, justify="right")
    for each in windows:
        name = "while a log is compacted" if each.is_beside else "alone"
        table.add_row(name, *map(number, (each.mb_per_s, each.p99_ms, each.pass_s)))
    out.print(table)


def _varve_pass(cluster: Side, admin: AdminClient, topic: str) -> tuple[float, float, float]:
    assert isinstance(cluster, VarveCluster)
    _set(admin, topic, {"cleanup.policy": "compact"})
    answer = cluster.run("topic", "compact", topic, "--wait", "--format", "json", "-b", cluster.bootstrap)
    (done,) = json.loads(answer)["replicas"]
    return done["bytes_before"] / 1e6, done["bytes_after"] / 1e6, done["elapsed_ms"] / 1e3


def _kafka_pass(cluster: Side, admin: AdminClient, topic: str) -> tuple[float, float, float]:
    assert isinstance(cluster, ApacheKafka)
    (folder,) = cluster.folders(f"{topic}-0")
    bytes_before = _stored_bytes(folder)
    began_s = time.monotonic()
    _set(admin, topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    while (seconds := time.monotonic() - began_s) < LIMIT_S:
        # The active segment is small, and the sealed ones become one or two. Those that went are called .deleted.
        names = {path.suffix for path in folder.iterdir()}
        if ".cleaned" not in names and ".swap" not in names and _stored_bytes(folder) < 0.7 * bytes_before:
            return bytes_before / 1e6, _stored_bytes(folder) / 1e6, seconds
        time.sleep(LOOK_S)
    raise ClusterError(f"{folder} was not compacted within {LIMIT_S:.0f} s")


def _stored_bytes(folder: Path) -> int:
    total = 0
    for path in folder.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _write(cluster: Side, topic: str, data: Data) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "linger.ms": 20,
            "batch.size": 1 << 16,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    rng = random.Random(data.records)
    text = rng.randbytes(1 << 20)
    for _ in range(data.records):
        at = rng.randrange(len(text) - data.value_bytes)
        value = text[at : at + data.value_bytes]
        key = b"%016d" % rng.randrange(data.keys)
        while True:
            try:
                producer.produce(topic, value, key, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(LIMIT_S):
        raise DriverError("the log was not written")


def _set(admin: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def document_of(rows: Sequence[PassRow]) -> dict[str, Any]:
    """For --format json."""
    return {"rows": [{**vars(row), "data": row.data.name, "mb_per_s": row.mb_per_s} for row in rows]}


def print_passes(sides: Mapping[str, Sequence[PassRow]], out: Console) -> None:
    table = Table("a pass over", "cluster", box=box.SIMPLE)
    for column in ("MB", "left MB", "s", "MB/s", "memory before MB", "at most MB"):
        table.add_column(column, justify="right")
    for at, row in enumerate(next(iter(sides.values()))):
        for name, rows in sides.items():
            each = rows[at]
            figures = (
                each.mb_before,
                each.mb_after,
                each.seconds,
                each.mb_per_s,
                each.memory_before_mb,
                each.memory_mb,
            )
            table.add_row(row.data.name, name, *map(number, figures))
    out.print(table)
