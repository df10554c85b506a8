"""The nodes of a cluster, for experiments that break them: ours, or another system's by a command and process ids."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from typing import Protocol

from pipeline.errors import PipelineError
from pipeline.trials.local_cluster import LocalCluster

_COMMAND_TIMEOUT_S = 120


class Nodes(Protocol):
    """All raise PipelineError where it cannot be done."""

    can_restart: bool
    """Whether there is a way to kill and to start nodes."""

    def pids(self) -> dict[int, int]:
        """The processes of the nodes that run, as far as they are known."""

    def can_freeze(self, node_id: int) -> bool:
        """Whether its process is known."""

    def kill(self, *node_ids: int) -> None:
        """kill -9; they have ended when it returns."""

    def start(self, *node_ids: int) -> None:
        """Those that were killed; they listen when it returns."""

    def freeze(self, node_id: int) -> None:
        """SIGSTOP."""

    def thaw(self, node_id: int) -> None:
        """SIGCONT."""


class OwnNodes:
    """Those of a cluster that was started for the experiment."""

    can_restart = True

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._pids: dict[int, int] = {}

    def pids(self) -> dict[int, int]:
        return self._cluster.pids()

    def can_freeze(self, node_id: int) -> bool:
        return node_id in self._cluster.pids()

    def kill(self, *node_ids: int) -> None:
        self._cluster.kill(*node_ids)
        for node_id in node_ids:
            self._pids.pop(node_id, None)

    def start(self, *node_ids: int) -> None:
        self._cluster.up()

    def freeze(self, node_id: int) -> None:
        # Looked up once: to ask takes longer than some nodes are to be frozen.
        if node_id not in self._pids:
            self._pids = self._cluster.pids()
        _signal(node_id, self._pids, signal.SIGSTOP)

    def thaw(self, node_id: int) -> None:
        _signal(node_id, self._pids, signal.SIGCONT)


class ForeignNodes:
    """`command kill N` and `command start N` do what they say; process ids are for SIGSTOP alone."""

    def __init__(self, command: str, pids: Mapping[int, int]) -> None:
        self._command = shlex.split(command)
        self._pids = dict(pids)
        self.can_restart = bool(self._command)

    def pids(self) -> dict[int, int]:
        return self._pids

    def can_freeze(self, node_id: int) -> bool:
        return node_id in self._pids

    def kill(self, *node_ids: int) -> None:
        self._call("kill", node_ids)
        for node_id in node_ids:
            # It comes back as another process, of which nobody has told.
            self._pids.pop(node_id, None)

    def start(self, *node_ids: int) -> None:
        self._call("start", node_ids)

    def freeze(self, node_id: int) -> None:
        _signal(node_id, self._pids, signal.SIGSTOP)

    def thaw(self, node_id: int) -> None:
        _signal(node_id, self._pids, signal.SIGCONT)

    def _call(self, verb: str, node_ids: tuple[int, ...]) -> None:
        """For all at once: alone, a node may wait for the others before it listens."""
        if not self._command:
            raise PipelineError(
                f"there is no way to {verb} node {node_ids[0]}: --node-command COMMAND says which command does it"
                f" (called as COMMAND {verb} {node_ids[0]})"
            )
        running: list[subprocess.Popen[bytes]] = []
        try:
            # No pipes: a node that a command starts would keep them open.
            running.extend(
                subprocess.Popen(
                    [*self._command, verb, str(node_id)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                for node_id in node_ids
            )
            for node_id, process in zip(node_ids, running, strict=True):
                if status := process.wait(_COMMAND_TIMEOUT_S):
                    raise PipelineError(
                        f"{shlex.join([*self._command, verb, str(node_id)])} ended with {status}"
                    )
        except OSError as error:
            raise PipelineError(f"{self._command[0]} cannot be run: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise PipelineError(
                f"{shlex.join(self._command)} {verb} took more than {_COMMAND_TIMEOUT_S} s"
            ) from error
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
                    process.wait()


def _signal(node_id: int, pids: Mapping[int, int], number: signal.Signals) -> None:
    if node_id not in pids:
        raise PipelineError(f"the process of node {node_id} is not known: --node-pid {node_id}=PID says it")
    try:
        os.kill(pids[node_id], number)
    except OSError as error:
        raise PipelineError(f"node {node_id}, process {pids[node_id]}: {error.strerror}") from error
