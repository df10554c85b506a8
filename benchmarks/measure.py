"""Runs rows on a cluster and turns the driver's counts and the brokers' CPU into figures (results.py)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.cluster import NODE_COUNT, Cluster, ClusterError
from benchmarks.driver import Driver, DriverError, Option, group_driver, scale_driver
from benchmarks.process_stats import CpuSample, resident_mb, sample_cpu
from benchmarks.results import RowResult, Run
from benchmarks.rows import PRELOAD_BATCH_BYTES, Kind, Row

SETTLE_S = 2.0
"""Between runs: write-back, deletions and garbage collection of the last end outside the next one's window."""
FAILOVER_STEADY_S = 2.0
FAILOVER_WINDOW_S = 16.0
"""Long enough for Apache Kafka's 10 s, with a steady stretch on either side."""
FAILOVER_RATE = 500
STARTUP_TIMEOUT_MS = 120_000


@dataclass
class _Window:
    """CPU of the brokers and of the driver between the driver's two events."""

    pids: Mapping[str, int]
    began: CpuSample | None = None
    began_s: float = 0.0
    cpu_ms_by_node: dict[str, float] = field(default_factory=dict)
    memory_mb_by_node: dict[str, float] = field(default_factory=dict)
    leader: str = ""
    driver_cores: float = 0.0

    def open(self, driver_pid: int) -> None:
        self.began = sample_cpu({**self.pids, "driver": driver_pid})
        self.began_s = time.monotonic()

    def close(self, driver_pid: int) -> None:
        assert self.began is not None, "the driver closed a window that it had not opened"
        used_ms = self.began.used_ms_until(sample_cpu({**self.pids, "driver": driver_pid}))
        self.driver_cores = used_ms.pop("driver") / 1e3 / max(time.monotonic() - self.began_s, 1e-9)
        self.cpu_ms_by_node = used_ms
        self.memory_mb_by_node = resident_mb(self.pids)


class Bench:
    """The rows of one cluster with one driver."""

    def __init__(self, cluster: Cluster, driver: Driver, seconds: float, log: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.driver = driver
        self.seconds = seconds
        self.log = log
        self._topics_made = 0
        # Unlike any other run's, so that a crashed run's left-overs are in nobody's way.
        self._topic_prefix = f"bench-{time.time_ns() // 1_000_000}"

    def warm_up(self) -> None:
        """One discarded run: connections, page cache, and the JVM's compiler."""
        topic = self.create_topic()
        options = self._options(topic) | {"record-bytes": 1024, "batch-bytes": 16384, "seconds": self.seconds}
        self.driver.run("produce", options)
        self.delete_topic(topic)

    def measure(self, row: Row, runs: int) -> RowResult:
        """`runs` runs of one row. Raises ClusterError or DriverError where a run cannot be finished."""
        measure_run: Callable[[Row], Run] = {
            Kind.PRODUCE: self._produce,
            Kind.LATENCY: self._latency,
            Kind.FAILOVER: self._failover,
            Kind.IDLE: self._idle,
            Kind.STARTUP: self._startup,
            Kind.SCALE: self._scale,
            Kind.GROUPS: self._groups,
        }.get(row.kind, self._produce)
        if row.kind is Kind.CONSUME:
            return RowResult(row, self._consume_runs(row, runs))
        result = RowResult(row, [])
        for number in range(1, runs + 1):
            self.log(f"{self.cluster.name}: {row.name}, run {number} of {runs}")
            result.runs.append(measure_run(row))
        return result

    def _options(self, topic: str) -> dict[str, Option]:
        return {"bootstrap": self.cluster.bootstrap, "topic": topic}

    def create_topic(self, partitions: int = 1) -> str:
        """A fresh topic with all replicas; waits while a node that was just restarted is still missing."""
        self._topics_made += 1
        topic = f"{self._topic_prefix}-{self._topics_made}"
        deadline_s = time.monotonic() + 30
        while True:
            try:
                self.driver.run(
                    "create",
                    self._options(topic)
                    | {"partitions": partitions, "replication-factor": NODE_COUNT, "timeout-ms": 10_000},
                )
                return topic
            except DriverError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.5)

    def delete_topic(self, topic: str) -> None:
        self.driver.run("delete", self._options(topic))
        time.sleep(SETTLE_S)

    def _run_job(
        self, job: str, options: dict[str, Option], beside: Callable[[], None] | None = None
    ) -> tuple[dict[str, Any], _Window]:
        window = _Window(self.cluster.pids())

        def begun(driver_pid: int) -> None:
            window.open(driver_pid)
            if beside:
                beside()

        result = self.driver.run(job, options, begun, window.close)
        leader = self.driver.run("leader", self._options(str(options["topic"])))
        window.leader = str(leader["leader"])
        return result, window

    def _produce(self, row: Row) -> Run:
        topic = self.create_topic()
        run = self.produce_into(topic, row)
        self.delete_topic(topic)
        return run

    def produce_into(
        self, topic: str, row: Row, seconds: float | None = None, beside: Callable[[], None] | None = None
    ) -> Run:
        """As fast as it goes, into the first partition. `beside` is done meanwhile, and has so many seconds."""
        options = self._options(topic) | {
            "record-bytes": row.record_bytes,
            "batch-bytes": row.batch_bytes,
            "in-flight": 5,
            "linger-ms": 5,
            "seconds": seconds or self.seconds,
        }
        return _producing_run(*self._run_job("produce", options, beside))

    def _latency(self, row: Row) -> Run:
        topic = self.create_topic()
        options = self._options(topic) | {
            "record-bytes": row.record_bytes,
            "producers": row.producers,
            "seconds": self.seconds,
        }
        run = _producing_run(*self._run_job("latency", options))
        self.delete_topic(topic)
        return run

    def _consume_runs(self, row: Row, runs: int) -> list[Run]:
        topic = self.create_topic()
        options = self._options(topic) | {"record-bytes": row.record_bytes}
        load = {"total-records": row.preload_records, "batch-bytes": PRELOAD_BATCH_BYTES, "warmup-seconds": 0}
        self.log(f"{self.cluster.name}: {row.name}, writing {row.preload_records:,} records")
        loaded = self.driver.run("produce", options | load)
        if loaded["errors"] or loaded["log_growth"] != row.preload_records:
            raise DriverError(f"{row.name}: the records to read could not be written: {loaded}")
        measured: list[Run] = []
        for number in range(1, runs + 1):
            self.log(f"{self.cluster.name}: {row.name}, run {number} of {runs}")
            reading: dict[str, Option] = {"expect-records": row.preload_records, "seconds": self.seconds}
            result, window = self._run_job("consume", options | reading)
            metrics = {
                "mb_per_s": result["timed_bytes"] / 1e6 / max(result["seconds"], 1e-9),
                "records_per_s": result["timed_records"] / max(result["seconds"], 1e-9),
                "passes": float(result["passes"]),
            }
            measured.append(_with_cpu(Run(metrics, errors=result["errors"]), window, result["bytes"], None))
        self.delete_topic(topic)
        return measured

    def _failover(self, row: Row) -> Run:
        topic = self.create_topic()
        killed: dict[str, Any] = {}

        def kill_leader(_driver_pid: int) -> None:
            time.sleep(FAILOVER_STEADY_S)
            node = str(self.driver.run("leader", self._options(topic))["leader"])
            killed["at_us"] = time.monotonic_ns() // 1000
            self.cluster.kill(node)
            killed["node"] = node

        paced = self._options(topic) | {
            "record-bytes": 100,
            "rate": FAILOVER_RATE,
            "seconds": FAILOVER_WINDOW_S,
        }
        try:
            result = self.driver.run("paced", paced, kill_leader)
            check = self.driver.run("check", self._options(topic) | {"expect-records": result["produced"]})
        finally:
            if "node" in killed:
                self.cluster.restart(killed["node"])
        self.delete_topic(topic)
        gap_end_us = result["gap_began_us"] + result["longest_gap_us"]
        metrics = {
            "longest_gap_ms": result["longest_gap_us"] / 1e3,
            "kill_to_ack_ms": (gap_end_us - killed["at_us"]) / 1e3,
            "records_per_s": result["records"] / result["seconds"],
            "missing": float(check["missing"]),
            "duplicates": float(check["duplicates"]),
        }
        note = (
            ""
            if result["gap_began_us"] <= gap_end_us and gap_end_us >= killed["at_us"]
            else "gap not at the kill"
        )
        errors = result["errors"] + check["missing"] + check["duplicates"] + check["errors"]
        return Run(metrics, errors=errors, note=note or result["first_error"])

    def _idle(self, _row: Row) -> Run:
        pids = self.cluster.pids()
        if not pids:
            raise ClusterError("idle needs the brokers' process ids: --pids")
        time.sleep(SETTLE_S)
        before, began_s = sample_cpu(pids), time.monotonic()
        time.sleep(self.seconds)
        used_ms, elapsed_s = before.used_ms_until(sample_cpu(pids)), time.monotonic() - began_s
        memory = resident_mb(pids)
        brokers = {
            node: {"memory_mb": memory[node], "cpu_cores": used_ms[node] / 1e3 / elapsed_s} for node in pids
        }
        metrics = {**_memory_metrics(memory), "cpu_cores": sum(used_ms.values()) / 1e3 / elapsed_s}
        return Run(metrics, brokers)

    def _scale(self, row: Row) -> Run:
        """Many partitions: until they are served, and what they cost when nothing is done with them."""
        self._topics_made += 1
        options = self._options(f"{self._topic_prefix}-{self._topics_made}")
        window = _Window(self.cluster.pids())
        result = scale_driver().run(
            "scale",
            options | {"partitions": row.partitions, "replication-factor": NODE_COUNT},
            window.open,
            window.close,
        )
        run = self._idle(row)
        run.metrics["idle_cpu_percent_max"] = 100 * max(x["cpu_cores"] for x in run.brokers.values())
        run.metrics["cpu_ms"] = sum(window.cpu_ms_by_node.values())
        run.metrics |= {key: result[key] for key in ("served_s", "answered_s")}
        self.delete_topic(str(options["topic"]))
        return run

    def _groups(self, row: Row) -> Run:
        topic = self.create_topic(row.partitions)
        options = self._options(topic) | {
            "members": row.members,
            "partitions": row.partitions,
            "protocol": row.group_protocol,
            "strategy": row.strategy,
        }
        window = _Window(self.cluster.pids())
        result = group_driver().run("groups", options, window.open, window.close)
        self.delete_topic(topic)
        metrics = {key: float(value) for key, value in result.items() if key != "event"}
        run = Run(metrics | {"driver_cores": window.driver_cores})
        if window.cpu_ms_by_node:
            run.metrics["cpu_ms"] = sum(window.cpu_ms_by_node.values())
            run.brokers = {node: {"cpu_ms": ms} for node, ms in window.cpu_ms_by_node.items()}
        return run

    def _startup(self, row: Row) -> Run:
        if self.cluster.pids():
            raise ClusterError("startup starts the cluster itself, and it runs already: stop it first")
        options = self._options(f"{self._topic_prefix}-start")
        first_ack: dict[str, Option] = {"record-bytes": row.record_bytes, "timeout-ms": STARTUP_TIMEOUT_MS}
        with self.driver.start("first-ack", options | first_ack) as process:
            time.sleep(0.3)  # the client itself is up and asking before the clock starts
            began_us = time.monotonic_ns() // 1000
            try:
                self.cluster.start()
                commanded_us = time.monotonic_ns() // 1000
            except BaseException:
                process.kill()
                raise
            try:
                result = self.driver.collect(process)
                time.sleep(SETTLE_S)
                memory = resident_mb(self.cluster.pids())
            finally:
                self.cluster.stop()
        metrics = {
            "first_ack_s": (result["acknowledged_us"] - began_us) / 1e6,
            "command_s": (commanded_us - began_us) / 1e6,
            **_memory_metrics(memory),
        }
        return Run(metrics, {node: {"memory_mb": mb} for node, mb in memory.items()})


def _memory_metrics(memory_mb_by_node: Mapping[str, float]) -> dict[str, float]:
    values = list(memory_mb_by_node.values())
    return {"memory_mb_per_node": statistics.mean(values), "memory_mb_max": max(values)} if values else {}


def _producing_run(result: Mapping[str, Any], window: _Window) -> Run:
    seconds = result["seconds"]
    metrics = {
        "mb_per_s": result["bytes"] / 1e6 / seconds,
        "records_per_s": result["records"] / seconds,
    }
    for name in ("request", "record"):
        histogram = result[f"{name}_us"]
        if histogram["count"]:
            metrics |= {f"{name}_{p}_us": float(histogram[p]) for p in ("p50", "p90", "p99", "p99_9", "max")}
    requests = result["requests"]
    if requests is not None:
        metrics["requests_per_s"] = requests / seconds
    run = Run(metrics, errors=result["errors"], note=result["first_error"])
    if result["log_growth"] != result["acknowledged"]:
        run.errors += abs(result["log_growth"] - result["acknowledged"])
        run.note = (
            run.note or f"the log grew by {result['log_growth']}, acknowledged were {result['acknowledged']}"
        )
    return _with_cpu(run, window, result["bytes"], requests)


def _with_cpu(run: Run, window: _Window, size_bytes: int, requests: int | None) -> Run:
    """Adds what the brokers used; without their process ids the figures are absent, not zero."""
    run.metrics["driver_cores"] = window.driver_cores
    run.leader = window.leader
    used_ms = window.cpu_ms_by_node
    for node, ms in used_ms.items():
        run.brokers[node] = {"memory_mb": window.memory_mb_by_node[node]}
        if size_bytes:
            run.brokers[node]["cpu_ms_per_mb"] = ms / (size_bytes / 1e6)
        if requests:
            run.brokers[node]["cpu_us_per_request"] = ms * 1e3 / requests
    if used_ms:
        run.metrics |= _memory_metrics(window.memory_mb_by_node)
        for metric in ("cpu_ms_per_mb", "cpu_us_per_request"):
            if all(metric in broker for broker in run.brokers.values()):
                run.metrics[metric] = sum(broker[metric] for broker in run.brokers.values())
    return run
