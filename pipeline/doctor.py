"""`python -m pipeline doctor`: whether this machine can run the jobs, and what to do where it cannot.

It changes nothing but a file of its own that it writes to measure the disk, and removes.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import resource
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click
from rich.console import Console
from rich.table import Table

from pipeline.console import EXIT_FAILED
from pipeline.errors import PipelineError
from pipeline.options import RUN_FOLDER
from pipeline.spark.java_runtime import find_java

Status = Literal["OK", "WARN", "FAIL"]

#: Spark's driver has 1 GiB (`session.py`); as much for the Python workers and the page cache.
_MIN_MEMORY_BYTES = 2 << 30
#: Sockets and files of a driver, its workers and producers to a cluster of some nodes.
_MIN_OPEN_FILES = 4096
#: A disk that is slower makes each acknowledgement of a broker on this machine slow.
_SLOW_FLUSH_MS = 20.0
_FLUSHES = 20
_MIN_SPARK = (4, 2)


@dataclass(frozen=True, slots=True)
class Finding:
    status: Status
    """FAIL: no job can be done. WARN: some cannot, or not well."""
    found: str
    help: str = ""
    """What to do; empty where nothing is to be done."""


@click.command("doctor")
@click.option("--bootstrap-server", metavar="HOST:PORT,...", help="A cluster to look for, too.")
@click.option("--producers", default=2, show_default=True, help="Tasks that are to run at once.")
@click.option("--out", type=RUN_FOLDER, default="runs", show_default=True, help="Where runs will be written.")
def doctor_command(bootstrap_server: str | None, producers: int, out: Path) -> None:
    """Look whether this machine can run the jobs, and say what to do. Exit code 1: a job cannot be done."""
    checks: dict[str, Callable[[], Finding]] = {
        "Python": python,
        "packages": packages,
        "Java": java,
        "Spark": spark,
        "Spark's Kafka connector": connector,
        "task slots": lambda: slots(producers),
        "memory": memory,
        "open files": open_files,
        "ports": ports,
        "disk flush": lambda: disk_flush(out),
    }
    if bootstrap_server is not None:
        checks["cluster"] = lambda: cluster(bootstrap_server)
    console = Console()
    findings = {name: check() for name, check in checks.items()}
    table = Table(title="Can this machine run the pipeline?", title_justify="left")
    for column in ("", "", "found"):
        table.add_column(column, overflow="fold")
    styles = {"OK": "green", "WARN": "bold yellow", "FAIL": "bold red"}
    for name, finding in findings.items():
        table.add_row(name, f"[{styles[finding.status]}]{finding.status}[/]", finding.found)
    console.print(table)
    for name, finding in findings.items():
        if finding.help:
            console.print(f"{name}: {finding.help}", markup=False, soft_wrap=True)
    if any(finding.status == "FAIL" for finding in findings.values()):
        sys.exit(EXIT_FAILED)


def python() -> Finding:
    return Finding("OK", f"{platform.python_version()}, {sys.executable}")


def packages() -> Finding:
    needed = ("confluent_kafka", "pyarrow", "pandas", "numpy", "hdrh")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        return Finding("FAIL", f"missing: {', '.join(missing)}", "pip install 'varve[spark]'")
    return Finding("OK", f"confluent-kafka {importlib.metadata.version('confluent-kafka')}")


def java() -> Finding:
    try:
        return Finding("OK", find_java().description)
    except PipelineError as error:
        return Finding("FAIL", "none that Spark can use", str(error))


def spark() -> Finding:
    if importlib.util.find_spec("pyspark") is None:
        return Finding("FAIL", "no pyspark", "pip install 'varve[spark]'")
    version = importlib.metadata.version("pyspark")
    if tuple(map(int, version.split(".")[:2])) < _MIN_SPARK:
        return Finding(
            "WARN", version, 'format("varve") streams with Spark 4.2 and newer: pip install -U pyspark'
        )
    home = os.environ.get("SPARK_HOME")
    if home is not None:
        return Finding(
            "WARN", f"{version}, SPARK_HOME={home}", "unset SPARK_HOME, unless it has the same version"
        )
    return Finding("OK", version)


def connector() -> Finding:
    if importlib.util.find_spec("pyspark") is None:
        return Finding("WARN", "not looked for, without pyspark")
    from pipeline.spark.connector import find_connector

    try:
        return Finding("OK", find_connector().source)
    except PipelineError as error:
        return Finding("WARN", "not to be had: jobs read in Python instead", str(error))


def slots(producers: int) -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = f"{cores} processors for {producers} producers"
    if cores < producers:
        return Finding(
            "WARN", found, "producers will share processors, and latencies will show it: fewer --producers"
        )
    return Finding("OK", found)


def memory() -> Finding:
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = f"{size / (1 << 30):.1f} GiB"
    if size < _MIN_MEMORY_BYTES:
        return Finding("WARN", found, "Spark's driver alone takes 1 GiB: use a machine with 2 GiB or more")
    return Finding("OK", found)


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _MIN_OPEN_FILES:
        return Finding("WARN", f"{soft} (at most {hard})", f"ulimit -n {min(hard, 65536)}")
    return Finding("OK", f"{soft}")


def ports() -> Finding:
    """Spark and the jobs listen on loopback, each on a port that the system picks."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            with socket.create_connection(address, timeout=5):
                return Finding("OK", "loopback takes connections")
    except OSError as error:
        return Finding("FAIL", f"loopback: {error}", "let processes of this machine connect to 127.0.0.1")


def disk_flush(folder: Path) -> Finding:
    """How long a write of 4 KiB takes to be on disk, where the runs (and a demonstration's brokers) will write."""
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            times_ms = []
            for _ in range(_FLUSHES):
                file.write(bytes(4096))
                begun_s = time.perf_counter()
                file.flush()
                os.fsync(file.fileno())
                times_ms.append((time.perf_counter() - begun_s) * 1000)
    except OSError as error:
        return Finding("FAIL", f"{folder}: {error.strerror}", "choose another folder by --out")
    median_ms = statistics.median(times_ms)
    found = f"{median_ms:.1f} ms at the median, {max(times_ms):.1f} at most ({folder.resolve()})"
    if median_ms > _SLOW_FLUSH_MS:
        return Finding(
            "WARN", found, "brokers on this disk will be slow: each acknowledgement waits for a flush"
        )
    return Finding("OK", found)


def cluster(bootstrap_server: str) -> Finding:
    from pipeline.cluster import Cluster

    try:
        brokers = Cluster(bootstrap_server).brokers()
    except PipelineError as error:
        return Finding("FAIL", str(error), "start it, or correct --bootstrap-server: varve cluster up")
    return Finding("OK", f"{len(brokers)} brokers: {', '.join(brokers)}")
