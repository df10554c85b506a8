"""Broker processes, and what can befall each of them. Everything is done by the process ids of our own children."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.integration.faults.network import Network
from tests.integration.faults.power import Lost, UndoLog

ROOT = Path(__file__).parent.parent.parent.parent
_SECRET = "the secret of these nodes"
_FIRST_PORT = 21000
#: Of a node's own disk, where it has one. A filler takes what the node has left free.
DISK_BYTES = 512 << 20
#: Produce is refused below this; it must be well within the disk.
_RESERVE_BYTES = 16 << 20


class Node:
    """One broker: its folder, its address, its process while there is one."""

    def __init__(
        self,
        node_id: int,
        folder: Path,
        network: Network | None,
        undo: Callable[[Path, Path], UndoLog] | None,
        broken_rule: str | None = None,
    ) -> None:
        """`undo` makes the UndoLog of a data directory; None: this node's power cannot be lost.

        `broken_rule`: one of broken_node.RULES, which this node does not keep.
        """
        self.node_id = node_id
        self.folder = folder
        self.disk = folder / "disk"
        self.host = "127.0.0.1" if network is None else network.address(node_id)
        self.port = _FIRST_PORT + 2 * node_id
        self.exits: list[str] = []
        """Ends that nobody had ordered."""
        self.process: subprocess.Popen[bytes] | None = None
        self.is_paused = False
        self._command = [] if network is None else network.command(node_id)
        self._program = (
            ["broker.cli"] if broken_rule is None else ["tests.integration.faults.broken_node", broken_rule]
        )
        self._filler = self.disk / "filler"
        self.has_own_disk = network is not None
        self.disk.mkdir(parents=True)
        if self.has_own_disk:  # inside namespaces of our own: the mount is seen by nobody else
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(self.disk)], check=True
            )
        (self.disk / "data").mkdir()
        self.undo = None if undo is None else undo(self.disk / "data", folder / "undo")

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Notes an end that nobody had ordered."""
        if self.process is not None and (code := self.process.poll()) is not None:
            self.exits.append(f"node {self.node_id} ended by itself with exit code {code}")
            self.process = None
        return self.process is not None

    def start(self, nodes: list[Node]) -> None:
        """Start it unless it runs. It is not waited for."""
        if self.is_running:
            return
        settings = {
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(f"{x.node_id}@{x.host}:{x.port + 1}" for x in nodes),
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{self.host}:{self.port + 1}",
            "log.dirs": str(self.disk / "data"),
            "log.min.free.bytes": str(_RESERVE_BYTES),
            # Small, so that segments are rolled and lineages grow within minutes.
            "log.segment.bytes": str(1 << 20),
            "log.retention.ms": "-1",
            "auto.create.topics.enable": "false",
        }
        command = [*self._command, sys.executable, "-m", *self._program, "start"]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
        environment["PYTHONPATH"] = str(ROOT)
        environment["VARVE_CLUSTER_SECRET"] = _SECRET
        if self.undo is not None:
            environment |= self.undo.environment
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """kill -9; it has ended when this returns."""
        if self.is_running:
            assert self.process is not None
            self.process.kill()
            self.process.wait(timeout=30)
            self.process = None
        self.is_paused = False

    def lose_power(self, rng: random.Random | None) -> Lost:
        """kill -9, and what was not durable is gone (rng: some of it; see UndoLog)."""
        assert self.undo is not None
        self.kill()
        return self.undo.lose_power(rng)

    def pause(self) -> None:
        if self.is_running:
            assert self.process is not None
            self.process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        if self.is_paused and self.process is not None:
            self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def fill_disk(self, leave_bytes: int) -> int:
        """Take all but so much of its disk; how many bytes that was."""
        assert self.has_own_disk
        with self._filler.open("wb") as filler:
            while True:
                stat = os.statvfs(self.disk)
                size = stat.f_bavail * stat.f_frsize - leave_bytes
                if size <= 0:
                    return 0
                try:
                    os.posix_fallocate(filler.fileno(), 0, size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    continue  # the node has taken some meanwhile
                return size

    def empty_disk(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self, keep: bool) -> None:
        """End it. `keep`: what it had on a disk of its own, which ends with us, is copied beside it."""
        self.resume()
        self.kill()
        self.empty_disk()
        if self.has_own_disk:
            if keep:
                subprocess.run(["cp", "-a", str(self.disk / "data"), str(self.folder / "data")], check=True)
            with contextlib.suppress(subprocess.CalledProcessError):  # it ends with the namespace anyway
                subprocess.run(["umount", "-l", str(self.disk)], check=True)
