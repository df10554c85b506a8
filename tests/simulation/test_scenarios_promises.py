"""What a node has promised counts for longer than it has the replica that promised it (replication.md section 5)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.simulator.cluster import SimulatedCluster, captured_logs
from tests.simulator.mutations.reassignment import (
    a_deposed_leader_asks_one_that_gave_its_replica_up,
    a_deposed_leader_asks_one_that_was_quarantined,
)
from tests.simulator.mutations.stage import Stage, tell


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "story",
    [a_deposed_leader_asks_one_that_gave_its_replica_up, a_deposed_leader_asks_one_that_was_quarantined],
)
def test_a_deposed_leader_is_not_confirmed_by_a_node_that_helped_to_depose_it(
    story: Callable[[Stage], None], seed: int
) -> None:
    """A deposed leader that is confirmed answers ListOffsets with an old end. Consumers at the true end get a confirmed
    OFFSET_OUT_OF_RANGE from it, and reset."""
    rng = random.Random(seed)
    cluster = SimulatedCluster(rng, size=4)
    with captured_logs(cluster.loop):
        tell(cluster, rng, story)
    cluster.close()
