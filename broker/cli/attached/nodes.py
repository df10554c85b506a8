"""The nodes of an attached cluster: started, killed, paused and made whole again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection
from functools import cached_property

from broker.cli.attached.forked_nodes import new_spawn
from broker.cli.cluster_state import ClusterState, describe_cluster
from broker.cli.local_cluster import LocalCluster, LocalClusterError, LocalNode, Spawn, wait_until_ready
from broker.cli.output import counted
from broker.cli.processes import (
    POLL_S,
    Process,
    is_running,
    signal_processes,
    stop_processes,
    wait_until_ended,
)

_GRACE_S = 10.0
_LOG_LINES = 15


class AttachedNodes:
    """All methods raise LocalClusterError. Those that wait for the cluster do so for `timeout_s`, and rest in between
    with `rest`, which may raise what ends them."""

    def __init__(self, local: LocalCluster, timeout_s: float, rest: Callable[[float], None]) -> None:
        self.local = local
        self._timeout_s = timeout_s
        self._rest = rest
        self._processes: dict[int, Process] = {}
        #: Those that do not run because somebody wanted it so.
        self._down: set[int] = set()
        self._paused: set[int] = set()

    @property
    def ids(self) -> list[int]:
        return [node.node_id for node in self.local.nodes]

    @property
    def running_ids(self) -> list[int]:
        """Also those that are paused."""
        return [node_id for node_id in self.ids if node_id not in self._down]

    @property
    def answering(self) -> list[LocalNode]:
        """The nodes that should answer."""
        away = self._down | self._paused
        return [node for node in self.local.nodes if node.node_id not in away]

    @property
    def bootstrap_server(self) -> str:
        """Without the nodes that are away: whoever asks waits long for one that is paused."""
        if not self.answering:
            raise LocalClusterError("no node runs that could answer")
        return ",".join(node.address for node in self.answering)

    def states(self) -> dict[int, str]:
        """Of each node, in words."""
        return {node_id: self._state(node_id) for node_id in self.ids}

    def _state(self, node_id: int) -> str:
        process = self._processes.get(node_id)
        if process is None or node_id in self._down:
            return "down"
        if not is_running(process):
            return "ENDED BY ITSELF"
        return f"{'paused' if node_id in self._paused else 'running'}, pid {process.pid}"

    def check(self) -> None:
        """Raises LocalClusterError if a node has ended that nobody has killed."""
        for node in self.local.nodes:
            if self._state(node.node_id) == "ENDED BY ITSELF":
                raise LocalClusterError(
                    f"node {node.node_id} has ended by itself; the end of {node.log}:\n{node.log_tail(_LOG_LINES)}"
                )

    # -- what happens to them ------------------------------------------------------------------------------

    def start(self, node_ids: Collection[int]) -> None:
        """Those that run already stay. Returns when all that run answer and know each other; at once, if they are no
        majority."""
        missing = [
            node
            for node in self.local.nodes
            if node.node_id in node_ids
            and (node.node_id in self._down or node.node_id not in self._processes)
        ]
        started = self.local.start(missing, self._spawn)
        self._processes |= started
        self._down -= started.keys()
        self._wait_until_ready()

    def kill(self, node_ids: Collection[int]) -> None:
        """SIGKILL to all at once; they have ended when it returns."""
        processes = [self._running(node_id) for node_id in node_ids]
        signal_processes(processes, signal.SIGKILL)
        if left := wait_until_ended(processes, self._timeout_s):
            raise LocalClusterError(f"SIGKILL does not end the processes {[process.pid for process in left]}")
        self._down |= set(node_ids)
        self._paused -= set(node_ids)

    def restart(self, node_ids: Collection[int]) -> None:
        """Nodes that run are stopped first, and hand their leaderships over."""
        running = [node_id for node_id in node_ids if node_id not in self._down]
        self.resume([node_id for node_id in running if node_id in self._paused])
        stop_processes([self._processes[node_id] for node_id in running], _GRACE_S)
        self._down |= set(running)
        self.start(node_ids)

    def pause(self, node_ids: Collection[int]) -> None:
        """SIGSTOP: they do nothing more, and their connections stay open."""
        signal_processes([self._running(node_id) for node_id in node_ids], signal.SIGSTOP)
        self._paused |= set(node_ids)

    def resume(self, node_ids: Collection[int]) -> None:
        """Returns when all that run answer and know each other."""
        signal_processes([self._running(node_id) for node_id in node_ids], signal.SIGCONT)
        self._paused -= set(node_ids)
        self._wait_until_ready()

    def heal(self) -> None:
        """All nodes run, each partition has a leader, and all its replicas are in sync."""
        if self._down or self._paused:
            self.resume(list(self._paused))
            self.start(list(self._down))
        deadline = time.monotonic() + self._timeout_s
        while trouble := _trouble(self.describe()):
            if time.monotonic() > deadline:
                raise LocalClusterError(f"the cluster is not whole after {self._timeout_s:g} s: {trouble}")
            self._rest(POLL_S)

    def describe(self) -> ClusterState:
        """Raises CommandError, too, if no node answers."""
        return describe_cluster(self.bootstrap_server)

    def end(self, *, with_grace: bool) -> None:
        """No process is left. With grace, each may close its files, and starts faster the next time."""
        processes = list(self._processes.values())
        if with_grace:
            signal_processes(processes, signal.SIGCONT)
            stop_processes(processes, _GRACE_S)
            return
        signal_processes(processes, signal.SIGKILL)
        wait_until_ended(processes, self._timeout_s)

    @cached_property
    def _spawn(self) -> Spawn:
        return new_spawn()

    def _running(self, node_id: int) -> Process:
        if node_id in self._down:
            raise LocalClusterError(f"node {node_id} does not run")
        return self._processes[node_id]

    def _wait_until_ready(self) -> None:
        active = {node.node_id: self._processes[node.node_id] for node in self.answering}
        if 2 * len(active) > len(self.ids):
            deadline = time.monotonic() + self._timeout_s
            wait_until_ready(self.local, active, deadline, _say_nothing, self._rest)


def _say_nothing(_: str) -> None:
    """The owner waits for an answer, and hears the reason if there is none."""


def _trouble(state: ClusterState) -> str:
    """Empty: there is none."""
    if state.down:
        return f"nodes {state.down} do not answer"
    without = [f"{topic}-{number}" for topic, number in state.leaderless]
    behind = [f"{topic}-{number}" for topic, number in state.under_replicated]
    told = [
        f"{counted(len(names), 'partition')} {what}, such as {names[0]}"
        for names, what in ((without, "without a leader"), (behind, "with replicas that are not in sync"))
        if names
    ]
    return ", ".join(told)
