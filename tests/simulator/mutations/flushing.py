"""What has to be durable, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulator.cluster import SimulatedCluster
from tests.simulator.mutations.kind import Mutation


@contextmanager
def _done_before_durable(cluster: SimulatedCluster) -> Iterator[None]:
    for disk in cluster.disks.values():
        disk.faults.done_before_durable = True
        disk.faults.flush_mean_extra_s = 0.05
    yield


MUTATIONS = (
    Mutation(
        "flush-before-acknowledgement",
        "An acknowledgement leaves after the fsync of what it acknowledges (replication.md section 6)",
        _done_before_durable,
        ("power",),
    ),
)
