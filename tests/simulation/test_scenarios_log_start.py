"""Where a log starts for its readers, whoever leads (replication.md section 6), in clusters of five."""

from __future__ import annotations

import random

from protocol.errors import ErrorCode
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.mutations.stage import EARLIEST, Stage, tell


def what_three_of_five_have_deleted_stays_deleted(stage: Stage) -> None:
    """A leader shows a log start that it and two others have; it dies, one of the two is cut off. One of those that
    lack it wins and commits with the third: what it shows is not less, although it does not know a majority yet."""
    stage.create_topic(replicas=(1, 2, 3, 4, 5))
    for _ in range(20):
        end_offset = stage.write(size_bytes=600) + 1
    stage.everybody_has_all()
    old = stage.leader()
    one, other, *lacking = stage.followers()
    for node_id in lacking:
        stage.isolate(node_id)
    start = end_offset // 2
    stage.delete_below(start)
    stage.wait(lambda: stage.replica(old).log_start_offset == start)
    stage.cluster.kill(old)
    stage.heal()
    stage.isolate(other)
    stage.cluster.nodes[one].replicas.stop_campaigning()
    new = stage.leader()
    assert new in lacking
    error, shown = stage.offset_of(new, EARLIEST)
    while error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        error, shown = stage.offset_of(new, EARLIEST)
    assert error is ErrorCode.NONE
    assert stage.fetch(new, start).log_start >= shown
    assert shown >= start, f"records below {start} were deleted; now readers are shown {shown}"
    stage.write()
    stage.cluster.start(old)


def test_what_three_of_five_have_deleted_stays_deleted() -> None:
    for seed in range(1, 6):
        cluster = SimulatedCluster(random.Random(seed), size=5)
        try:
            tell(cluster, random.Random(seed), what_three_of_five_have_deleted_stays_deleted)
        finally:
            cluster.close()
