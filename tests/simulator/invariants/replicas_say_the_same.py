"""No comparison of replicas finds a difference, whatever each of them has compacted and whoever leads
(broker/verification/README.md). One that does is right, and a replica is wrong; or it was a false alarm."""

from __future__ import annotations

from broker.replication.replica import Replica


def report_difference(replica: Replica, node_id: int, offsets: tuple[int, int]) -> None:
    """The leader's replica differs from that of another node, first in [start, end)."""
    raise AssertionError(
        f"node {node_id} says something else than leader {replica.group.self_id.node_id} of"
        f" {replica.topic}-{replica.partition} in {offsets}"
    )
