"""A three-node cluster of our own, by the `varve` command as a user types it, and what can befall its nodes."""

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
from typing import Any

from pipeline.errors import PipelineError

_NODES = 3
# Each node takes a port and the next two. All lie below the range from which the system takes ports for outgoing
# connections (32768 up on Linux): there one of those can hold a dead node's port, or a client that dials it can
# reach itself.
_PORTS = range(21092, 32000, 4)
_COMMAND_TIMEOUT_S = 300  # to delete thousands of small files takes some disks minutes
_POLL_S = 0.05


class LocalCluster:
    """Its methods may be called by any thread, one at a time; none has an effect after `stop`.

    All raise PipelineError where `varve` fails.
    """

    def __init__(self, base_dir: Path) -> None:
        self.base_dir = base_dir
        self.bootstrap_server = ""
        self.keeps_data = False
        """Whether the nodes' data outlives the cluster: for whoever looks into what went wrong."""
        self._ports: tuple[int, ...] | None = None
        self._lock = threading.RLock()
        self._is_stopped = False

    def up(self) -> float:
        """Start the nodes that do not run, and wait until all answer; how long it took, in seconds."""
        if self._ports is None:
            self._ports = free_ports()
        ports = ",".join(str(port) for port in self._ports)
        answer = json.loads(self._varve("cluster", "up", "--ports", ports, "--format", "json"))
        self.bootstrap_server = answer["bootstrap_server"]
        elapsed_ms: float = answer["elapsed_ms"]
        return elapsed_ms / 1000

    @property
    def addresses(self) -> list[str]:
        return self.bootstrap_server.split(",")

    def pids(self) -> dict[int, int]:
        """Process id of each node that runs."""
        return {node["node_id"]: node["pid"] for node in self._nodes() if node["pid"]}

    def kill(self, *node_ids: int) -> None:
        """kill -9 of all these at once; they have ended when it returns."""
        with self._lock:
            self._signal(signal.SIGKILL, node_ids)
            deadline = time.monotonic() + _COMMAND_TIMEOUT_S
            while left := self.pids().keys() & set(node_ids):
                if time.monotonic() > deadline:
                    raise PipelineError(f"nodes {sorted(left)} survived SIGKILL for {_COMMAND_TIMEOUT_S} s")
                time.sleep(_POLL_S)

    def freeze(self, node_id: int) -> None:
        """SIGSTOP: its connections stay open."""
        self._signal(signal.SIGSTOP, [node_id])

    def thaw(self, node_id: int) -> None:
        self._signal(signal.SIGCONT, [node_id])

    def wipe(self, node_id: int) -> None:
        """Delete the data directory of a node that does not run, as if its disk had been replaced."""
        with self._lock:
            node = next(node for node in self._nodes() if node["node_id"] == node_id)
            if node["pid"]:
                raise PipelineError(f"node {node_id} runs: its directory cannot be taken away")
            shutil.rmtree(Path(node["directory"]) / "data")

    def compare_replicas(self, topic: str) -> list[dict[str, Any]]:
        """What `varve verify replicas` says of each partition."""
        # 1: replicas differ; 10: not every one was compared. What is printed is the answer then, too.
        where = ("--bootstrap-server", self.bootstrap_server, "--format", "json")
        answer = json.loads(self._run("verify", "replicas", topic, *where, answers=(1, 10)))
        partitions: list[dict[str, Any]] = answer["partitions"]
        return partitions

    def stop(self, logs: Path | None = None) -> None:
        """Stop all nodes and delete their data, unless it is to be kept; nothing happens where there are none.

        `logs`: a folder that gets what each node printed.
        """
        with self._lock:
            self._varve("cluster", "down", "--grace", "10")
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
                for log in self.base_dir.glob("node-*/log"):
                    shutil.copy(log, logs / f"{log.parent.name}.log")
            if not self.keeps_data:
                self._varve("cluster", "down", "--delete-data", "--yes")
                shutil.rmtree(self.base_dir, ignore_errors=True)
            self._is_stopped = True

    def _nodes(self) -> list[dict[str, Any]]:
        status = json.loads(self._varve("cluster", "status", "--format", "json"))
        nodes: list[dict[str, Any]] = status["nodes"]
        return nodes

    def _signal(self, number: signal.Signals, node_ids: tuple[int, ...] | list[int]) -> None:
        with self._lock:
            pids = self.pids()
            if missing := set(node_ids) - pids.keys():
                raise PipelineError(f"nodes {sorted(missing)} do not run")
            for node_id in node_ids:
                os.kill(pids[node_id], number)

    def _varve(self, *arguments: str) -> str:
        return self._run(*arguments, "--base-dir", str(self.base_dir))

    def _run(self, *arguments: str, answers: tuple[int, ...] = ()) -> str:
        """What it prints; `answers`: exit codes that are none of a failure where something is printed."""
        command = [sys.executable, "-m", "varve", *arguments]
        with self._lock:
            if self._is_stopped:
                raise PipelineError(f"the cluster in {self.base_dir} has been stopped")
            try:
                # A session of its own: Ctrl-C is ours to handle, and must not cut off the command that cleans up.
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=_COMMAND_TIMEOUT_S,
                    check=False,
                    start_new_session=True,
                )
            except subprocess.TimeoutExpired:
                raise PipelineError(
                    f"varve {' '.join(arguments)} has not ended after {_COMMAND_TIMEOUT_S} s"
                ) from None
        if done.returncode != 0 and not (done.returncode in answers and done.stdout):
            said = (done.stderr or done.stdout).strip()
            raise PipelineError(f"varve {' '.join(arguments)} failed:\n{said}")
        return done.stdout


def is_free(port: int) -> bool:
    """Whether a broker could listen there, on loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports() -> tuple[int, ...]:
    """One for each node; the next two are free as well."""
    found: list[int] = []
    for port in _PORTS:
        if all(is_free(port + n) for n in range(3)):
            found.append(port)
        if len(found) == _NODES:
            return tuple(found)
    raise PipelineError(f"no free ports for {_NODES} nodes between {_PORTS.start} and {_PORTS.stop}")


@contextmanager
def local_cluster(
    base_dir: Path, say: Callable[[str], None], logs: Path | None = None
) -> Iterator[LocalCluster]:
    """A running cluster, of which no process is left at the end of the block, whatever ends it."""
    # What an earlier run left behind that was itself killed, or that kept its data.
    LocalCluster(base_dir).stop()
    cluster = LocalCluster(base_dir)
    try:
        elapsed_s = cluster.up()
        say(f"three brokers answer at {cluster.bootstrap_server} after {elapsed_s:.1f} s")
        yield cluster
    finally:
        # A second Ctrl-C would leave brokers behind.
        previous = [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            cluster.stop(logs)
            kept = f"kept in {base_dir}" if cluster.keeps_data else "removed"
            say(f"the brokers are stopped, their data is {kept}")
        finally:
            for number, handler in zip((signal.SIGINT, signal.SIGTERM), previous, strict=True):
                signal.signal(number, handler)
