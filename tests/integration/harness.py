"""Three real brokers, each a process of its own, started, killed, paused and brought back by a test.

Everything is done by process id of our own children: nothing that somebody else started is ever signalled.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from tests.integration.wire import Wire
from tests.ports import free_ports

ROOT = Path(__file__).parent.parent.parent
POLL_S = 0.02
T = TypeVar("T")


def eventually(look: Callable[[], T | None], what: str, timeout_s: float = 20) -> T:
    """Ask until the answer is true, and return it. For what no event of ours announces: another process's state."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {timeout_s} s for: {what}"
        time.sleep(POLL_S)


class Broker:
    """One node: where it keeps its data, how it is reached, and its process while there is one."""

    def __init__(self, node_id: int, port: int, directory: Path) -> None:
        self.node_id = node_id
        self.port = port
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    @property
    def metrics_port(self) -> int:
        return self.port + 2

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://localhost:{self.metrics_port}/metrics", timeout=20) as answer:
            text: str = answer.read().decode()
        return text

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def rss_bytes(self) -> int:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def log_text(self) -> str:
        return (self.directory / "log").read_text(encoding="utf-8", errors="replace")

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


class BrokerCluster:
    """N nodes that know each other, with the same settings."""

    def __init__(self, base_dir: Path, size: int = 3, **settings: str) -> None:
        """Settings by Kafka's names, dots as double underscores: log__segment__bytes="65536"."""
        self._settings = {name.replace("__", "."): value for name, value in settings.items()}
        self.brokers = {
            node_id: Broker(node_id, port, base_dir / f"node-{node_id}")
            for node_id, port in zip(range(1, size + 1), free_ports(size), strict=True)
        }
        for broker in self.brokers.values():
            broker.directory.mkdir(parents=True)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def __getitem__(self, node_id: int) -> Broker:
        return self.brokers[node_id]

    # -- processes ---------------------------------------------------------------------------------------

    def start(self, *node_ids: int) -> None:
        """Start these nodes, or all; returns once every running node sees every other."""
        for node_id in node_ids or self.brokers:
            self.spawn(self.brokers[node_id])
        self.wait_ready()

    def spawn(self, broker: Broker) -> None:
        """Start a node without waiting for it."""
        assert not broker.is_running
        voters = ",".join(f"{x.node_id}@localhost:{x.port + 1}" for x in self.brokers.values())
        settings = {
            "node.id": str(broker.node_id),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://localhost:{broker.port},CONTROLLER://localhost:{broker.port + 1}",
            "log.dirs": str(broker.data),
            "varve.metrics.port": str(broker.metrics_port),
            **self._settings,
        }
        command = [sys.executable, "-m", "broker.cli", "start"]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        environment["PYTHONPATH"] = str(ROOT)
        with (broker.directory / "log").open("ab") as log:
            broker.process = subprocess.Popen(
                command,
                cwd=broker.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, *node_ids: int) -> None:
        """SIGKILL, all before any is waited for."""
        self._end(signal.SIGKILL, node_ids or tuple(self.brokers))

    def terminate(self, *node_ids: int) -> None:
        """SIGTERM: each hands its leaderships over first."""
        self._end(signal.SIGTERM, node_ids or tuple(self.brokers))

    def _end(self, number: signal.Signals, node_ids: Iterable[int]) -> None:
        processes = [
            process for node_id in node_ids if (process := self.brokers[node_id].process) is not None
        ]
        for process in processes:
            process.send_signal(number)
        for process in processes:
            process.wait(timeout=30)

    def pause(self, node_id: int) -> None:
        self.brokers[node_id].signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self.brokers[node_id].signal(signal.SIGCONT)

    def wipe(self, node_id: int) -> None:
        """What a replaced disk is: the directory of a stopped node is gone."""
        assert not self.brokers[node_id].is_running
        shutil.rmtree(self.brokers[node_id].data)

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    broker.process.send_signal(signal.SIGCONT)
                broker.process.kill()
                broker.process.wait(timeout=30)

    # -- what they say -----------------------------------------------------------------------------------

    @property
    def running(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.is_running]

    def wait_ready(self, timeout_s: float = 30) -> None:
        wanted = {broker.node_id for broker in self.running}
        for broker in self.running:
            self._wait_seen(broker, wanted, timeout_s)

    def _wait_seen(self, broker: Broker, wanted: set[int], timeout_s: float) -> None:
        eventually(lambda: self.seen_by(broker) == wanted, f"{wanted} seen by {broker.node_id}", timeout_s)

    def seen_by(self, broker: Broker) -> set[int]:
        """Live nodes in a broker's view; empty while it does not serve clients."""
        assert broker.is_running, f"node {broker.node_id} ended: {broker.log_text()[-3000:]}"
        try:
            with Wire(broker.port) as wire:
                return {x.broker_id for x in wire.call(DescribeClusterRequest(), 0).brokers}
        except ConnectionRefusedError:
            return set()

    def topic_as_seen_by(self, node_id: int, topic: str) -> MetadataResponseTopic:
        with Wire(self.brokers[node_id].port) as wire:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
            )
            return wire.call(request, 12).topics[0]  # type: ignore[no-any-return]

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The leader that a majority of the running nodes name; waits while there is none."""

        def look() -> int:
            named = []
            for broker in self.running:
                seen = self.topic_as_seen_by(broker.node_id, topic).partitions
                named.append(seen[partition].leader_id if partition < len(seen) else -1)
            best = max(named, key=named.count)
            return best if best > 0 and named.count(best) * 2 > len(named) else 0

        return eventually(look, f"a leader of {topic}-{partition}")

    def wire(self, node_id: int = 1) -> Wire:
        return Wire(self.brokers[node_id].port)

    def wire_to_leader(self, topic: str, partition: int = 0) -> Wire:
        return Wire(self.brokers[self.leader_of(topic, partition)].port)

    def segments(self, node_id: int, topic: str) -> list[Path]:
        """Segment files of a topic on a node, oldest first."""
        folders = [
            x for x in self.brokers[node_id].data.glob(f"{topic}-*") if re.search(r"-\d+(\.|$)", x.name)
        ]
        return sorted(path for folder in folders for path in folder.glob("*.log"))
