"""What several families of decisions share: the controller's settings, and the records of changed assignments."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from broker.metadata.image import MetadataImage
from broker.metadata.record_codec import encode_topic
from broker.metadata.records import KeyValue, PartitionAssignment


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    num_partitions: int = 1
    """`num.partitions`."""
    default_replication_factor: int | None = None
    """`default.replication.factor`. None: min(3, brokers) when the topic is created (replication.md section
    6)."""
    expected_brokers: int = 1
    """How many nodes the configuration names as voters. While fewer are registered, the default replication
    factor still counts them all: a topic made during the first second of a cluster must not stay at one
    replica."""
    max_partitions_per_request: int = 10_000
    """As in Kafka: bounds what one request can make the controller allocate, and the size of a topic
    record."""
    max_quotas: int = 10_000
    """Entities that have a quota. Each node looks through them for each of its clients."""
    max_partitions: int = 50_000
    """Of the whole cluster: every partition is a Raft group with state in memory on each of its replicas."""
    descriptor_limit: int = 1 << 20
    """How many files the process of each node may open, as far as the controller knows: as many as its own."""
    max_settings_bytes: int = 4 << 20
    """What everything that clients set may take in memory (broker.metadata.settings_size)."""


def changed_topics(
    image: MetadataImage, targets: Mapping[UUID, Sequence[PartitionAssignment]]
) -> Generator[None, None, tuple[KeyValue, ...]]:
    """The records of those topics whose target assignment changes. `targets`: all partitions of each topic."""
    records: list[KeyValue] = []
    for topic_id, partitions in targets.items():
        record = replace(image.topics[topic_id], partitions=tuple(partitions))
        if record != image.topics[topic_id]:
            records.append((yield from encode_topic(record)))
        yield
    return tuple(records)
