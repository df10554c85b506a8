"""The rows of the benchmark as data: what is done, and what is demanded of it.

1 KB is 1024 bytes of value, 100 B is 100; MB is 1,000,000 bytes of values, so record and batch headers do not
count. A batch size is librdkafka's `batch.size`; the largest stays at its `message.max.bytes`, 1,000,000.
All rows but those that say otherwise: one partition, replication factor 3, acks=all, no compression.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Kind(Enum):
    PRODUCE = "produce"
    LATENCY = "latency"
    CONSUME = "consume"
    FAILOVER = "failover"
    IDLE = "idle"
    STARTUP = "startup"
    SCALE = "scale"
    GROUPS = "groups"


HIGHER_IS_BETTER = frozenset({"mb_per_s", "records_per_s", "requests_per_s", "kept_leave", "kept_join"})
"""Of every other figure, less is better."""
STEADY = frozenset(
    (
        *("mb_per_s", "cpu_ms_per_mb", "record_p50_us", "cpu_us_per_request"),
        *("memory_mb_per_node", "memory_mb_max", "cpu_cores", "idle_cpu_percent_max"),
        *("longest_gap_ms", "first_ack_s", "served_s", "start_s", "leave_s", "join_s", "cpu_ms"),
    )
)
"""Figures by which two builds are judged, for they repeat. Tails and counts are only shown."""


@dataclass(frozen=True)
class Bar:
    """A demand on one metric of ours: against the other cluster's (`ratio`) or by itself (`limit`)."""

    metric: str
    ratio: float | None = None
    limit: float | None = None

    def __post_init__(self) -> None:
        assert (self.ratio is None) != (self.limit is None)

    def holds(self, ours: float, theirs: float | None) -> bool | None:
        """None where it cannot be said, because the other figure is missing."""
        if self.limit is not None:
            bound = self.limit
        elif self.ratio is not None and theirs is not None:
            bound = self.ratio * theirs
        else:
            return None
        return ours >= bound if self.metric in HIGHER_IS_BETTER else ours <= bound

    def __str__(self) -> str:
        sign = ">=" if self.metric in HIGHER_IS_BETTER else "<="
        return f"{sign} {self.limit:g}" if self.limit is not None else f"{sign} {self.ratio:g}x"


@dataclass(frozen=True)
class Row:
    """One line of the report. `columns` are the metrics worth a reader's eye, in order."""

    name: str
    title: str
    kind: Kind
    columns: tuple[str, ...]
    bars: tuple[Bar, ...] = ()
    record_bytes: int = 100
    batch_bytes: int = 16384
    producers: int = 1
    partitions: int = 1
    members: int = 50
    group_protocol: str = "classic"
    strategy: str = field(
        default="range,roundrobin", metadata={"doc": "who assigns in a classic group, and how"}
    )
    preload_records: int = field(default=0, metadata={"doc": "consume rows: records written before reading"})


PRODUCE_COLUMNS = (
    "mb_per_s",
    "requests_per_s",
    "request_p50_us",
    "request_p99_us",
    "request_p99_9_us",
    "cpu_ms_per_mb",
)
LATENCY_COLUMNS = (
    "requests_per_s",
    "record_p50_us",
    "record_p99_us",
    "record_p99_9_us",
    "cpu_us_per_request",
)
GROUP_COLUMNS = ("start_s", "leave_s", "join_s", "kept_leave", "kept_join", "cpu_ms")
CONSUME_COLUMNS = ("mb_per_s", "records_per_s", "cpu_ms_per_mb")


def _produce(name: str, title: str, record_bytes: int, batch_bytes: int, ratio: float) -> Row:
    bars = (Bar("mb_per_s", ratio=ratio), Bar("cpu_ms_per_mb", ratio=1.0))
    return Row(name, title, Kind.PRODUCE, PRODUCE_COLUMNS, bars, record_bytes, batch_bytes)


def _latency(name: str, title: str, producers: int) -> Row:
    bars = (Bar("record_p50_us", ratio=1.0), Bar("cpu_us_per_request", ratio=1.0))
    return Row(name, title, Kind.LATENCY, LATENCY_COLUMNS, bars, producers=producers)


def _groups(name: str, title: str, bars: tuple[Bar, ...], **how: str) -> Row:
    return Row(name, title, Kind.GROUPS, GROUP_COLUMNS, bars, partitions=200, **how)  # type: ignore[arg-type]


REBALANCE_BARS = (Bar("leave_s", limit=2), Bar("join_s", limit=2))
ROWS: tuple[Row, ...] = (
    _produce("produce-1k-16k", "produce 1 KB, 16 KB batches", 1024, 16384, 1.5),
    _produce("produce-1k-64k", "produce 1 KB, 64 KB batches", 1024, 65536, 1.5),
    _produce("produce-1k-1m", "produce 1 KB, 1 MB batches", 1024, 1_000_000, 1.2),
    _produce("produce-100b-16k", "produce 100 B, 16 KB batches", 100, 16384, 1.5),
    _latency("latency-1", "100 B, one in flight, 1 producer", 1),
    _latency("latency-16", "100 B, one in flight, 16 producers", 16),
    Row(
        "consume-1k",
        "consume 1 KB, catch-up",
        Kind.CONSUME,
        CONSUME_COLUMNS,
        record_bytes=1024,
        preload_records=600_000,
    ),
    Row("consume-100b", "consume 100 B, catch-up", Kind.CONSUME, CONSUME_COLUMNS, preload_records=4_000_000),
    Row("idle", "idle, three nodes", Kind.IDLE, ("memory_mb_per_node", "memory_mb_max", "cpu_cores")),
    Row(
        "failover",
        "kill -9 of the leader at 500 rec/s",
        Kind.FAILOVER,
        ("longest_gap_ms", "kill_to_ack_ms", "records_per_s"),
        (Bar("longest_gap_ms", limit=2000),),
    ),
    Row(
        "startup",
        "three nodes from nothing to the first ack",
        Kind.STARTUP,
        ("first_ack_s", "command_s", "memory_mb_per_node"),
        (Bar("first_ack_s", limit=2),),
    ),
    Row(
        "scale-1000",
        "1,000 partitions, three replicas",
        Kind.SCALE,
        ("served_s", "answered_s", "idle_cpu_percent_max", "memory_mb_max", "cpu_ms"),
        (
            Bar("served_s", limit=3),
            Bar("idle_cpu_percent_max", limit=4),
            Bar("memory_mb_max", limit=150),
        ),
        partitions=1000,
    ),
    _groups("groups-classic", "50 consumers, 200 partitions, classic", REBALANCE_BARS),
    _groups("groups-cooperative", "the same, cooperative", REBALANCE_BARS, strategy="cooperative-sticky"),
    _groups("groups-consumer", "the same, consumer protocol", (), group_protocol="consumer"),
)
ROW_BY_NAME = {row.name: row for row in ROWS}
PRELOAD_BATCH_BYTES = 65536


def rows_of(kinds: set[Kind]) -> list[Row]:
    return [row for row in ROWS if row.kind in kinds]
