"""What every decision is made from, and what several families of them need."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from broker.config.resources import Resources
from broker.metadata.image import MetadataImage
from broker.metadata.record_codec import encode
from broker.metadata.records import BrokerRecord, KeyValue, PartitionAssignment


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


class Decisions:
    """A family of decisions: each reads the image and changes nothing.

    `is_alive` says whether that very registration (node id and directory id) is connected now.
    """

    def __init__(
        self,
        image: MetadataImage,
        config: ControllerConfig,
        rng: random.Random,
        *,
        is_alive: Callable[[BrokerRecord], bool],
        resources: Resources,
    ) -> None:
        self._image = image
        self._config = config
        self._rng = rng
        self._is_alive = is_alive
        self._resources = resources

    def _changed_topics(self, wishes: Mapping[UUID, Sequence[PartitionAssignment]]) -> tuple[KeyValue, ...]:
        """The records of those topics whose wish is another one."""
        records = [
            replace(self._image.topics[topic_id], partitions=tuple(wish)) for topic_id, wish in wishes.items()
        ]
        return tuple(encode(record) for record in records if record != self._image.topics[record.topic_id])
