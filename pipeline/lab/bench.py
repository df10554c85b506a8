"""What an experiment may ask for: a cluster, fresh topics, nodes to break, and somebody to tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pipeline.cluster import Cluster
from pipeline.lab.nodes import Nodes, OwnNodes
from pipeline.trials.local_cluster import local_cluster

_MAX_REPLICATION_FACTOR = 3
_numbers = count(1)


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

    def topic(self, what: str, replication_factor: int | None = None) -> str:
        """A new topic of one partition that has a leader; its name. None: as many replicas as there are brokers, up to
        three. Raises ClusterUnavailable."""
        cluster = Cluster(self.bootstrap_server)
        replicas = replication_factor or min(_MAX_REPLICATION_FACTOR, len(cluster.brokers()))
        name = f"lab-{what}-{int(time.time())}-{next(_numbers)}"
        cluster.ensure_topic(name, partitions=1, replication_factor=replicas)
        return name

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
        yield Bench(cluster.bootstrap_server, folder, say, is_quick, OwnNodes(cluster))
