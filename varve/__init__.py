"""A Kafka-protocol cluster on this machine, for as long as a program or its tests need one. See README.md.

import varve

with varve.Cluster(nodes=3) as cluster:
    print(cluster.bootstrap_servers)
"""

from __future__ import annotations

from varve.asynchronous import AsyncCluster
from varve.cluster import Cluster
from varve.errors import ClusterError

__all__ = ["Cluster", "AsyncCluster", "ClusterError"]
