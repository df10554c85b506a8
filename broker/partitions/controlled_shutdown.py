"""What a stopping node leads is transferred to followers that have all of it, so that nobody waits for an election
timeout."""

from __future__ import annotations

import asyncio

from broker.membership.cluster import Cluster
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas

#: How long a stopping node tries. If the whole cluster stops, nobody takes its leaderships.
TRANSFER_TIMEOUT_S = 2.0
#: Between two looks at what is still led.
LOOK_S = 0.02


async def transfer_leaderships(replicas: Replicas, cluster: Cluster) -> None:
    """Transfer what this node leads; give up after TRANSFER_TIMEOUT_S."""
    deadline = replicas.now() + TRANSFER_TIMEOUT_S
    while replicas.now() < deadline:
        led = [replica for replica in replicas.by_key.values() if replica.is_leader]
        led = [replica for replica in led if len(replica.group.configuration.voters) > 1]
        if not led or not cluster.is_anybody_connected:
            return
        for replica in led:
            transfer_leadership(replica, replicas, cluster)
        await asyncio.sleep(LOOK_S)


def transfer_leadership(replica: Replica, replicas: Replicas, cluster: Cluster) -> None:
    """Begin to transfer a leadership, to the follower that lacks least."""
    group, now = replica.group, replicas.now()
    followers = [
        (progress.match_end, candidate)
        for candidate in group.in_sync(now, replicas.replica_lag_time_max_s)
        if (progress := group.progress_of(candidate)) and cluster.is_connected(candidate.node_id)
    ]
    # Nothing is appended until the new leader has all.
    for _, candidate in sorted(followers, reverse=True):
        if replica.driver.transfer_leadership(candidate):
            return
    # One is under way already, or the first row is not committed yet: the next look sees.
