"""`varve.AsyncCluster`: the methods of a cluster for programs on an event loop, which goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from varve.cluster import Cluster, Value

P = ParamSpec("P")
T = TypeVar("T")


class AsyncCluster:
    """A cluster whose methods are awaited. `async with Cluster() as cluster:` gives one, and `AsyncCluster(cluster)` is
    another view of a cluster that runs, such as that of the fixture `varve_cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def node_ids(self) -> tuple[int, ...]:
        return self.cluster.node_ids

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def directory(self) -> str:
        return self.cluster.directory

    def address(self, node: int) -> str:
        return self.cluster.address(node)

    async def start(self) -> None:
        """As `Cluster.start`. A start that is cancelled leaves no node behind."""
        import asyncio

        starting = asyncio.ensure_future(_in_thread(self.cluster.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be interrupted, and starts a cluster that nobody would stop.
            await asyncio.wait([starting])
            await self.stop()
            raise

    async def stop(self) -> None:
        await _in_thread(self.cluster.stop)

    async def kill(self, *nodes: int) -> None:
        await _in_thread(self.cluster.kill, *nodes)

    async def restart(self, *nodes: int) -> None:
        await _in_thread(self.cluster.restart, *nodes)

    async def pause(self, *nodes: int) -> None:
        await _in_thread(self.cluster.pause, *nodes)

    async def resume(self, *nodes: int) -> None:
        await _in_thread(self.cluster.resume, *nodes)

    async def heal(self) -> None:
        await _in_thread(self.cluster.heal)

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        settings: Mapping[str, Value] | None = None,
    ) -> None:
        await _in_thread(self.cluster.create_topic, name, partitions, replication_factor, settings)

    async def delete_topic(self, name: str) -> None:
        await _in_thread(self.cluster.delete_topic, name)

    async def leader(self, topic: str, partition: int = 0) -> int:
        return await _in_thread(self.cluster.leader, topic, partition)

    async def log(self, node: int, lines: int = 50) -> str:
        return await _in_thread(self.cluster.log, node, lines)

    async def describe(self, log_lines: int = 15) -> str:
        return await _in_thread(self.cluster.describe, log_lines)


async def _in_thread(method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    # Every run of pytest imports this module, because of the plugin, and few of them need that one.
    import asyncio

    return await asyncio.to_thread(method, *args, **kwargs)
