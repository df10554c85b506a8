"""Whether the nodes have room for new replicas: each keeps a file open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence

from broker.config.descriptors import limit_for, replicas_of
from broker.metadata.image import MetadataImage
from broker.metadata.record_codec import PARTITIONS_PER_STEP
from broker.metadata.records import PartitionAssignment
from protocol.errors import ErrorCode, KafkaError


def check_replica_room(
    image: MetadataImage,
    created: Iterable[PartitionAssignment],
    placed: Sequence[Sequence[int]],
    descriptor_limit: int,
) -> Generator[None, None, None]:
    """Raises POLICY_VIOLATION if a node would have more replicas than it can open. `created`: what the same request has
    created before these. `descriptor_limit` is that of the controller's process, and taken for that of all: nodes of a
    cluster are set up alike. A node with less opens what it can (`broker.partitions.publisher`)."""
    most = replicas_of(descriptor_limit)
    created = list(created)
    if image.partition_count + len(created) + len(placed) <= most:
        return  # a node has one replica of a partition at most
    counts: Counter[int] = Counter()
    for topic in image.topics.values():
        for number, assignment in enumerate(topic.partitions):
            counts.update(assignment.holders)
            if number % PARTITIONS_PER_STEP == 0:
                yield
    for assignment in created:
        counts.update(assignment.holders)
    new: Counter[int] = Counter()
    for replicas in placed:
        new.update(replicas)
    for node_id in sorted(new):
        count = counts[node_id] + new[node_id]
        if count > most:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"broker {node_id} would have {count} replicas, and has room for {most}, because a process may open "
                f"{descriptor_limit} files here. Start the brokers with a higher limit "
                f"(ulimit -n {limit_for(count)}), or create fewer partitions",
            )
