"""Stories of replicas that move, on the whole cluster and under the eyes of its oracle."""

from __future__ import annotations

import random
from typing import Any

from broker.metadata.records import PartitionAssignment
from protocol.controller.replicas import ReassignedPartition, ReassignPartitions
from protocol.controller.request import Request
from protocol.controller.topics import CreateTopics, NewTopic, ReplicaAssignment
from protocol.errors import KafkaError
from storage.errors import CorruptLogError
from tests.simulator.cluster import SimulatedCluster, host_of
from tests.simulator.mutations.stage import Stage

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
        topic = NewTopic(name="t", assignments=[ReplicaAssignment(partition=0, node_ids=[1, 2, 3])])
        _ask_controller(cluster, CreateTopics(topics=[topic]))
        cluster.run_until(lambda: cluster.leader("t") is not None, LIMIT_S)
        resume = cluster.pause(4)
        for nodes in ([1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4]):
            target = ReassignedPartition(topic="t", partition=0, node_ids=nodes)
            _ask_controller(cluster, ReassignPartitions(partitions=[target]))
            cluster.run_until(lambda nodes=nodes: _assigned(cluster) == tuple(nodes), LIMIT_S)  # type: ignore[misc]
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


def test_of_two_replicas_one_may_find_its_log_corrupt() -> None:
    """The other one holds everything, and could commit no learner while it waits for an identity that is gone."""
    cluster = SimulatedCluster(random.Random(7))
    try:
        cluster.start()
        stage = Stage(cluster, random.Random(7))
        stage.ready()
        stage.create_topic(replicas=(1, 2))
        stage.write()
        stage.everybody_has_all()
        (follower,) = stage.followers()
        replica = stage.replica(follower)
        cluster.oracle.nodes.damaged(follower, replica.key)
        host = cluster.nodes[follower].replicas
        stage.call(follower, host.log_corrupt, replica, CorruptLogError("a log", 0, "by a test"))
        stage.write()
        anew = replica.group.self_id._replace(incarnation=1)
        group = stage.replica(stage.leader()).group
        stage.wait(lambda: anew in group.committed_configuration.voters)
        stage.write()
        stage.everybody_has_all()
    finally:
        cluster.close()


def _ask_controller(cluster: SimulatedCluster, request: Request[Any]) -> None:
    answers: list[Any] = []
    process = cluster.loop.process(host_of(1))
    assert process is not None
    process.call(cluster.nodes[1].controller.call, request, answers.append)
    cluster.run_until(lambda: bool(answers), LIMIT_S)
    assert not isinstance(answers[0], KafkaError), answers


def _assignment(cluster: SimulatedCluster) -> PartitionAssignment:
    topic = cluster.nodes[1].metadata.image.topic_named("t")
    assert topic is not None
    return topic.partitions[0]


def _assigned(cluster: SimulatedCluster) -> tuple[int, ...]:
    return _assignment(cluster).replicas
