"""`varve.Cluster`: a cluster on this machine, and what a program or a test does with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from varve.errors import ClusterError
from varve.supervisor import Supervisor

if TYPE_CHECKING:
    from varve.asynchronous import AsyncCluster

#: A value of a setting. Booleans become `true` and `false`.
Value = str | int | float | bool


def format_settings(settings: Mapping[str, Value] | None) -> dict[str, str]:
    """As Kafka writes them."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (settings or {}).items()
    }


class Cluster:
    """A cluster of nodes on this machine, each a process. They end with this process, however it ends.

    `with Cluster() as cluster:` starts and stops it, and so does `async with`, which gives an `AsyncCluster`. Methods
    may be called by any thread; they raise ClusterError. Nodes have the ids 1, 2, 3 and so on.
    """

    def __init__(
        self,
        nodes: int = 3,
        settings: Mapping[str, Value] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        """`settings`: of every node, by the names of Kafka (`{"log.retention.ms": 60000}`).

        `directory`: where the data are kept and stay; the next cluster with it goes on from there. None: a temporary
        one, which is removed. `timeout_s`: how long methods wait for the cluster.
        """
        if not 1 <= nodes <= 9:
            raise ValueError(f"a cluster on one machine has 1 to 9 nodes, not {nodes}")
        self.node_ids = tuple(range(1, nodes + 1))
        self._settings = format_settings(settings)
        self._wanted_directory = None if directory is None else os.path.abspath(directory)
        self._timeout_s = timeout_s
        self._supervisor: Supervisor | None = None
        self._started: dict[str, Any] | None = None

    # -- as a whole --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when every node answers and knows the others. Nothing happens if it has been started."""
        if self._supervisor is not None:
            return
        self._supervisor = Supervisor()
        try:
            self._started = self._supervisor.ask(
                "start",
                nodes=len(self.node_ids),
                settings=self._settings,
                directory=self._wanted_directory,
                timeout_s=self._timeout_s,
            )
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """No process is left, and temporary data neither. Nothing happens if it does not run.

        Raises ClusterError if a node had ended before that was not killed by this object: it has crashed.
        """
        supervisor = self._supervisor
        if supervisor is None or not supervisor.is_ours:
            return
        try:
            supervisor.ask("stop")
        finally:
            self._end()

    def _end(self) -> None:
        supervisor, self._supervisor, self._started = self._supervisor, None, None
        if supervisor is not None:
            supervisor.end()

    @property
    def is_started(self) -> bool:
        return self._started is not None

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every node, separated by commas: `bootstrap.servers` of Kafka clients."""
        return str(self._running()["bootstrap_servers"])

    @property
    def directory(self) -> str:
        """Where the nodes keep their data and logs."""
        return str(self._running()["directory"])

    def address(self, node: int) -> str:
        """host:port of a node."""
        addresses = self._running()["addresses"]
        if str(node) not in addresses:
            raise ClusterError(f"there is no node {node}; the nodes are {', '.join(addresses)}")
        return str(addresses[str(node)])

    # -- faults ------------------------------------------------------------------------------------------

    def kill(self, *nodes: int) -> None:
        """kill -9 of these nodes, or of all that run, at once. They have ended when it returns."""
        self._ask("kill", nodes=nodes)

    def restart(self, *nodes: int) -> None:
        """Start these nodes, or all, again, with their data. One that runs is stopped in order first.

        Returns when all nodes that run answer and know each other; at once, if they are no majority.
        """
        self._ask("restart", nodes=nodes)

    def pause(self, *nodes: int) -> None:
        """SIGSTOP: these nodes, or all that run, hang. Their connections stay open."""
        self._ask("pause", nodes=nodes)

    def resume(self, *nodes: int) -> None:
        """SIGCONT. Returns when all nodes that run answer and know each other."""
        self._ask("resume", nodes=nodes)

    def heal(self) -> None:
        """Start what was killed, resume what is paused. Returns when every partition has a leader, and all its replicas
        are in sync."""
        self._ask("heal")

    # -- topics ------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        settings: Mapping[str, Value] | None = None,
    ) -> None:
        """Returns when every node knows the leaders. `replication_factor` is 3 by default, or the number of nodes."""
        self._ask(
            "create_topic",
            name=name,
            partitions=partitions,
            replication_factor=replication_factor or min(3, len(self.node_ids)),
            settings=format_settings(settings),
        )

    def delete_topic(self, name: str) -> None:
        """A topic that does not exist is no error."""
        self._ask("delete_topic", name=name)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition. Waits while there is none."""
        return int(self._ask("leader", topic=topic, partition=partition))

    # -- for people --------------------------------------------------------------------------------------

    def log(self, node: int, lines: int = 50) -> str:
        """The end of what a node has logged."""
        return str(self._ask("log", node=node, lines=lines))

    def describe(self, log_lines: int = 15) -> str:
        """Nodes, leaders, offsets and the last lines of each log, as text."""
        return str(self._ask("describe", log_lines=log_lines))

    # -- context managers --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> AsyncCluster:
        from varve.asynchronous import AsyncCluster

        cluster = AsyncCluster(self)
        await cluster.start()
        return cluster

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from varve.asynchronous import AsyncCluster

        await AsyncCluster(self).stop()

    def _ask(self, do: str, **arguments: object) -> Any:
        self._running()
        assert self._supervisor is not None
        return self._supervisor.ask(do, **arguments)

    def _running(self) -> dict[str, Any]:
        if self._started is None:
            raise ClusterError("the cluster has not been started; use it in a `with` block, or call start()")
        return self._started
