"""Topics and how many partitions they have: creating, deleting, adding partitions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from uuid import UUID

from broker.config.resources import Resources
from broker.metadata.decisions.common import ControllerConfig, changed_topics
from broker.metadata.decisions.replica_room import check_replica_room
from broker.metadata.ids import INTERNAL_TOPICS, METADATA_TOPIC_ID, random_uuid
from broker.metadata.image import MetadataImage, fold_name
from broker.metadata.placement import place
from broker.metadata.record_codec import PARTITIONS_PER_STEP, encode_topic, topic_tombstone
from broker.metadata.records import BrokerRecord, KeyValue, PartitionAssignment, TopicRecord, shared
from broker.metadata.requests import BROKER_DEFAULT, Deciding, Decision, NewPartitions, NewTopic, TopicResult
from broker.metadata.settings_size import check_room, values_size
from broker.metadata.topic_checks import (
    check_assignments,
    check_configs,
    check_counts,
    check_is_new,
    check_is_not_internal,
    check_name,
    check_new_partitions,
)
from protocol.errors import ErrorCode, KafkaError


class _Created:
    """What one request has created so far."""

    def __init__(self) -> None:
        self.records: list[TopicRecord] = []
        self.folded_names: dict[str, str] = {}
        self.partition_count = 0
        self.settings_bytes = 0

    def add(self, record: TopicRecord) -> None:
        self.records.append(record)
        self.folded_names[fold_name(record.name)] = record.name
        self.partition_count += len(record.partitions)
        self.settings_bytes += values_size(record.configs)


class TopicDecisions:
    def __init__(
        self,
        image: MetadataImage,
        config: ControllerConfig,
        rng: random.Random,
        is_alive: Callable[[BrokerRecord], bool],
        resources: Resources,
    ) -> None:
        self._image = image
        self._config = config
        self._rng = rng
        self._is_alive = is_alive
        self._resources = resources

    def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, is_internal: bool = False
    ) -> Deciding[tuple[TopicResult, ...]]:
        """One result per distinct name, in the order of the request (KIP-4). `is_internal`: asked for by a node, which
        alone may create the topics that belong to the cluster. The limits of what clients may add do not hold for
        those: without them no client can commit any more."""
        requested: dict[str, list[NewTopic]] = {}
        for topic in topics:
            requested.setdefault(topic.name, []).append(topic)
        results: list[TopicResult] = []
        created = _Created()
        for name, same_name in requested.items():
            yield
            if len(same_name) > 1:
                results.append(TopicResult(name, ErrorCode.INVALID_REQUEST, "named twice in the request"))
                continue
            try:
                if not is_internal:
                    check_is_not_internal(name)
                record = yield from self._new_topic(same_name[0], created, is_internal=is_internal)
            except KafkaError as error:
                results.append(TopicResult(name, error.code, error.message))
                continue
            created.add(record)
            results.append(
                TopicResult(
                    name,
                    topic_id=None if validate_only else record.topic_id,
                    num_partitions=len(record.partitions),
                    replication_factor=len(record.partitions[0].replicas),
                    configs=record.configs,
                )
            )
        records: list[KeyValue] = []
        for record in () if validate_only else created.records:
            records.append((yield from encode_topic(record)))
            yield
        return Decision(tuple(records), tuple(results))

    def create_missing(self, names: Sequence[str]) -> Deciding[tuple[TopicResult, ...]]:
        """Create topics that a Metadata request named, with the broker's defaults.

        A name that is given twice is no error here; an existing topic answers TOPIC_ALREADY_EXISTS.
        """
        return self.create([NewTopic(name) for name in dict.fromkeys(names)])

    def delete(self, topic_ids: Sequence[UUID]) -> Deciding[dict[UUID, KafkaError | None]]:
        """Topics by id. Answers for each distinct id why it is not deleted, or None."""
        outcomes: dict[UUID, KafkaError | None] = {}
        for topic_id in topic_ids:
            topic = self._image.topics.get(topic_id)
            refusal: KafkaError | None = None
            if topic is None:
                refusal = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
            elif topic.name in INTERNAL_TOPICS:
                refusal = KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} belongs to the cluster"
                )
            outcomes[topic_id] = refusal
            yield
        deleted = (topic_id for topic_id, refusal in outcomes.items() if refusal is None)
        return Decision(tuple(map(topic_tombstone, deleted)), outcomes)

    def add_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> Deciding[tuple[TopicResult, ...]]:
        """More partitions for topics that are there (KIP-195). One result per distinct name."""
        requested = Counter(each.topic for each in wanted)
        results: list[TopicResult] = []
        changed: dict[UUID, Sequence[PartitionAssignment]] = {}
        added: list[PartitionAssignment] = []
        for each in {each.topic: each for each in wanted}.values():
            yield
            try:
                if requested[each.topic] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                topic = self._image.topic_named(each.topic)
                if topic is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if topic.name in INTERNAL_TOPICS:
                    # Which partition is a group's follows from how many there are.
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} belongs to the cluster")
                more = yield from self._new_partitions(each, topic, added)
            except KafkaError as refused:
                results.append(TopicResult(each.topic, refused.code, refused.message))
                continue
            added += more
            changed[topic.topic_id] = (*topic.partitions, *more)
            new = range(len(topic.partitions), each.count)
            results.append(TopicResult(each.topic, topic_id=topic.topic_id, new_partitions=new))
        records = () if validate_only else (yield from changed_topics(self._image, changed))
        return Decision(records, tuple(results))

    def find_deleted(self, topic_ids: Sequence[UUID]) -> Deciding[list[UUID]]:
        """Of ids that once were topics, those that are not any more."""
        deleted: list[UUID] = []
        for topic_id in topic_ids:
            if topic_id not in self._image.topics:
                deleted.append(topic_id)
            yield
        return Decision((), deleted)

    def _new_topic(
        self, topic: NewTopic, created: _Created, *, is_internal: bool
    ) -> Generator[None, None, TopicRecord]:
        check_name(topic.name)
        check_is_new(topic.name, self._image, created.folded_names)
        configs = check_configs(topic)
        self._resources.validate("topic", configs)
        check_counts(topic)
        if not is_internal:
            used_bytes = self._image.settings_bytes + created.settings_bytes
            check_room(used_bytes, values_size(configs), self._config.max_settings_bytes)
            self._check_limits(self._partition_count(topic), created.partition_count)
        if topic.assignments:
            placed = yield from check_assignments(topic, self._image)
            self._check_some_alive(placed)
        else:
            placed = yield from self._place(self._partition_count(topic), topic.replication_factor)
        if not is_internal:
            before = (partition for record in created.records for partition in record.partitions)
            yield from check_replica_room(self._image, before, placed, self._config.descriptor_limit)
        return TopicRecord(
            topic_id=self._new_topic_id(),
            name=topic.name,
            partitions=tuple((yield from self._founding(placed))),
            configs=configs,
        )

    def _new_partitions(
        self, wanted: NewPartitions, topic: TopicRecord, added: Sequence[PartitionAssignment]
    ) -> Generator[None, None, list[PartitionAssignment]]:
        """`added`: partitions that the same request adds to other topics."""
        placed = yield from check_new_partitions(wanted, topic, self._image)
        count = wanted.count - len(topic.partitions)
        self._check_limits(count, len(added))
        if placed is None:
            placed = yield from self._place(count, len(topic.partitions[0].replicas))
        else:
            self._check_some_alive(placed)
        yield from check_replica_room(self._image, added, placed, self._config.descriptor_limit)
        return (yield from self._founding(placed))

    def _partition_count(self, topic: NewTopic) -> int:
        if topic.assignments:
            return len(topic.assignments)
        return self._config.num_partitions if topic.num_partitions == BROKER_DEFAULT else topic.num_partitions

    def _check_limits(self, count: int, created: int) -> None:
        """`created`: partitions that the same request has made before these."""
        if created + count > self._config.max_partitions_per_request:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"a request may create at most {self._config.max_partitions_per_request} partitions",
            )
        if self._image.partition_count + created + count > self._config.max_partitions:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the cluster may have at most {self._config.max_partitions} partitions (varve.max.partitions)",
            )

    def _check_some_alive(self, placed: Sequence[tuple[int, ...]]) -> None:
        alive = {node_id for node_id, broker in self._image.brokers.items() if self._is_alive(broker)}
        for partition, replicas in enumerate(placed):
            if alive.isdisjoint(replicas):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"no broker of partition {partition} is alive"
                )

    def _place(
        self, partition_count: int, replication_factor: int
    ) -> Generator[None, None, list[tuple[int, ...]]]:
        """Live brokers first; registered ones that are down only fill up what is missing.

        Creating a topic while one node of three restarts then gives it three replicas, as Kafka does, and
        not two for ever. The live ones have to be a majority, or the partitions could not be used at all.
        """
        alive = [broker.node_id for broker in self._image.brokers.values() if self._is_alive(broker)]
        down = [node_id for node_id in self._image.brokers if node_id not in alive]
        if replication_factor == BROKER_DEFAULT:
            replication_factor = self._default_replication_factor()
        if replication_factor > len(alive) + len(down) or len(alive) <= replication_factor // 2:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {replication_factor} with {len(alive)} brokers alive, {len(down)} down",
            )
        placed = yield from place(alive, partition_count, min(replication_factor, len(alive)), self._rng)
        missing = replication_factor - len(alive)
        if missing <= 0:
            return placed
        filled = yield from place(down, partition_count, missing, self._rng)
        return [replicas + more for replicas, more in zip(placed, filled, strict=True)]

    def _default_replication_factor(self) -> int:
        if self._config.default_replication_factor is not None:
            return self._config.default_replication_factor
        return min(3, max(len(self._image.brokers), self._config.expected_brokers))

    def _founding(
        self, placed: Sequence[tuple[int, ...]]
    ) -> Generator[None, None, list[PartitionAssignment]]:
        """The first assignments of new partitions. Equal ones share an object."""
        known: dict[tuple[int, ...], PartitionAssignment] = {}
        founding: list[PartitionAssignment] = []
        for replicas in placed:
            assignment = known.get(replicas)
            if assignment is None:
                directories = tuple(self._image.brokers[node_id].directory_id for node_id in replicas)
                incarnations = (0,) * len(replicas)
                assignment = shared(PartitionAssignment(replicas, directories, incarnations))
                known[replicas] = assignment
            founding.append(assignment)
            if len(founding) % PARTITIONS_PER_STEP == 0:
                yield
        return founding

    def _new_topic_id(self) -> UUID:
        topic_id = random_uuid(self._rng)
        assert topic_id != METADATA_TOPIC_ID and topic_id not in self._image.topics
        return topic_id
