"""Stories of the bounds of compaction, on the whole cluster and under the eyes of its oracle."""

from __future__ import annotations

import random

from tests.simulator.cluster import SimulatedCluster
from tests.simulator.mutations.stage import Stage


def test_a_report_that_was_lost_is_repeated_soon() -> None:
    """Not after a part of delete.retention.ms: nothing may rise meanwhile, and a learner may not vote."""
    cluster = SimulatedCluster(random.Random(7))
    try:
        cluster.start()
        stage = Stage(cluster, random.Random(7))
        stage.ready()
        metadata = [node.metadata.replica for node in cluster.nodes.values()]
        leader = next(replica for replica in metadata if replica is not None and replica.is_leader)
        bounds = leader.bounds
        member = next(one for one in leader.group.members if one != leader.group.self_id)
        stage.wait(lambda: bounds.report_of(member) is not None)
        del bounds._reports[member]
        stage.wait(lambda: bounds.report_of(member) is not None, 3.0)
    finally:
        cluster.close()
