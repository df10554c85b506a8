"""The clusters a row can run against: the Varve of this or another checkout, Apache Kafka, or one that runs already.

Only clusters that the benchmark started are ever stopped, and only those (or Apache Kafka's nodes, through
their own tool) are killed in the fail-over row.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.process_stats import is_alive

CHECKOUT = Path(__file__).resolve().parents[1]
OWN_COMMAND = Path(sys.executable).with_name("varve")
NODE_COUNT = 3
VARVE_BOOTSTRAP = "localhost:19092,localhost:29092,localhost:39092"
OTHER_PORTS = (18092, 18192, 18292)
"""Client ports of another checkout's nodes, which run beside ours; each takes the next port for its peers, too."""
KAFKA_BOOTSTRAP = "127.0.0.1:19192,127.0.0.1:19292,127.0.0.1:19392"
COMMAND_TIMEOUT_S = 300


class ClusterError(Exception):
    """The cluster cannot be started, stopped or asked; the message says why in plain words."""


class Cluster(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def bootstrap(self) -> str: ...

    @property
    def checkout(self) -> Path:
        """Whose commit stands beside the figures: the nodes' where they are of a checkout, else this one's."""

    def pids(self) -> dict[str, int]:
        """Process id by node id, of the nodes that run now."""

    def start(self) -> None:
        """Start from nothing; returns when the cluster's own command says it is up."""

    def stop(self) -> None:
        """Stop it and remove its data."""

    def kill(self, node: str) -> None:
        """SIGKILL."""

    def restart(self, node: str) -> None:
        """Start a killed node again on its data."""


@contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, started and stopped if it does not run yet, else shared and left alone."""
    if cluster.pids():
        yield cluster
        return
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()


class VarveCluster:
    """Three nodes of a checkout's Varve, by its `varve cluster up`.

    That command keeps its data below the working directory, which is a temporary one here. `settings` are
    KEY=VALUE for every node.
    """

    def __init__(self, settings: Sequence[str] = ()) -> None:
        self.name = "varve"
        self.bootstrap = VARVE_BOOTSTRAP
        self.checkout = CHECKOUT
        self._command = OWN_COMMAND
        self._directory: Path | None = None
        self.options = [argument for setting in settings for argument in ("--config", setting)]

    @classmethod
    def of_checkout(cls, checkout: Path) -> VarveCluster:
        """Another checkout's, on ports of its own. Raises ClusterError where its `.venv` does not run its code."""
        cluster = cls()
        cluster.name = f"varve of {checkout}"
        cluster.bootstrap = ",".join(f"localhost:{port}" for port in OTHER_PORTS)
        cluster.checkout = checkout.resolve()
        cluster._command = cluster.checkout / ".venv" / "bin" / "varve"
        cluster.options = ["--ports", ",".join(map(str, OTHER_PORTS))]
        python = cluster._command.with_name("python")
        if not (python.exists() and cluster._command.exists()):
            raise ClusterError(
                f"{checkout} has no .venv with Varve in it; this makes one: {checkout}/scripts/check"
            )
        code = Path(_run([str(python), "-I", "-c", "import broker; print(broker.__file__)"]).strip())
        if not code.is_relative_to(cluster.checkout):
            raise ClusterError(f"{cluster._command} runs {code.parent}, which is not that checkout's code")
        return cluster

    def pids(self) -> dict[str, int]:
        return {} if self._directory is None else varve_pids(self._directory, self._command)

    def start(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="varve-bench-"))
        try:
            self._varve("up", *self.options)
        except BaseException:
            self.stop()  # some nodes may be up
            raise

    def stop(self) -> None:
        assert self._directory is not None
        self._varve("down")  # where it fails the directory stays: nodes may still run on it
        shutil.rmtree(self._directory)
        self._directory = None

    def kill(self, node: str) -> None:
        os.kill(self.pids()[node], signal.SIGKILL)

    def restart(self, node: str) -> None:
        self._varve("up", *self.options)  # starts the nodes that died

    def node_folders(self, pattern: str) -> list[list[Path]]:
        """Of each node, the folders of its data with such a name."""
        assert self._directory is not None
        return [list(node.glob(f"data/{pattern}")) for node in self._directory.glob(".varve/node-*")]

    def run(self, *arguments: str) -> str:
        """A command of its `varve`. Raises ClusterError."""
        assert self._directory is not None
        return _run([str(self._command), *arguments], self._directory)

    def _varve(self, *arguments: str) -> str:
        return self.run("cluster", *arguments)


class ApacheKafka:
    """A real three-node Apache Kafka through the tool beside the checkout (../shared/tools/apache-kafka)."""

    name = "apache-kafka"
    checkout = CHECKOUT
    bootstrap = KAFKA_BOOTSTRAP

    def __init__(self, settings: Sequence[str] = ()) -> None:
        self._tool = CHECKOUT.parent / "shared" / "tools" / "apache-kafka"
        self._settings = settings

    def pids(self) -> dict[str, int]:
        if not self._tool.exists():
            return {}
        # The tool prints its nodes' pid files in node order, and complains where there is none.
        listed = subprocess.run(
            [str(self._tool), "pids"], capture_output=True, text=True, check=False
        ).stdout.split()
        return {str(index): int(pid) for index, pid in enumerate(listed, start=1) if is_alive(int(pid))}

    def start(self) -> None:
        self._kafka("up", str(NODE_COUNT))

    def stop(self) -> None:
        self._kafka("down")

    def kill(self, node: str) -> None:
        self._kafka("kill", node)

    def restart(self, node: str) -> None:
        self._kafka("start", node)

    def folders(self, name: str) -> list[Path]:
        """Folders of this name in the nodes' data."""
        home = Path(os.environ.get("KAFKA_HOME_DIR", "/tmp/apache-kafka"))
        return list(home.glob(f"node*/data/{name}"))

    def _kafka(self, *arguments: str) -> str:
        if not self._tool.exists():
            raise ClusterError(f"no Apache Kafka here: {self._tool} does not exist")
        settings = " ".join([os.environ.get("KAFKA_EXTRA", ""), *self._settings])
        return _run(["env", f"KAFKA_EXTRA={settings}", str(self._tool), *arguments])


class ForeignCluster:
    """A cluster that somebody else runs: measured, never started, stopped or killed."""

    name = "foreign"
    checkout = CHECKOUT

    def __init__(self, bootstrap: str, pid_by_node: Mapping[str, int]) -> None:
        self.bootstrap = bootstrap
        self._pid_by_node = dict(pid_by_node)

    def pids(self) -> dict[str, int]:
        return {node: pid for node, pid in self._pid_by_node.items() if is_alive(pid)}

    def start(self) -> None:
        return  # it runs already; without pids we only cannot see its CPU

    def stop(self) -> None:
        return

    def kill(self, node: str) -> None:
        raise ClusterError("this row kills a node: it runs on --cluster varve or --cluster kafka only")

    def restart(self, node: str) -> None:
        raise ClusterError("this row restarts a node: it runs on --cluster varve or --cluster kafka only")


def varve_pids(directory: Path, command: Path = OWN_COMMAND) -> dict[str, int]:
    """The nodes of the cluster that `varve cluster up` keeps below `directory`; none if there is no cluster."""
    try:
        status = json.loads(_run([str(command), "cluster", "status", "--format", "json"], directory))
    except ClusterError:
        return {}
    return {str(node["node_id"]): node["pid"] for node in status["nodes"] if node["pid"]}


def known_pids(bootstrap: str) -> dict[str, int]:
    """Process ids of a cluster known by its ports: the working directory's Varve, or the tool's Apache Kafka."""
    if ports_of(bootstrap) & ports_of(VARVE_BOOTSTRAP):
        return varve_pids(Path.cwd())
    return ApacheKafka().pids() if ports_of(bootstrap) & ports_of(KAFKA_BOOTSTRAP) else {}


def ports_of(bootstrap: str) -> set[int]:
    return {int(address.rpartition(":")[2]) for address in bootstrap.split(",")}


def _run(command: list[str], directory: Path | None = None) -> str:
    # Files, not pipes: nodes that stay in the background inherit them, and a pipe would never end.
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as complaints:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=complaints,
                cwd=directory,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise ClusterError(f"{command[0]} is not installed") from error
        output.seek(0)
        complaints.seek(0)
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(command)}: {complaints.read().strip() or output.read().strip()}")
        return output.read()
