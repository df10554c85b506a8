"""What the jobs ask of the cluster besides records: topics, offsets, leaders."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import (
    KafkaError,
    KafkaException,
    Node,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin import (
    AdminClient,
    BrokerMetadata,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from pipeline.errors import ClusterUnavailable

_TIMEOUT_S = 30.0
_ATTEMPT_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 10.0


class Cluster:
    """The cluster behind a bootstrap address."""

    def __init__(self, bootstrap_server: str) -> None:
        self.bootstrap_server = bootstrap_server
        self._admin = AdminClient(
            {
                "bootstrap.servers": bootstrap_server,
                "client.id": "varve-pipeline",
                # Brokers that are gone are no news here; what matters comes back as an exception.
                "log_level": 2,
                "reconnect.backoff.max.ms": 1_000,
            }
        )

    def brokers(self) -> list[str]:
        """Each broker as HOST:PORT. Raises ClusterUnavailable."""
        return sorted(f"{broker.host}:{broker.port}" for broker in self._brokers().values())

    def broker_ids(self) -> list[int]:
        """Raises ClusterUnavailable."""
        return sorted(self._brokers())

    def _brokers(self) -> dict[int, BrokerMetadata]:
        try:
            return self._admin.list_topics(timeout=_CONNECT_TIMEOUT_S).brokers
        except KafkaException as error:
            raise ClusterUnavailable(f"no broker answers at {self.bootstrap_server}: {error}") from error

    def topic(self, topic: str) -> TopicDescription | None:
        """The topic's partitions and their leaders; None where it does not exist. Raises ClusterUnavailable."""
        answers = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_CONNECT_TIMEOUT_S)
        try:
            description: TopicDescription = answers[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            if error.args[0].code() > 0:  # a broker's answer; librdkafka's own codes are negative
                raise ClusterUnavailable(f"topic {topic}: {error.args[0].str()}") from error
            raise ClusterUnavailable(f"no broker answers at {self.bootstrap_server}: {error}") from error
        return description

    def ensure_topic(
        self, topic: str, partitions: int, replication_factor: int, config: Mapping[str, str] | None = None
    ) -> bool:
        """Create the topic unless it exists, and wait until each partition has a leader. True if created.

        Raises ClusterUnavailable.
        """
        created = self.topic(topic) is None
        if created:
            request = NewTopic(
                topic,
                num_partitions=partitions,
                replication_factor=replication_factor,
                config=dict(config or {}),
            )
            try:
                self._admin.create_topics([request], operation_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)
            except KafkaException as error:
                # A controller that died had done it already, and the client asked the next one again.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ClusterUnavailable(f"topic {topic} cannot be created: {error}") from error
            except TimeoutError as error:
                raise ClusterUnavailable(f"topic {topic} cannot be created: {error}") from error
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            metadata = self.topic(topic)
            if metadata is not None and all(_has_leader(partition) for partition in metadata.partitions):
                return created
            if time.monotonic() > deadline:
                raise ClusterUnavailable(
                    f"topic {topic} has partitions without a leader after {_TIMEOUT_S:.0f} s"
                )
            time.sleep(0.1)

    def leader(self, topic: str, partition: int) -> int | None:
        """The broker that leads the partition; None where there is none at the moment."""
        metadata = self.topic(topic)
        for candidate in metadata.partitions if metadata is not None else []:
            if candidate.id == partition and _has_leader(candidate):
                leader: int = candidate.leader.id
                return leader
        return None

    def is_in_sync(self, topic: str) -> bool:
        """Whether each partition has a leader and all of its replicas in sync, as the broker that answers sees it.

        Of a partition that it does not lead, it may count a replica as in sync that is only alive.
        """
        metadata = self.topic(topic)
        return metadata is not None and all(
            _has_leader(partition) and len(partition.isr) == len(partition.replicas)
            for partition in metadata.partitions
        )

    def is_compacted(self, topic: str) -> bool:
        """Whether its cleanup.policy has `compact` in it. Raises ClusterUnavailable."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            answer = self._admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
        except KafkaException as error:
            raise ClusterUnavailable(f"the settings of topic {topic} cannot be read: {error}") from error
        return "compact" in answer["cleanup.policy"].value.split(",")

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """First offset and end offset (exclusive) per partition. Raises ClusterUnavailable."""
        metadata = self.topic(topic)
        if metadata is None:
            raise ClusterUnavailable(f"topic {topic} does not exist at {self.bootstrap_server}")
        partitions = sorted(partition.id for partition in metadata.partitions)
        starts = self._list_offsets(topic, partitions, OffsetSpec.earliest())
        ends = self._list_offsets(topic, partitions, OffsetSpec.latest())
        return {partition: (starts[partition], ends[partition]) for partition in partitions}

    def _list_offsets(self, topic: str, partitions: list[int], spec: OffsetSpec) -> dict[int, int]:
        """One bound of each partition, asked again while a leader is being replaced."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            asked = {TopicPartition(topic, partition): spec for partition in partitions}
            answers = self._admin.list_offsets(asked, request_timeout=_ATTEMPT_TIMEOUT_S)
            try:
                return {place.partition: answer.result().offset for place, answer in answers.items()}
            except KafkaException as error:
                if time.monotonic() > deadline:
                    raise ClusterUnavailable(
                        f"the offsets of topic {topic} cannot be read: {error}"
                    ) from error
                time.sleep(0.5)


def _has_leader(partition: TopicPartitionInfo) -> bool:
    # None where the broker answers -1; the client's type stubs do not know it.
    leader: object = partition.leader
    return isinstance(leader, Node) and leader.id >= 0
