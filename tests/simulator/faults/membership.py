"""Partitions that move to other nodes, and nodes that are filled and emptied (replication.md sections 3 and 4).

An administrator asks any node, and does not wait for the answer; what is wished for last has to be there in the end.
No partition gets fewer than three replicas, so that a disk may be lost meanwhile.
"""

from __future__ import annotations

import random

from broker.metadata.records import TopicRecord
from storage.log_types import GroupKey
from tests.simulator.cluster import SimulatedCluster
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
    wishes = []
    for topic, number in _partitions(cluster):
        replicas = topic.partitions[number].replicas
        others = [node_id for node_id in cluster.node_ids if node_id != leaving and node_id not in replicas]
        heirs = [rng.choice(others)] if others else []
        wish = [node_id for node_id in replicas if node_id != leaving] + heirs
        if leaving in replicas and len(wish) >= LEAST_REPLICAS:
            wishes.append((topic, number, wish))
    _ask(cluster, rng, wishes)


def fill_node(cluster: SimulatedCluster, rng: random.Random) -> None:
    """A node gets a replica of every partition, as one just added would: in another's place, or as one more."""
    joining = rng.choice(cluster.node_ids)
    wishes = []
    for topic, number in _partitions(cluster):
        replicas = list(topic.partitions[number].replicas)
        if joining not in replicas:
            if rng.random() < 0.7:
                replicas.remove(rng.choice(replicas))
            wishes.append((topic, number, [*replicas, joining]))
    _ask(cluster, rng, wishes)


def _partitions(cluster: SimulatedCluster) -> list[tuple[TopicRecord, int]]:
    """As the node that has read most of the metadata knows them."""
    images = [node.metadata.image for node in cluster.nodes.values() if node.ready.is_set()]
    if not images:
        return []
    newest = max(images, key=lambda image: image.end_offset)
    return [(topic, number) for topic in newest.topics_by_name() for number in range(len(topic.partitions))]


def _ask(
    cluster: SimulatedCluster, rng: random.Random, wishes: list[tuple[TopicRecord, int, list[int]]]
) -> None:
    """Nobody moves to or from a damaged copy: the limit of damage was kept for those who were members then, and rot
    that nobody has met yet would be among the members again."""
    sound = [
        (topic.name, number, wish)
        for topic, number, wish in wishes
        if not any(
            cluster.damage.is_damaged(node_id, GroupKey(topic.topic_id, number))
            for node_id in {*wish, *topic.partitions[number].replicas}
        )
    ]
    ready = [
        node_id
        for node_id in cluster.alive()
        if node_id in cluster.nodes and cluster.nodes[node_id].ready.is_set()
    ]
    if sound and ready:
        node_id = rng.choice(ready)
        client = cluster.nodes[node_id].controller
        cluster.process(node_id).call(
            client.call, "reassign_partitions", {"partitions": sound}, lambda answer: None
        )


FAULTS: dict[str, Fault] = {
    "move partition": move_partition,
    "empty node": empty_node,
    "fill node": fill_node,
}
