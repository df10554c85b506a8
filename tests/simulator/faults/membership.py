"""Partitions that move to other nodes, and nodes that are filled and emptied (replication.md sections 3 and 4).

An administrator asks any node, as a client does (AlterPartitionReassignments), and the last target has to be
there in the end, whatever became of the answer.
No partition gets fewer than three replicas, so that a disk may be lost meanwhile.
"""

from __future__ import annotations

import random

from broker.metadata.records import TopicRecord
from protocol.api_keys import ApiKey
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from storage.log_types import GroupKey
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.faults.administrator import ask_some_node
from tests.simulator.faults.kind import Fault

LEAST_REPLICAS = 3


def move_partition(cluster: SimulatedCluster, rng: random.Random) -> None:
    """One partition to any nodes, in any order, sometimes to one more or one less than before."""
    if not (partitions := _partitions(cluster)):
        return
    topic, number = rng.choice(partitions)
    size = len(topic.partitions[number].replicas) + rng.choice((-1, 0, 0, 0, 1))
    size = min(max(size, LEAST_REPLICAS), len(cluster.node_ids))
    _ask(cluster, rng, [(topic, number, rng.sample(cluster.node_ids, size))])


def empty_node(cluster: SimulatedCluster, rng: random.Random) -> None:
    """A node is taken out of all partitions; where nobody can take its place, there is one replica less."""
    leaving = rng.choice(cluster.node_ids)
    targets = []
    for topic, number in _partitions(cluster):
        replicas = topic.partitions[number].replicas
        others = [node_id for node_id in cluster.node_ids if node_id != leaving and node_id not in replicas]
        replacements = [rng.choice(others)] if others else []
        target = [node_id for node_id in replicas if node_id != leaving] + replacements
        if leaving in replicas and len(target) >= LEAST_REPLICAS:
            targets.append((topic, number, target))
    _ask(cluster, rng, targets)


def fill_node(cluster: SimulatedCluster, rng: random.Random) -> None:
    """A node gets a replica of every partition, as one just added would: in another's place, or as one more."""
    joining = rng.choice(cluster.node_ids)
    targets = []
    for topic, number in _partitions(cluster):
        replicas = list(topic.partitions[number].replicas)
        if joining not in replicas:
            if rng.random() < 0.7:
                replicas.remove(rng.choice(replicas))
            targets.append((topic, number, [*replicas, joining]))
    _ask(cluster, rng, targets)


def cancel_moves(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Some of the partitions on their way go back to where they came from."""
    targets = []
    for topic, number in _partitions(cluster):
        before = topic.partitions[number].moving_from
        if before is not None and rng.random() < 0.7:
            targets.append((topic, number, list(before)))
    _ask(cluster, rng, targets, is_cancellation=True)


def _partitions(cluster: SimulatedCluster) -> list[tuple[TopicRecord, int]]:
    """As the node that has read most of the metadata knows them."""
    images = [node.metadata.image for node in cluster.nodes.values() if node.ready.is_set()]
    if not images:
        return []
    newest = max(images, key=lambda image: image.end_offset)
    return [(topic, number) for topic in newest.topics_by_name() for number in range(len(topic.partitions))]


def _ask(
    cluster: SimulatedCluster,
    rng: random.Random,
    targets: list[tuple[TopicRecord, int, list[int]]],
    *,
    is_cancellation: bool = False,
) -> None:
    """Nobody moves to or from a damaged copy: the limit of damage was kept for those who were members then, and
    corruption that nobody has met yet would be among the members again."""
    sound = [
        ReassignableTopic(
            name=topic.name,
            partitions=[
                ReassignablePartition(partition_index=number, replicas=None if is_cancellation else target)
            ],
        )
        for topic, number, target in targets
        if not any(
            cluster.damage.is_damaged(node_id, GroupKey(topic.topic_id, number))
            for node_id in {*target, *topic.partitions[number].replicas}
        )
    ]
    if sound:
        body = AlterPartitionReassignmentsRequest(topics=sound)
        key, response = ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsResponse
        ask_some_node(cluster, rng, key, 1, body, response)


FAULTS: dict[str, Fault] = {
    "move partition": move_partition,
    "empty node": empty_node,
    "fill node": fill_node,
    "cancel moves": cancel_moves,
}
