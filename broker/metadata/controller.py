"""The decisions of the metadata leader: each method reads the image and returns records, and changes nothing.

The broker appends the records, replays them into the leader's image at append, and answers when they are
committed (replication.md section 9). A decision therefore sees all earlier ones, committed or not, provided
that it is appended and replayed before the next is asked for.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from broker.config.resources import Resources
from broker.metadata import quotas, reassignment
from broker.metadata.alterations import AlterationResult, ConfigAlteration, altered_records
from broker.metadata.ids import INTERNAL_TOPICS, METADATA_TOPIC_ID, random_uuid
from broker.metadata.image import MetadataImage, fold_name
from broker.metadata.placement import place
from broker.metadata.quotas import QuotaAlteration
from broker.metadata.records import (
    BrokerRecord,
    ClusterRecord,
    Entity,
    KeyValue,
    PartitionAssignment,
    ProducerIdsRecord,
    QuotaRecord,
    ReplicaIdentity,
    TopicRecord,
    broker_tombstone,
    encode,
    topic_tombstone,
)
from broker.metadata.requests import (
    BROKER_DEFAULT,
    Decision,
    NewPartitions,
    NewTopic,
    OngoingReassignment,
    ProducerIdBlock,
    Reassignment,
    ReassignmentResult,
    ReplicaRenewal,
    TopicResult,
)
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

#: Producer ids are int64 on the wire.
_MAX_PRODUCER_ID = 2**63 - 1


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


class _Created:
    """What one request has created so far."""

    def __init__(self) -> None:
        self.records: list[TopicRecord] = []
        self.folded_names: dict[str, str] = {}
        self.partition_count = 0

    def add(self, record: TopicRecord) -> None:
        self.records.append(record)
        self.folded_names[fold_name(record.name)] = record.name
        self.partition_count += len(record.partitions)


class Controller:
    """`is_alive` says whether that very registration (node id and directory id) is connected now."""

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

    def name_cluster(self, cluster_id: str) -> Decision[None]:
        """The first leader of a new cluster records the id that formation gave it."""
        if self._image.cluster_id == cluster_id:
            return Decision((), None)
        return Decision((encode(ClusterRecord(cluster_id)),), None)

    # -- topics ---------------------------------------------------------------------------------------------

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, is_internal: bool = False
    ) -> Decision[tuple[TopicResult, ...]]:
        """One result per distinct name, in the order of the request (KIP-4). `is_internal`: asked for by a node, which
        alone may create the topics that belong to the cluster."""
        requested: dict[str, list[NewTopic]] = {}
        for topic in topics:
            requested.setdefault(topic.name, []).append(topic)
        results: list[TopicResult] = []
        created = _Created()
        for name, same_name in requested.items():
            if len(same_name) > 1:
                results.append(TopicResult(name, ErrorCode.INVALID_REQUEST, "named twice in the request"))
                continue
            try:
                if not is_internal:
                    check_is_not_internal(name)
                record = self._new_topic(same_name[0], created)
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
        records = () if validate_only else tuple(encode(record) for record in created.records)
        return Decision(records, tuple(results))

    def auto_create(self, names: Sequence[str]) -> Decision[tuple[TopicResult, ...]]:
        """Create topics that a Metadata request named, with the broker's defaults.

        A name that is given twice is no error here; an existing topic answers TOPIC_ALREADY_EXISTS.
        """
        return self.create_topics([NewTopic(name) for name in dict.fromkeys(names)])

    def delete_topics(self, references: Sequence[str | UUID]) -> Decision[tuple[TopicResult, ...]]:
        """Topics by name, or by id (v6). One result per distinct reference, in order."""
        results: list[TopicResult] = []
        deleted: dict[UUID, None] = {}
        for reference, count in Counter(references).items():
            topic = self._find(reference)
            by_name = isinstance(reference, str)
            name = topic.name if topic else reference if isinstance(reference, str) else None
            topic_id = topic.topic_id if topic else reference if isinstance(reference, UUID) else None
            error, message = ErrorCode.NONE, None
            if count > 1 or (topic is not None and topic.topic_id in deleted):
                error, message = ErrorCode.INVALID_REQUEST, "named twice in the request"
            elif topic is None and by_name:
                error, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {reference}"
            elif topic is None:
                error, message = ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {reference}"
            elif topic.name in INTERNAL_TOPICS:
                error, message = ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} belongs to the cluster"
            else:
                deleted[topic.topic_id] = None
            results.append(TopicResult(name, error, message, topic_id))
        return Decision(tuple(topic_tombstone(topic_id) for topic_id in deleted), tuple(results))

    def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> Decision[tuple[TopicResult, ...]]:
        """More partitions for topics that are there (KIP-195). One result per distinct name."""
        requested = Counter(each.topic for each in wanted)
        results: list[TopicResult] = []
        changed: dict[UUID, Sequence[PartitionAssignment]] = {}
        added = 0
        for each in {each.topic: each for each in wanted}.values():
            try:
                if requested[each.topic] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                topic = self._image.topic_named(each.topic)
                if topic is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                if topic.name in INTERNAL_TOPICS:
                    # Which partition is a group's follows from how many there are.
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name} belongs to the cluster")
                more = self._new_partitions(each, topic, added)
            except KafkaError as refused:
                results.append(TopicResult(each.topic, refused.code, refused.message))
                continue
            added += len(more)
            changed[topic.topic_id] = (*topic.partitions, *more)
            results.append(TopicResult(each.topic))
        return Decision(() if validate_only else self._changed_topics(changed), tuple(results))

    # -- settings -------------------------------------------------------------------------------------------

    def alter_configs(
        self, alterations: Sequence[ConfigAlteration], *, validate_only: bool = False
    ) -> Decision[tuple[AlterationResult, ...]]:
        """Change settings. One result per entry, in order; each resource for itself."""
        requested = Counter((each.kind, each.name) for each in alterations)
        records: list[KeyValue] = []
        results: list[AlterationResult] = []
        for each in alterations:
            try:
                if requested[each.kind, each.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                records += altered_records(self._image, each, self._resources)
            except KafkaError as refused:
                results.append(AlterationResult(each.kind, each.name, refused.code, refused.message))
            else:
                results.append(AlterationResult(each.kind, each.name))
        return Decision(() if validate_only else tuple(records), tuple(results))

    def deleted_topics(self, topic_ids: Sequence[UUID]) -> list[UUID]:
        """Those that are topics no more, of ids that once were."""
        return [topic_id for topic_id in topic_ids if topic_id not in self._image.topics]

    # -- brokers --------------------------------------------------------------------------------------------

    def register_broker(self, broker: BrokerRecord) -> Decision[None]:
        """Record who a node is and where it listens; nothing where that is known already.

        A new directory id means that the old volume is lost: the wish for every replica of this node then
        names the new identity, and each partition's leader replaces the old one by it (replication.md
        section 3). Raises KafkaError(DUPLICATE_BROKER_REGISTRATION) while the old directory is alive.
        """
        old = self._image.brokers.get(broker.node_id)
        if old == broker:
            return Decision((), None)
        records: list[KeyValue] = []
        if old is not None and old.directory_id != broker.directory_id:
            if self._is_alive(old):
                raise KafkaError(
                    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                    f"node {broker.node_id} is running with another data directory ({old.directory_id})",
                )
            records.extend(self._moved_to(broker))
        # Last: where a change of leaders cuts this decision short, the broker registers again and gets the rest.
        return Decision((*records, encode(broker)), None)

    def unregister_broker(self, node_id: int) -> Decision[None]:
        """Forget a broker. Raises KafkaError: BROKER_ID_NOT_REGISTERED; POLICY_VIOLATION while it holds a replica, or
        may still hold one that is wished away."""
        if node_id not in self._image.brokers:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {node_id}")
        held = sum(
            node_id in partition.holders
            for topic in self._image.topics.values()
            for partition in topic.partitions
        )
        if held:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"broker {node_id} still holds {held} partitions; move them first"
            )
        return Decision((broker_tombstone(node_id),), None)

    def renew_replicas(
        self, node_id: int, directory_id: UUID, renewals: Sequence[ReplicaRenewal]
    ) -> Decision[None]:
        """Wish for the new incarnations of replicas whose logs that broker discarded (quarantine).

        Renewals that are old news, or for replicas that the node does not hold any more, change nothing.
        Raises KafkaError(BROKER_ID_NOT_REGISTERED) where the directory is not the registered one.
        """
        broker = self._image.brokers.get(node_id)
        if broker is None or broker.directory_id != directory_id:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {node_id} with directory {directory_id}"
            )
        changed: dict[UUID, list[PartitionAssignment]] = {}
        for renewal in renewals:
            topic = self._image.topics.get(renewal.topic_id)
            if topic is None or not 0 <= renewal.partition < len(topic.partitions):
                continue
            wish = changed.get(topic.topic_id, list(topic.partitions))
            partition = wish[renewal.partition]
            if node_id not in partition.replicas:
                continue
            position = partition.replicas.index(node_id)
            if partition.incarnations[position] >= renewal.incarnation:
                continue
            wish[renewal.partition] = _with_identity(partition, position, directory_id, renewal.incarnation)
            changed[topic.topic_id] = wish
        return Decision(self._changed_topics(changed), None)

    # -- reassignment ---------------------------------------------------------------------------------------

    def reassign_partitions(
        self, reassignments: Sequence[Reassignment], *, may_change_count: bool = True
    ) -> Decision[tuple[ReassignmentResult, ...]]:
        """Wish for other replicas of partitions (KIP-455). One result per entry, in order; a later wish for the same
        partition replaces an earlier one. `may_change_count`: a wish for more or fewer replicas is no mistake."""
        changed: dict[UUID, list[PartitionAssignment]] = {}
        results: list[ReassignmentResult] = []
        for wanted in reassignments:
            error, message = ErrorCode.NONE, None
            try:
                topic, _ = reassignment.partition_of(self._image, wanted)
                wish = changed.setdefault(topic.topic_id, list(topic.partitions))
                wish[wanted.partition] = self._reassigned(
                    wish[wanted.partition], wanted.replicas, may_change_count
                )
            except KafkaError as refused:
                error, message = refused.code, refused.message
            results.append(ReassignmentResult(wanted.topic, wanted.partition, error, message))
        return Decision(self._changed_topics(changed), tuple(results))

    def _reassigned(
        self, partition: PartitionAssignment, replicas: tuple[int, ...] | None, may_change_count: bool
    ) -> PartitionAssignment:
        if replicas is None:
            return reassignment.cancelled(partition, self._image)
        reassignment.check_nodes(replicas, self._image)
        count = len(partition.moving_from or partition.replicas)
        if len(replicas) != count and not may_change_count:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the partition has {count} replicas and would have {len(replicas)}",
            )
        self._check_majority_alive(replicas)
        return reassignment.moved(partition, replicas, self._image)

    def ongoing_reassignments(self) -> Decision[list[OngoingReassignment]]:
        return Decision((), reassignment.ongoing(self._image))

    def finish_reassignment(
        self, topic_id: UUID, partition: int, fact: Sequence[ReplicaIdentity]
    ) -> Decision[None]:
        """The partition's leader says that the configuration of exactly these voters is committed. Where that is the
        wish no more, or the topic is gone, nothing changes."""
        topic = self._image.topics.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return Decision((), None)
        wish = list(topic.partitions)
        wish[partition] = reassignment.finished(wish[partition], fact)
        return Decision(self._changed_topics({topic_id: wish}), None)

    # -- quotas ---------------------------------------------------------------------------------------------

    def alter_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool = False
    ) -> Decision[tuple[KafkaError | None, ...]]:
        """What is wrong with each, in order; None: nothing. Of an entity that is named twice the first counts."""
        changed: dict[Entity, QuotaRecord] = {}
        results: list[KafkaError | None] = []
        for wanted in alterations:
            try:
                record = quotas.altered(self._image.quotas, wanted)
                if record.entity in changed:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the entity is named twice in the request")
                known = {*self._image.quotas, *changed}
                if record.entity not in known and len(known) >= self._config.max_quotas:
                    raise KafkaError(
                        ErrorCode.POLICY_VIOLATION, f"there are {self._config.max_quotas} quotas"
                    )
            except KafkaError as refused:
                results.append(refused)
            else:
                changed[record.entity] = record
                results.append(None)
        records = [
            encode(record)
            for entity, record in changed.items()
            if record.limits != self._image.quotas.get(entity, {})
        ]
        return Decision(() if validate_only else tuple(records), tuple(results))

    # -- producer ids ---------------------------------------------------------------------------------------

    def allocate_producer_ids(self, count: int = 1000) -> Decision[ProducerIdBlock]:
        """A block for one broker. It is recorded before any id of it is used (replication.md section 8)."""
        assert count > 0
        first = self._image.next_producer_id
        if first + count > _MAX_PRODUCER_ID:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
        return Decision((encode(ProducerIdsRecord(first + count)),), ProducerIdBlock(first, count))

    # -- details --------------------------------------------------------------------------------------------

    def _find(self, reference: str | UUID) -> TopicRecord | None:
        if isinstance(reference, str):
            return self._image.topic_named(reference)
        return self._image.topics.get(reference)

    def _new_topic(self, topic: NewTopic, created: _Created) -> TopicRecord:
        check_name(topic.name)
        check_is_new(topic.name, self._image, created.folded_names)
        configs = check_configs(topic)
        self._resources.validate("topic", configs)
        check_counts(topic)
        self._check_limits(self._partition_count(topic), created.partition_count)
        if topic.assignments:
            placed = check_assignments(topic, self._image)
            self._check_some_alive(placed)
        else:
            placed = self._place(self._partition_count(topic), topic.replication_factor)
        return TopicRecord(
            topic_id=self._new_topic_id(),
            name=topic.name,
            partitions=tuple(self._founding(replicas) for replicas in placed),
            configs=configs,
        )

    def _new_partitions(
        self, wanted: NewPartitions, topic: TopicRecord, added: int
    ) -> list[PartitionAssignment]:
        """`added`: partitions that the same request adds to other topics."""
        placed = check_new_partitions(wanted, topic, self._image)
        count = wanted.count - len(topic.partitions)
        self._check_limits(count, added)
        if placed is None:
            placed = self._place(count, len(topic.partitions[0].replicas))
        else:
            self._check_some_alive(placed)
        return [self._founding(replicas) for replicas in placed]

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
                f"the cluster may have at most {self._config.max_partitions} partitions",
            )

    def _check_some_alive(self, placed: Sequence[tuple[int, ...]]) -> None:
        for partition, replicas in enumerate(placed):
            if not any(self._is_alive(self._image.brokers[node_id]) for node_id in replicas):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"no broker of partition {partition} is alive"
                )

    def _place(self, partition_count: int, replication_factor: int) -> list[tuple[int, ...]]:
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
        placed = place(alive, partition_count, min(replication_factor, len(alive)), self._rng)
        missing = replication_factor - len(alive)
        if missing <= 0:
            return placed
        filled = place(down, partition_count, missing, self._rng)
        return [replicas + more for replicas, more in zip(placed, filled, strict=True)]

    def _default_replication_factor(self) -> int:
        if self._config.default_replication_factor is not None:
            return self._config.default_replication_factor
        return min(3, max(len(self._image.brokers), self._config.expected_brokers))

    def _founding(self, replicas: tuple[int, ...]) -> PartitionAssignment:
        directories = tuple(self._image.brokers[node_id].directory_id for node_id in replicas)
        return PartitionAssignment(replicas, directories, incarnations=(0,) * len(replicas))

    def _changed_topics(self, wishes: Mapping[UUID, Sequence[PartitionAssignment]]) -> tuple[KeyValue, ...]:
        """The records of those topics whose wish is another one."""
        records = [
            replace(self._image.topics[topic_id], partitions=tuple(wish)) for topic_id, wish in wishes.items()
        ]
        return tuple(encode(record) for record in records if record != self._image.topics[record.topic_id])

    def _check_majority_alive(self, replicas: Sequence[int]) -> None:
        """Otherwise the partition would be moved to where it cannot be used."""
        alive = [node_id for node_id in replicas if self._is_alive(self._image.brokers[node_id])]
        if 2 * len(alive) <= len(replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"of the brokers {list(replicas)} only {alive} are alive",
            )

    def _new_topic_id(self) -> UUID:
        topic_id = random_uuid(self._rng)
        assert topic_id != METADATA_TOPIC_ID and topic_id not in self._image.topics
        return topic_id

    def _moved_to(self, broker: BrokerRecord) -> list[KeyValue]:
        """Topic records in which every replica of this node is wished for in its new directory."""
        records: list[KeyValue] = []
        for topic in self._image.topics_by_name():
            wish = tuple(
                _with_identity(partition, partition.replicas.index(broker.node_id), broker.directory_id, 0)
                if broker.node_id in partition.replicas
                else partition
                for partition in topic.partitions
            )
            if wish != topic.partitions:
                records.append(encode(replace(topic, partitions=wish)))
        return records


def _with_identity(
    partition: PartitionAssignment, position: int, directory_id: UUID, incarnation: int
) -> PartitionAssignment:
    directories, incarnations = list(partition.directories), list(partition.incarnations)
    directories[position] = directory_id
    incarnations[position] = incarnation
    return replace(
        partition,
        directories=tuple(directories),
        incarnations=tuple(incarnations),
        changed_from=partition.founding,
    )
