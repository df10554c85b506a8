"""The cluster of this working directory: its nodes, which of them run, and how they are started.

BASE/cluster.json       the layout: ports and settings, written by the first `up`
BASE/secret             the secret with which its nodes prove themselves to each other, likewise
BASE/node-N/data        log.dirs of the node
BASE/node-N/log         its output since its start; log.1 and so on are older (broker/log_file.py)
BASE/node-N/pid         its process id, and when that process started
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from broker.cli.processes import POLL_S, Process, is_running, spawn_process
from broker.isolated import isolated_command
from broker.log_file import keep_older
from broker.security.cluster_secret import VARIABLE, new_secret
from broker.security.secret_file import write_secret

DEFAULT_BASE_DIR = Path(".varve")
DEFAULT_PORTS = (19092, 29092, 39092, 49092, 59092)
_LAYOUT_FILE = "cluster.json"
PROBE_TIMEOUT_S = 1.0
#: How often it is said what is waited for.
_PROGRESS_INTERVAL_S = 5.0
_METRICS_PORT = "varve.metrics.port"
#: Starts a process by its command, the file for its output, and its environment.
Spawn = Callable[[Sequence[str], Path, Mapping[str, str]], Process]


class LocalClusterError(Exception):
    """The command cannot use the cluster. The message says why."""


@dataclass(frozen=True)
class LocalNode:
    node_id: int
    port: int
    metrics_port: int
    """0: the settings of all nodes say where it is, or that there is none."""
    directory: Path

    @property
    def controller_port(self) -> int:
        return self.port + 1

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    @property
    def metrics_url(self) -> str | None:
        return f"http://localhost:{self.metrics_port}/metrics" if self.metrics_port else None

    @property
    def log(self) -> Path:
        return self.directory / "log"

    def process(self) -> Process | None:
        """The node's process, if it runs."""
        try:
            pid, started = json.loads((self.directory / "pid").read_text(encoding="utf-8"))
            process = Process(int(pid), str(started))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return process if is_running(process) else None

    def note_process(self, process: Process) -> None:
        _write_whole(self.directory / "pid", json.dumps([process.pid, process.started]))

    def log_tail(self, lines: int = 15) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
        return ""


@dataclass(frozen=True)
class LocalCluster:
    base_dir: Path
    ports: tuple[int, ...]
    #: Settings of every node, without those that differ from node to node.
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> list[LocalNode]:
        metrics_ports = (
            [0] * len(self.ports) if _METRICS_PORT in self.settings else metrics_ports_of(self.ports)
        )
        return [
            LocalNode(node_id, port, metrics_port, self.base_dir / f"node-{node_id}")
            for node_id, (port, metrics_port) in enumerate(
                zip(self.ports, metrics_ports, strict=True), start=1
            )
        ]

    @property
    def bootstrap_server(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def secret_file(self) -> Path:
        return self.base_dir / "secret"

    @classmethod
    def load(cls, base_dir: Path) -> LocalCluster | None:
        """The cluster of a directory. None: there is none. Raises LocalClusterError if its file is damaged."""
        path = base_dir / _LAYOUT_FILE
        try:
            layout = json.loads(path.read_text(encoding="utf-8"))
            return cls(base_dir, tuple(layout["ports"]), dict(layout["settings"]))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LocalClusterError(f"{path} cannot be read: {error}") from None

    def save(self) -> None:
        layout = {"ports": list(self.ports), "settings": self.settings}
        _write_whole(self.base_dir / _LAYOUT_FILE, json.dumps(layout, indent=2) + "\n")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the cluster. Raises LocalClusterError if another `up` or `down` holds it."""
        try:
            self.base_dir.mkdir(parents=True, exist_ok=True)
            lock = (self.base_dir / "lock").open("w", encoding="utf-8")
        except OSError as error:
            raise LocalClusterError(f"{self.base_dir} cannot be used: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LocalClusterError(
                    f"another command is working on the cluster in {self.base_dir}"
                ) from None
            yield

    def start(self, nodes: Sequence[LocalNode], spawn: Spawn = spawn_process) -> dict[int, Process]:
        """Start these nodes in the background. Raises LocalClusterError if a port is in use, and starts none then."""
        for node in nodes:
            for port in (node.port, node.controller_port):
                _check_free(port)
            if node.metrics_port:
                _check_free(node.metrics_port, f"--config {_METRICS_PORT}=0 goes without metrics")
        # Not before: other commands find the cluster by this file, and would talk to whoever has the ports.
        self.save()
        with contextlib.suppress(FileExistsError):
            write_secret(self.secret_file, new_secret(os.urandom))
        # A secret there would be another cluster's.
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        started = {}
        for node in nodes:
            node.directory.mkdir(parents=True, exist_ok=True)
            # Each start has a file of its own, so that nobody takes an older failure for this one's.
            keep_older(node.log)
            process = spawn(self._command(node), node.log, environment)
            node.note_process(process)
            started[node.node_id] = process
        return started

    def settings_of(self, node: LocalNode) -> dict[str, str]:
        """What this node is started with."""
        voters = ",".join(f"{x.node_id}@localhost:{x.controller_port}" for x in self.nodes)
        return {
            # As in the server.properties of Apache Kafka: on a developer's machine nobody waits for more members.
            "group.initial.rebalance.delay.ms": "0",
            "varve.cluster.secret": os.path.abspath(self.secret_file),
            _METRICS_PORT: str(node.metrics_port),
            **self.settings,
            "node.id": str(node.node_id),
            "process.roles": "broker,controller",
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": f"PLAINTEXT://localhost:{node.port},CONTROLLER://localhost:{node.controller_port}",
            "advertised.listeners": f"PLAINTEXT://localhost:{node.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": os.path.abspath(node.directory / "data"),
        }

    def _command(self, node: LocalNode) -> list[str]:
        overrides = [
            part for key, value in self.settings_of(node).items() for part in ("--override", f"{key}={value}")
        ]
        log = ("--log-file", os.path.abspath(node.log))
        return isolated_command("broker.cli", "start", *log, *overrides)


def wait_until_ready(
    local: LocalCluster,
    processes: Mapping[int, Process],
    deadline: float,
    say: Callable[[str], None],
    rest: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until every node of `processes` answers, and knows these nodes and the controller.

    `deadline`: by time.monotonic(). `rest` lets seconds pass between two looks, and may raise what ends the wait.
    Raises LocalClusterError, with the end of the log of a node that stopped."""
    pending = [node for node in local.nodes if node.node_id in processes]
    next_progress_at = time.monotonic() + _PROGRESS_INTERVAL_S
    while True:
        reasons: dict[LocalNode, str] = {}
        for node in pending:
            if not is_running(processes[node.node_id]):
                raise LocalClusterError(
                    f"node {node.node_id} has stopped; the end of {node.log}:\n{node.log_tail()}"
                )
            missing = _missing_to_be_ready(node, processes.keys())
            if missing is not None:
                reasons[node] = missing
        if not reasons:
            return
        pending = list(reasons)
        node, now = pending[-1], time.monotonic()
        if now > deadline:
            raise LocalClusterError(
                f"node {node.node_id} is not ready ({reasons[node]}); its log is {node.log}"
            )
        if now > next_progress_at:
            next_progress_at += _PROGRESS_INTERVAL_S
            say(f"waiting for node {node.node_id}: {node.log_tail(1)}")
        rest(POLL_S)


def _missing_to_be_ready(node: LocalNode, node_ids: AbstractSet[int]) -> str | None:
    """None: it is ready."""
    from broker.cli.probe import ProbeError, probe

    try:
        view = probe("localhost", node.port, PROBE_TIMEOUT_S)
    except ProbeError as error:
        return str(error)
    if view.is_complete(set(node_ids)):
        return None
    controller = "a" if view.controller_id >= 0 else "no"
    return f"it knows the nodes {sorted(view.brokers)} and {controller} controller"


def is_port_free(port: int) -> bool:
    """Whether a node could listen there."""
    try:
        _check_free(port)
    except LocalClusterError:
        return False
    return True


def metrics_ports_of(ports: Sequence[int]) -> list[int]:
    """The second port after each node's own: 19094 after 19092 and 19093. If that is another node's port, the first
    distance that fits all nodes."""
    taken = {*ports, *(port + 1 for port in ports)}
    distance = next(n for n in count(2) if taken.isdisjoint(port + n for port in ports))
    return [port + distance for port in ports]


def _check_free(port: int, advice: str = "--ports names others") -> None:
    """Raises LocalClusterError if another process listens on this port of a loopback address."""
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                if not _is_served(family, host, port):
                    continue  # An outgoing connection has the port. The node waits until it is closed.
                raise LocalClusterError(f"port {port} is in use by another process; {advice}") from None
            if error.errno == errno.EACCES:
                raise LocalClusterError(f"no permission to listen on port {port}; {advice}") from None
            if family == socket.AF_INET:  # A machine need not have IPv6.
                raise LocalClusterError(f"port {port} cannot be listened on: {error.strerror}") from None


def _is_served(family: int, host: str, port: int) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(1)
        return sock.connect_ex((host, port)) == 0 and sock.getsockname() != sock.getpeername()


def _write_whole(path: Path, text: str) -> None:
    """Whoever reads meanwhile finds the file as it was, or as it is now."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
