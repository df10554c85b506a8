"""Stories of replicas that move, on the whole cluster and under the eyes of its oracle."""

from __future__ import annotations

import random

from broker.metadata.records import PartitionAssignment
from tests.simulator.cluster import SimulatedCluster, host_of

LIMIT_S = 20.0


def test_a_node_that_was_behind_may_come_back_as_somebody_else() -> None:
    """Moved here, away and here again while it was paused: it opens the first replica when the others know that this is
    over, gives it up, and begins the next as another."""
    cluster = SimulatedCluster(random.Random(7), size=4)
    try:
        cluster.start()
        cluster.run_until(
            lambda: len(cluster.nodes) == 4 and all(node.ready.is_set() for node in cluster.nodes.values()),
            LIMIT_S,
        )
        topic = {
            "name": "t",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [[0, [1, 2, 3]]],
            "configs": {},
        }
        _ask_controller(cluster, "create_topics", {"topics": [topic], "validate_only": False})
        cluster.run_until(lambda: cluster.leader("t") is not None, LIMIT_S)
        resume = cluster.pause(4)
        for nodes in ([1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4]):
            _ask_controller(
                cluster, "reassign_partitions", {"partitions": [["t", 0, nodes]], "may_change_count": True}
            )
            cluster.run_until(lambda nodes=nodes: _wished(cluster) == tuple(nodes), LIMIT_S)  # type: ignore[misc]
            cluster.run_until(lambda: not _assignment(cluster).removing, LIMIT_S)
        resume()
        cluster.run_until(
            lambda: (
                (replica := cluster.replica(4, "t")) is not None
                and replica.group.self_id in replica.group.configuration.voters
            ),
            LIMIT_S,
        )
        replica = cluster.replica(4, "t")
        assert replica is not None
        assert replica.group.self_id.incarnation > 0
    finally:
        cluster.close()


def _ask_controller(cluster: SimulatedCluster, operation: str, arguments: dict[str, object]) -> None:
    answers: list[dict[str, object]] = []
    process = cluster.loop.process(host_of(1))
    assert process is not None
    process.call(cluster.nodes[1].controller.call, operation, arguments, answers.append)
    cluster.run_until(lambda: bool(answers), LIMIT_S)
    assert answers[0]["error_code"] == 0, answers


def _assignment(cluster: SimulatedCluster) -> PartitionAssignment:
    topic = cluster.nodes[1].metadata.image.topic_named("t")
    assert topic is not None
    return topic.partitions[0]


def _wished(cluster: SimulatedCluster) -> tuple[int, ...]:
    return _assignment(cluster).replicas
