"""The demonstration: a cluster, a load, a leader killed in the middle, and the proof that nothing was lost.

With `--bootstrap-server` it loads and verifies a cluster that is there already, and kills nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.table import Table

from pipeline.cli import EXIT_FAILED, STDERR, errors_as_exit_code, load_bar, sizes, warn
from pipeline.errors import PipelineError
from pipeline.progress import Progress

PARTITIONS = 3
REPLICATION_FACTOR = 3
_PREFERRED_PORTS = (19092, 29092, 39092)
# The share of the records that is acknowledged when the leader is killed, and how long it stays away.
_KILL_AT = 0.4
_DOWN_FOR_S = 4.0
_COMMAND_TIMEOUT_S = 120


class LocalCluster:
    """A three-node cluster of our own, by the `varve` command as a user types it."""

    def __init__(self, base_dir: Path) -> None:
        self.base_dir = base_dir
        self.bootstrap_server = ""
        self._ports: tuple[int, ...] | None = None

    def up(self) -> float:
        """Start the nodes that do not run; how long it took, in seconds."""
        if self._ports is None:
            self._ports = free_ports()
        ports = ",".join(str(port) for port in self._ports)
        answer = json.loads(self._varve("cluster", "up", "--ports", ports, "--format", "json"))
        self.bootstrap_server = answer["bootstrap_server"]
        elapsed_ms: float = answer["elapsed_ms"]
        return elapsed_ms / 1000

    def pid(self, node_id: int) -> int:
        nodes = json.loads(self._varve("cluster", "status", "--format", "json"))["nodes"]
        pids: list[int] = [node["pid"] for node in nodes if node["node_id"] == node_id and node["pid"]]
        if not pids:
            raise PipelineError(f"node {node_id} does not run")
        return pids[0]

    def remove(self) -> None:
        """Stop all nodes and delete their data; nothing happens where there are none."""
        self._varve("cluster", "down", "--grace", "10", "--delete-data")
        shutil.rmtree(self.base_dir, ignore_errors=True)

    def _varve(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "broker.cli", *arguments, "--base-dir", str(self.base_dir)]
        # A session of its own: Ctrl-C is ours to handle, and must not cut off the command that cleans up.
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
            start_new_session=True,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise PipelineError(f"varve {' '.join(arguments)} failed:\n{said}")
        return done.stdout


class LeaderKiller:
    """Kills the leader of partition 0 once enough is acknowledged, and starts it again some seconds later."""

    def __init__(
        self, cluster: LocalCluster, topic: str, after_records: int, say: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._after_records = after_records
        self._say = say
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._kill: dict[str, Any] = {}

    def watch(self, progress: Progress) -> None:
        """Called with each report of progress, always by the same thread."""
        if self._thread is None and progress.acknowledged >= self._after_records:
            self._thread = threading.Thread(target=self._run, name="leader-killer", daemon=True)
            self._thread.start()

    def finish(self) -> dict[str, Any]:
        """Wait until the node is back; what was killed and when. Raises what went wrong, or never happened."""
        if self._thread is None:
            raise PipelineError("the load ended before a leader could be killed; give it more --records")
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._kill

    def _run(self) -> None:
        try:
            from pipeline.cluster import Cluster

            leader = Cluster(self._cluster.bootstrap_server).leader(self._topic, 0)
            if leader is None:
                raise PipelineError(f"partition 0 of {self._topic} had no leader to kill")
            pid = self._cluster.pid(leader)
            self._kill = {"node_id": leader, "pid": pid, "killed_at_us": time.time_ns() // 1000}
            os.kill(pid, signal.SIGKILL)
            self._say(f"kill -9 of node {leader} (pid {pid}), the leader of {self._topic}-0")
            time.sleep(_DOWN_FOR_S)
            self._cluster.up()
            self._say(f"node {leader} is back")
        except BaseException as error:
            # Kept for finish(), which runs in the main thread.
            self._error = error


def free_ports() -> tuple[int, ...]:
    """The usual ports, or others where a cluster of the user's has them. Each node takes the next one, too."""

    def is_free(port: int) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
            return True

    for offset in range(0, 9_000, 500):
        ports = tuple(port + offset for port in _PREFERRED_PORTS)
        if all(is_free(port) and is_free(port + 1) for port in ports):
            return ports
    raise PipelineError("no free ports for three nodes between 19092 and 48092")


@contextmanager
def local_cluster(base_dir: Path, say: Callable[[str], None]) -> Iterator[LocalCluster]:
    """A running cluster, which is gone at the end of the block whatever ends it."""
    cluster = LocalCluster(base_dir)
    # What an earlier demonstration left behind that was itself killed.
    cluster.remove()
    try:
        elapsed_s = cluster.up()
        say(f"three brokers answer at {cluster.bootstrap_server} after {elapsed_s:.1f} s")
        yield cluster
    finally:
        # A second Ctrl-C would leave brokers behind.
        previous = [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            cluster.remove()
            say("the brokers are stopped, their data is removed")
        finally:
            for number, handler in zip((signal.SIGINT, signal.SIGTERM), previous, strict=True):
                signal.signal(number, handler)


@contextmanager
def _no_cluster() -> Iterator[None]:
    yield None


@click.command("demo")
@click.option("--bootstrap-server", metavar="HOST:PORT,...", help="Load and verify this cluster; no kill.")
@click.option("--records", default=100_000, show_default=True, type=click.IntRange(min=1))
@click.option("--rate", default=5000.0, show_default=True, help="Records per second.")
@sizes
@click.option("--base-dir", default=".varve/demo", show_default=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder.  [default: runs/demo-TIME]")
def demo_command(
    bootstrap_server: str | None,
    records: int,
    rate: float,
    record_size: int,
    keys: int,
    producers: int,
    seed: int,
    compression: str,
    base_dir: Path,
    out: Path | None,
) -> None:
    """Start three brokers, load them, kill a leader in the middle, verify every record."""
    run = out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    started = time.monotonic()
    console = Console()

    def say(text: str) -> None:
        line = f"[{time.monotonic() - started:6.1f} s] {text}"
        STDERR.print(line, markup=False, highlight=False, soft_wrap=True)

    signal.signal(signal.SIGTERM, _exit_on_signal)
    with errors_as_exit_code(run / "spark.log"):
        from pipeline.java_runtime import find_java
        from pipeline.load import LoadOptions
        from pipeline.records import RunSpec

        # First of all: to learn of a missing Java after a minute would be unkind.
        say(f"Spark will run on {find_java().description}")
        now_ms = int(time.time() * 1000)
        try:
            spec = RunSpec(f"demo-{now_ms}", records, seed, record_size, keys, producers, rate, now_ms)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        with local_cluster(base_dir, say) if bootstrap_server is None else _no_cluster() as cluster:
            bootstrap = cluster.bootstrap_server if cluster else bootstrap_server
            assert bootstrap is not None, "given, or that of the cluster just started"
            killer = LeaderKiller(cluster, spec.topic, int(records * _KILL_AT), say) if cluster else None
            options = LoadOptions(
                bootstrap, run, compression, partitions=PARTITIONS, replication_factor=REPLICATION_FACTOR
            )
            loaded, verified, kill = _load_and_verify(spec, options, killer, say)
        _print_result(console, run, loaded, verified, kill)
    if loaded["acknowledged"] < records or not verified["passed"]:
        sys.exit(EXIT_FAILED)


def _load_and_verify(
    spec: Any, options: Any, killer: LeaderKiller | None, say: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any] | None]:
    from pipeline.load import DELIVERIES, load, longest_gap
    from pipeline.session import spark_session
    from pipeline.summary import update_summary
    from pipeline.verify import VerifyOptions, verify

    say("starting Spark")
    with spark_session(options.run / "spark.log", spec.producers, records=spec.records) as spark:
        say(f"loading {spec.records:,} records at {spec.rate_per_s:,.0f}/s into {spec.topic}")
        with load_bar(spec.records) as move_bar:

            def report(progress: Progress) -> None:
                move_bar(progress)
                if killer is not None:
                    killer.watch(progress)

            loaded = load(spark, spec, options, report)
        kill = None
        if killer is not None:
            kill = killer.finish()
            acknowledged = spark.read.parquet(str(options.run / DELIVERIES)).where("error is null")
            kill["gap"] = longest_gap(acknowledged, since_us=kill["killed_at_us"])
            update_summary(options.run, "kill", kill)
        say("verifying: reading everything back")
        verified = verify(spark, VerifyOptions(options.run, options.bootstrap_server), warn)
        say("verified")
    return loaded, verified, kill


def _print_result(
    console: Console,
    run: Path,
    loaded: dict[str, Any],
    verified: dict[str, Any],
    kill: dict[str, Any] | None,
) -> None:
    from pipeline.summary import gap_figure, load_rows, print_checks

    title = f"{verified['records_read']:,} records read by {verified['read_by']}"
    print_checks(console, title, verified["checks"])
    table = Table(title=f"Demonstration ({run})", title_justify="left", show_header=False)
    for name, figure in load_rows(loaded):
        table.add_row(name, figure)
    if kill is not None:
        gap = gap_figure(kill["gap"]) if kill["gap"] else "nothing was acknowledged any more"
        table.add_row("fail-over gap", f"{gap}, kill -9 of node {kill['node_id']}")
    count = sum(check["status"] == "PASS" for check in verified["checks"])
    style = "bold green" if verified["passed"] else "bold red"
    table.add_row("checks passed", f"[{style}]{count} of {len(verified['checks'])}[/]")
    console.print(table)


def _exit_on_signal(number: int, _: FrameType | None) -> NoReturn:
    # As an exception, so that the brokers are stopped on the way out.
    sys.exit(128 + number)
