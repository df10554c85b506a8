"""The supervisor of an attached cluster: the process between the one that wants the cluster, and the nodes.

Its argument is the process id of its owner, requests come over its standard input, answers go to its standard output.
When the owner is gone, in whatever way, no node is left, and neither are data that were meant to go with the cluster.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

from broker.cli.attached.nodes import AttachedNodes
from broker.cli.attached.ports import PortReservation
from broker.cli.attached.post_mortem import post_mortem
from broker.cli.attached.requests import OwnerGoneError, Requests, SupersededError
from broker.cli.attached.topics import create_offsets_topic, create_topic, delete_topic, wait_for_leaders
from broker.cli.local_cluster import LocalCluster, LocalClusterError
from broker.cli.output import counted
from broker.cli.processes import POLL_S
from broker.cli.root import CommandError

#: Settings of every node that the owner may change.
_SETTINGS = {
    # Nobody looks, and it is a port that has to be free.
    "varve.metrics.port": "0",
    # Of 50, each node would open so many logs at each start.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


class Supervisor:
    """Carries out one request after the other. The names of its public methods are those of requests."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._holds = ExitStack()
        self._nodes: AttachedNodes | None = None
        self._timeout_s = 0.0
        self._keeps_data = False

    def serve(self) -> None:
        """Until the owner wants no more, or is gone."""
        try:
            while True:
                request = self._requests.next()
                self._answer(request)
                if request["do"] == "stop":
                    return
        except OwnerGoneError:
            pass
        finally:
            self._end()

    def _answer(self, request: dict[str, Any]) -> None:
        arguments = {key: value for key, value in request.items() if key not in ("id", "do")}
        method: Callable[..., object] = getattr(self, request["do"])
        try:
            value = method(**arguments)
        except (LocalClusterError, CommandError) as error:
            self._requests.answer(request, error=str(error))
        except OSError as error:
            self._requests.answer(request, error=f"{error.filename}: {error.strerror}")
        except SupersededError:
            self._requests.answer(request, error="given up for another request")
        else:
            self._requests.answer(request, value=value)

    def start(
        self, nodes: int, settings: dict[str, str], directory: str | None, timeout_s: float
    ) -> dict[str, Any]:
        self._timeout_s, self._keeps_data = timeout_s, directory is not None
        base_dir = Path(directory or tempfile.mkdtemp(prefix="varve-"))
        if directory is None:
            self._holds.callback(shutil.rmtree, base_dir, ignore_errors=True)
        found = LocalCluster.load(base_dir)
        if found and len(found.ports) != nodes:
            raise LocalClusterError(
                f"{base_dir} holds the data of {counted(len(found.ports), 'node')}, not of {nodes}"
            )
        reservation = PortReservation(nodes, found.ports if found else ())
        local = LocalCluster(base_dir, reservation.ports, {**_SETTINGS, **settings})
        self._holds.enter_context(local.locked())
        if running := [node.node_id for node in local.nodes if node.process()]:
            raise LocalClusterError(
                f"nodes {running} of {base_dir} run already; `varve cluster down` stops them"
            )
        self._nodes = AttachedNodes(local, timeout_s, self._requests.rest)
        self._nodes.start(self._nodes.ids)
        create_offsets_topic(local.nodes)
        return {
            "directory": str(base_dir),
            "bootstrap_servers": local.bootstrap_server,
            "addresses": {node.node_id: node.address for node in local.nodes},
        }

    def stop(self) -> None:
        """Raises LocalClusterError if a node had ended before, that nobody had killed."""
        nodes, self._nodes = self._nodes, None
        if nodes is None:
            return
        try:
            nodes.check()
        finally:
            nodes.end(with_grace=self._keeps_data)

    def kill(self, nodes: list[int]) -> None:
        """Without ids: all that run."""
        checked = self._checked()
        checked.kill(self._select(nodes, checked.running_ids))

    def restart(self, nodes: list[int]) -> None:
        """Without ids: all."""
        checked = self._checked()
        checked.restart(self._select(nodes, checked.ids))

    def pause(self, nodes: list[int]) -> None:
        """Without ids: all that run."""
        checked = self._checked()
        checked.pause(self._select(nodes, checked.running_ids))

    def resume(self, nodes: list[int]) -> None:
        """Without ids: all that run."""
        checked = self._checked()
        checked.resume(self._select(nodes, checked.running_ids))

    def heal(self) -> None:
        self._checked().heal()

    def create_topic(
        self, name: str, partitions: int, replication_factor: int, settings: dict[str, str]
    ) -> None:
        nodes = self._checked()
        create_topic(nodes.answering, name, partitions, replication_factor, settings)
        wait_for_leaders(nodes.answering, name, partitions, self._timeout_s, self._requests.rest)

    def delete_topic(self, name: str) -> None:
        delete_topic(self._checked().answering, name)

    def leader(self, topic: str, partition: int) -> int:
        """Waits while there is none."""
        nodes = self._checked()
        deadline = time.monotonic() + self._timeout_s
        while True:
            found = nodes.describe().partitions.get((topic, partition))
            if found is None:
                raise LocalClusterError(f"there is no partition {partition} of a topic {topic}")
            if found.leader is not None:
                return found.leader
            if time.monotonic() > deadline:
                raise LocalClusterError(f"{topic}-{partition} has no leader after {self._timeout_s:g} s")
            self._requests.rest(POLL_S)

    def log(self, node: int, lines: int) -> str:
        nodes = self._started()
        (node_id,) = self._select([node], [])
        return next(each for each in nodes.local.nodes if each.node_id == node_id).log_tail(lines)

    def describe(self, log_lines: int) -> str:
        return post_mortem(self._started(), log_lines)

    def _started(self) -> AttachedNodes:
        if self._nodes is None:
            raise LocalClusterError("the cluster has not been started")
        return self._nodes

    def _checked(self) -> AttachedNodes:
        nodes = self._started()
        nodes.check()
        return nodes

    def _select(self, node_ids: list[int], default: list[int]) -> list[int]:
        """`default` stands for no ids. Raises LocalClusterError if there is no such node."""
        known = self._started().ids
        if unknown := [node_id for node_id in node_ids if node_id not in known]:
            raise LocalClusterError(
                f"there is no node {unknown[0]}; the nodes are {', '.join(map(str, known))}"
            )
        return list(dict.fromkeys(node_ids)) or default

    def _end(self) -> None:
        """At once: nobody waits any more. What was acknowledged is on disk all the same."""
        if self._nodes is not None:
            self._nodes.end(with_grace=False)
        self._holds.close()


def _exit(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)


def main() -> None:
    # Not SIGINT: it is the owner that hears Ctrl-C. This process has a session of its own.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)
    Supervisor(Requests(sys.stdin.fileno(), sys.stdout.fileno(), int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
