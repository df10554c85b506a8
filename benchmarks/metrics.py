"""What metrics cost: a scrape of a node with many partitions, whoever else is served meanwhile, and a producer.

The bars of the issue: a scrape of 1,000 partitions within 200 ms, no stall of the loop above 5 ms, and less than 1 %
of a producer's throughput.
"""

from __future__ import annotations

import json
import socket
import statistics
import struct
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.cluster import ClusterError, VarveCluster
from benchmarks.measure import Bench
from benchmarks.process_stats import sample_cpu
from benchmarks.repeating import repeating
from benchmarks.report import number
from benchmarks.results import range_of_median
from benchmarks.rows import Row

TIMEOUT_S = 120.0
SCRAPE_EVERY_S = 1.0
#: ApiVersions v0 without a client id: the smallest request that is answered at once.
_PING = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@dataclass(frozen=True)
class Scrapes:
    """Of one node, one after the other, with nothing else to do."""

    partitions: int
    answer_bytes: int
    lines: int
    times_ms: list[float]
    #: Of the node for each of them, what it uses anyway taken away.
    cpu_ms: float
    #: Longest time of a small request in windows of the same length, without and with a scrape in them.
    ping_alone_ms: list[float]
    ping_beside_ms: list[float]


@dataclass(frozen=True)
class Window:
    """A stretch of producing."""

    is_scraped: bool
    mb_per_s: float
    cpu_ms_per_mb: float


def metrics_urls(cluster: VarveCluster) -> dict[str, str]:
    """By node."""
    nodes = json.loads(cluster.run("cluster", "status", "--format", "json"))["nodes"]
    return {str(node["node_id"]): node["metrics"] for node in nodes}


def scrape(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: bytes = answer.read()
    return text


def create_partitions(cluster: VarveCluster, partitions: int) -> None:
    """Three replicas of each, so that every node shows all of them. Waits until all are led."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("many", partitions, 3)], request_timeout=TIMEOUT_S)["many"].result(
        TIMEOUT_S
    )
    give_up_at = time.monotonic() + TIMEOUT_S
    while True:
        found = admin.list_topics("many", timeout=30).topics["many"].partitions
        if len(found) == partitions and all(each.leader >= 0 for each in found.values()):
            return
        if time.monotonic() > give_up_at:
            raise ClusterError(f"not all of {partitions} partitions have a leader after {TIMEOUT_S:g} s")
        time.sleep(0.1)


def measure_scrapes(cluster: VarveCluster, node: str, partitions: int, runs: int) -> Scrapes:
    url, pids = metrics_urls(cluster)[node], {node: cluster.pids()[node]}
    port = int(cluster.bootstrap.split(",")[int(node) - 1].rpartition(":")[2])
    text = scrape(url)
    time.sleep(2.0)
    idle_ms_per_s = _cpu_ms(pids, lambda: time.sleep(3.0)) / 3.0
    times_ms: list[float] = []

    def scrape_all() -> None:
        for _ in range(runs):
            began_s = time.monotonic()
            scrape(url)
            times_ms.append((time.monotonic() - began_s) * 1e3)

    used_ms = _cpu_ms(pids, scrape_all)
    cpu_ms = used_ms / runs - idle_ms_per_s * statistics.mean(times_ms) / 1e3
    alone, beside = _longest_pings(port, url, runs, statistics.median(times_ms) / 1e3)
    lines = sum(not line.startswith(b"#") for line in text.splitlines())
    return Scrapes(partitions, len(text), lines, times_ms, cpu_ms, alone, beside)


def _cpu_ms(pids: dict[str, int], action: Any) -> float:
    before = sample_cpu(pids)
    action()
    return sum(before.used_ms_until(sample_cpu(pids)).values())


def _longest_pings(port: int, url: str, runs: int, window_s: float) -> tuple[list[float], list[float]]:
    """(without, with a scrape): the longest ping of each window."""
    alone: list[float] = []
    beside: list[float] = []
    with socket.create_connection(("localhost", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(runs):
            alone.append(_longest_ping(connection, window_s))
            scraping = threading.Thread(target=scrape, args=(url,))
            scraping.start()
            beside.append(_longest_ping(connection, window_s))
            scraping.join()
    return alone, beside


def _longest_ping(connection: socket.socket, window_s: float) -> float:
    ends_s, longest_s = time.monotonic() + window_s, 0.0
    while (began_s := time.monotonic()) < ends_s:
        connection.sendall(_PING)
        (left,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        connection.recv(left, socket.MSG_WAITALL)
        longest_s = max(longest_s, time.monotonic() - began_s)
    return longest_s * 1e3


def measure_producing(bench: Bench, cluster: VarveCluster, row: Row, rounds: int) -> list[Window]:
    """Windows in turn: without, with scrapes, and without at the end."""
    urls = list(metrics_urls(cluster).values())

    def scrape_all() -> None:
        for url in urls:
            scrape(url)

    target = bench.create_topic()
    bench.produce_into(target, row)  # connections, page cache
    windows = [_window(bench, target, row, is_scraped=False)]
    for number_ in range(rounds):
        bench.log(f"producing, round {number_ + 1} of {rounds}")
        # As by Prometheus with a short interval.
        with repeating(scrape_all, SCRAPE_EVERY_S, SCRAPE_EVERY_S):
            windows.append(_window(bench, target, row, is_scraped=True))
        windows.append(_window(bench, target, row, is_scraped=False))
    return windows


def _window(bench: Bench, topic: str, row: Row, *, is_scraped: bool) -> Window:
    metrics = bench.produce_into(topic, row).metrics
    return Window(is_scraped, metrics["mb_per_s"], metrics["cpu_ms_per_mb"])


def ratios_to_neighbours(windows: Sequence[Window]) -> list[float]:
    """Throughput of each scraped window by the mean of the two around it."""
    return [
        2 * windows[at].mb_per_s / (windows[at - 1].mb_per_s + windows[at + 1].mb_per_s)
        for at in range(1, len(windows) - 1, 2)
    ]


def document_of(scrapes: Scrapes, windows: Sequence[Window]) -> dict[str, Any]:
    """For --format json."""
    return {"scrapes": asdict(scrapes), "windows": [asdict(each) for each in windows]}


def print_metrics(scrapes: Scrapes, windows: Sequence[Window], out: Console) -> None:
    table = Table("a scrape of", box=box.SIMPLE)
    for column in ("lines", "KB", "median ms", "most ms", "CPU ms", "ping beside, most ms", "alone, most ms"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{scrapes.partitions} partitions",
        str(scrapes.lines),
        number(scrapes.answer_bytes / 1e3),
        number(statistics.median(scrapes.times_ms)),
        number(max(scrapes.times_ms)),
        number(scrapes.cpu_ms),
        f"{number(statistics.median(scrapes.ping_beside_ms))} (median of {len(scrapes.ping_beside_ms)})",
        number(statistics.median(scrapes.ping_alone_ms)),
    )
    out.print(table)
    table = Table("producing", box=box.SIMPLE)
    for column in ("windows", "MB/s", "broker CPU, ms per MB", "to none", "95 %"):
        table.add_column(column, justify="right")
    ratios = ratios_to_neighbours(windows)
    low, high = range_of_median(ratios)
    for is_scraped in (False, True):
        those = [each for each in windows if each.is_scraped is is_scraped]
        table.add_row(
            "a scrape of each node per second" if is_scraped else "without",
            str(len(those)),
            number(statistics.median(each.mb_per_s for each in those)),
            number(statistics.median(each.cpu_ms_per_mb for each in those)),
            f"{statistics.median(ratios) - 1:+.1%}" if is_scraped else "",
            f"{low - 1:+.1%} .. {high - 1:+.1%}" if is_scraped else "",
        )
    out.print(table)
