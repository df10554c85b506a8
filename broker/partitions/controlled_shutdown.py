"""What a stopping node leads goes to the followers that have it all, so that nobody waits for an election timeout."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.node import Node
    from broker.replication.replica import Replica

#: How long a stopping node tries to hand its leaderships over. If the whole cluster stops, nobody takes them.
HANDOVER_S = 2.0


async def hand_over_all(node: Node) -> None:
    """Transfer what this node leads to the followers that have it all; give up after HANDOVER_S."""
    deadline = node.loop.time() + HANDOVER_S
    while node.loop.time() < deadline:
        led = [replica for replica in node.replicas.by_key.values() if replica.is_leader]
        led = [replica for replica in led if len(replica.group.configuration.voters) > 1]
        if not led or not any(node.cluster.is_connected(node_id) for node_id in node.cluster.links):
            return
        for replica in led:
            transfer(node, replica)
        await asyncio.sleep(0.02)


def transfer(node: Node, replica: Replica) -> None:
    """Begin to hand a leadership over, to whom lacks least."""
    group, now = replica.group, node.loop.time()
    followers = [
        (progress.match_end, candidate)
        for candidate in group.in_sync(now, node.replicas.replica_lag_time_max_s)
        if (progress := group.progress_of(candidate)) and node.cluster.is_connected(candidate.node_id)
    ]
    # Nothing is appended until the new leader holds all: who lacks least comes first.
    for _, candidate in sorted(followers, reverse=True):
        if replica.hand_over(candidate):
            return
    # Under way already, or not established yet: the next round looks again.
