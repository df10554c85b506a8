"""The brokers of the demonstration: three that it starts itself, or those of another cluster, which somebody's commands
stop and start."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from broker.cli.divergence.interrupts import Interrupts
from broker.cli.local_cluster import (
    LocalCluster,
    LocalClusterError,
    LocalNode,
    is_port_free,
    wait_until_ready,
)
from broker.cli.processes import Process, signal_processes, wait_until_ended
from broker.cli.root import CommandError

#: Of each node. Everything that takes minutes by default happens within a second.
NODE_SETTINGS = {
    "varve.compaction.initial.delay.ms": "200",
    "varve.compaction.interval.ms": "300",
    "log.cleaner.threads": "2",
    "log.retention.check.interval.ms": "300",
    "producer.id.expiration.ms": "1000",
    # A client that still looks for a topic must not create it, with other settings.
    "auto.create.topics.enable": "false",
    # Fewer logs to look at.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # Nobody looks, and it is a port that has to be free.
    "varve.metrics.port": "0",
}
UNCOORDINATED = {"varve.unsafe.uncoordinated.compaction": "true"}
#: Below the range from which Linux takes ports for outgoing connections, and away from those of `varve cluster up`.
PORTS = range(24000, 29000, 2)
_READY_S = 90.0
_ENDED_S = 30.0
#: A command that stops or starts a broker of another cluster may take so long.
_COMMAND_S = 180.0


class Brokers(ABC):
    """What a demonstration does to brokers. All methods raise CommandError."""

    @property
    @abstractmethod
    def bootstrap_server(self) -> str: ...

    @abstractmethod
    def stop(self, node_id: int) -> None: ...

    @abstractmethod
    def start(self, node_id: int) -> None: ...

    @abstractmethod
    def passes(self, node_id: int, topic: str) -> int | None:
        """How often this broker has compacted the topic. None: it does not tell."""


def free_ports(count: int) -> tuple[int, ...]:
    """So many, each free together with the next one. Processes with neighbouring ids begin far from one another."""
    first = os.getpid() * 126 % len(PORTS)
    found: list[int] = []
    for port in [*PORTS[first:], *PORTS[:first]]:
        if is_port_free(port) and is_port_free(port + 1):
            found.append(port)
        if len(found) == count:
            return tuple(found)
    raise CommandError(f"no free ports for {count} brokers between {PORTS.start} and {PORTS.stop}")


def passes_in(log_text: str, topic: str) -> int:
    """How often a node has compacted the topic, by what it logs."""
    return sum("compacted" in line and f"topic={topic} " in f"{line} " for line in log_text.splitlines())


class LocalBrokers(Brokers):
    """Brokers on this machine, each a process, with their data in one folder."""

    def __init__(
        self,
        base_dir: Path,
        count: int,
        *,
        is_coordinated: bool,
        say: Callable[[str], None],
        interrupts: Interrupts,
    ) -> None:
        settings = NODE_SETTINGS if is_coordinated else {**NODE_SETTINGS, **UNCOORDINATED}
        self._cluster = LocalCluster(base_dir, free_ports(count), settings)
        self._say = say
        self._interrupts = interrupts

    @property
    def bootstrap_server(self) -> str:
        return self._cluster.bootstrap_server

    def _node(self, node_id: int) -> LocalNode:
        return self._cluster.nodes[node_id - 1]

    def _running(self) -> dict[int, Process]:
        found = {node.node_id: node.process() for node in self._cluster.nodes}
        return {node_id: process for node_id, process in found.items() if process is not None}

    def start(self, node_id: int) -> None:
        self._start([self._node(node_id)])

    def start_all(self) -> None:
        self._start(self._cluster.nodes)

    def _start(self, nodes: Sequence[LocalNode]) -> None:
        """Returns when all that run answer and know each other."""
        try:
            self._cluster.base_dir.mkdir(parents=True, exist_ok=True)
            # Between the start of a process and the note of its id, nobody would end it.
            with self._interrupts.held():
                self._cluster.start(nodes)
            self._wait_until_ready()
        except LocalClusterError as error:
            raise CommandError(str(error)) from None

    def _wait_until_ready(self) -> None:
        wait_until_ready(self._cluster, self._running(), time.monotonic() + _READY_S, self._say)

    def kill(self, node_id: int) -> None:
        self._end(node_id, signal.SIGKILL)

    def stop(self, node_id: int) -> None:
        """It transfers its leaderships first."""
        self._end(node_id, signal.SIGTERM)

    def _end(self, node_id: int, number: signal.Signals) -> None:
        processes = self._signal(node_id, number)
        if wait_until_ended(processes, _ENDED_S):
            raise CommandError(f"node {node_id} has not ended {_ENDED_S:.0f} s after {number.name}")

    def pause(self, node_id: int) -> None:
        """It does nothing more, and its connections stay open."""
        self._signal(node_id, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._signal(node_id, signal.SIGCONT)
        try:
            self._wait_until_ready()
        except LocalClusterError as error:
            raise CommandError(str(error)) from None

    def _signal(self, node_id: int, number: signal.Signals) -> list[Process]:
        """Returns the process, if there is one."""
        process = self._node(node_id).process()
        processes = [] if process is None else [process]
        signal_processes(processes, number)
        return processes

    def wipe(self, node_id: int) -> None:
        """What a replaced disk is: the data of a broker that does not run is gone."""
        shutil.rmtree(self._node(node_id).directory / "data")

    def passes(self, node_id: int, topic: str) -> int:
        return passes_in(self._node(node_id).log.read_text(encoding="utf-8", errors="replace"), topic)

    def close(self) -> None:
        """No process is left. The data is."""
        processes = list(self._running().values())
        signal_processes(processes, signal.SIGKILL)
        wait_until_ended(processes, _ENDED_S)


class OtherBrokers(Brokers):
    """Brokers of any cluster that speaks Kafka's protocol. `{node}` in a command stands for the broker's id."""

    def __init__(self, bootstrap_server: str, stop_command: str, start_command: str) -> None:
        self._bootstrap_server = bootstrap_server
        self._stop_command = stop_command
        self._start_command = start_command
        self._stopped: set[int] = set()

    @property
    def bootstrap_server(self) -> str:
        return self._bootstrap_server

    def stop(self, node_id: int) -> None:
        self._stopped.add(node_id)
        self._run(self._stop_command, node_id)

    def start(self, node_id: int) -> None:
        self._run(self._start_command, node_id)
        self._stopped.discard(node_id)

    def start_stopped(self) -> None:
        """Leave the cluster as it was."""
        for node_id in list(self._stopped):
            self.start(node_id)

    def passes(self, node_id: int, topic: str) -> None:
        del node_id, topic

    def _run(self, command: str, node_id: int) -> None:
        filled = command.replace("{node}", shlex.quote(str(node_id)))
        # A session of its own: Ctrl-C here must not end a broker that the command has started. And a file, because
        # such a broker would hold a pipe open.
        with (
            tempfile.TemporaryFile() as output,
            subprocess.Popen(
                filled,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            ) as child,
        ):
            try:
                code = child.wait(_COMMAND_S)
            except subprocess.TimeoutExpired:
                child.kill()
                raise CommandError(f"`{filled}` has not ended after {_COMMAND_S:.0f} s") from None
            except BaseException:
                child.kill()
                raise
            if code != 0:
                output.seek(0)
                said = output.read().decode(errors="replace").strip()
                raise CommandError(f"`{filled}` failed with exit code {code}: {said[-1000:]}")
