"""What an experiment may ask for: a cluster, fresh topics, nodes to break, and somebody to tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pipeline.cluster import Cluster
from pipeline.errors import ClusterUnavailable, PipelineError
from pipeline.lab.nodes import Nodes, OwnNodes
from pipeline.lab.observed import Traffic, cpu_s, filled, observe
from pipeline.lab.power import Disk, new_disk
from pipeline.trials.local_cluster import local_cluster

_MAX_REPLICATION_FACTOR = 3
_WARM_UP_S = 15.0
_WARM_UP_BYTES = 1_000
_WARM_UP_QUEUE = 1_000
_numbers = count(1)


class NoDisk(Exception):
    """There is no disk whose power could be cut; the message says what it takes."""


@dataclass(frozen=True, slots=True)
class Bench:
    bootstrap_server: str
    folder: Path
    """Of the experiment: it may write there."""
    say: Callable[[str], None]
    is_quick: bool = False
    """Small points: to see that it works, not to learn from."""
    nodes: Nodes | None = None
    """None: the nodes of this cluster cannot be broken."""
    base_dir: Path | None = None
    """Of a cluster of our own."""
    data_mount: Path | None = None
    """Where the file system is mounted that holds the data of all nodes of somebody else's cluster."""

    def topic(self, what: str, replication_factor: int | None = None, partitions: int = 1) -> str:
        """A new topic whose partitions have leaders; its name. None: as many replicas as there are brokers, up to
        three. Raises ClusterUnavailable."""
        cluster = Cluster(self.bootstrap_server)
        replicas = replication_factor or min(_MAX_REPLICATION_FACTOR, len(cluster.brokers()))
        name = f"lab-{what}-{int(time.time())}-{next(_numbers)}"
        cluster.ensure_topic(name, partitions=partitions, replication_factor=replicas)
        return name

    def warm_up(self) -> None:
        """Send small batches for a while, so that the first point pays neither for what is done once nor for a JVM that
        has compiled nothing yet. Raises ClusterUnavailable."""
        self.say("warming up")
        traffic = Traffic(
            self.topic("warm-up", partitions=3), filled(_WARM_UP_BYTES), 0.5 if self.is_quick else _WARM_UP_S
        )
        # A short queue: what is in it at the end is waited for.
        settings = {"batch.size": 4096, "linger.ms": 1, "queue.buffering.max.messages": _WARM_UP_QUEUE}
        observe(self.bootstrap_server, settings, traffic)

    def broker_cpu_s(self) -> float | None:
        """Processor time that the cluster's nodes have used so far; None where their processes are not known."""
        pids = {} if self.nodes is None else self.nodes.pids()
        return sum(map(cpu_s, pids.values())) if pids else None

    def node_ids(self) -> list[int]:
        """Raises ClusterUnavailable."""
        return Cluster(self.bootstrap_server).broker_ids()

    @contextmanager
    def with_disk(self) -> Iterator[tuple[Bench, Disk]]:
        """A bench with nodes, and the disk of all of them: this one, or a second cluster of our own, on its own disk.

        Raises NoDisk where there is none."""
        if self.base_dir is None:
            if self.data_mount is None or self.nodes is None or not self.nodes.can_restart:
                raise NoDisk("needs --node-command and --data-mount")
            try:
                disk = Disk.mounted_at(self.data_mount)
            except PipelineError as error:
                raise NoDisk(str(error)) from error
            yield self, disk
            return
        with ExitStack() as stack:
            try:
                disk = stack.enter_context(new_disk(self.base_dir.with_name(f"{self.base_dir.name}-power")))
            except PipelineError as error:
                raise NoDisk(str(error)) from error
            own = own_bench(disk.path / "cluster", self.folder / "power", self.say, self.is_quick)
            yield stack.enter_context(own), disk

    def replicas(self, topic: str) -> list[int]:
        """The nodes that hold the topic's partition. Raises ClusterUnavailable."""
        described = Cluster(self.bootstrap_server).topic(topic)
        if described is None:
            raise ClusterUnavailable(f"topic {topic} does not exist at {self.bootstrap_server}")
        return [replica.id for replica in described.partitions[0].replicas]

    def leader(self, topic: str) -> int:
        """Of the topic's partition, once there is one. Raises ClusterUnavailable."""
        cluster = Cluster(self.bootstrap_server)
        cluster.ensure_topic(topic, partitions=1, replication_factor=1)
        leader = cluster.leader(topic, 0)
        return self.leader(topic) if leader is None else leader


@contextmanager
def own_bench(
    base_dir: Path, folder: Path, say: Callable[[str], None], is_quick: bool = False
) -> Iterator[Bench]:
    """With a cluster of three nodes that is there for the block alone."""
    with local_cluster(base_dir, say, folder) as cluster:
        yield Bench(cluster.bootstrap_server, folder, say, is_quick, OwnNodes(cluster), base_dir)
