"""The state of the cluster as one node knows it: a pure replay of `__cluster_metadata`.

A broker replays committed records; the metadata leader replays its own at append (replication.md section 9),
and after losing leadership starts again from an empty image and the committed log.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from broker.metadata.features import FEATURES
from broker.metadata.record_codec import config_identity, decode_in_steps, quota_entity
from broker.metadata.records import (
    BrokerRecord,
    ClusterRecord,
    ConfigsRecord,
    Entity,
    FeatureRecord,
    ProducerIdsRecord,
    QuotaRecord,
    Tombstone,
    TopicRecord,
)
from broker.metadata.settings_size import configs_size, quota_size, values_size
from protocol.codec import at_once


@dataclass(frozen=True, slots=True)
class ClusterNamed:
    cluster_id: str


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    new: BrokerRecord
    old: BrokerRecord | None
    """None: the node id was not registered. Another directory id: the old volume is lost."""


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    old: BrokerRecord


@dataclass(frozen=True, slots=True)
class TopicCreated:
    new: TopicRecord


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """Same id and name; partitions were added, or the target assignment or the configs changed."""

    old: TopicRecord
    new: TopicRecord


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    old: TopicRecord


@dataclass(frozen=True, slots=True)
class ConfigsChanged:
    """Of something that is no topic; see ConfigsRecord."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class QuotaChanged:
    entity: Entity
    limits: Mapping[str, float]
    """All of them now; none: the entity has no quota any more."""


@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated:
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class FeatureChanged:
    name: str
    level: int


Change = (
    ClusterNamed
    | BrokerRegistered
    | BrokerRemoved
    | TopicCreated
    | TopicChanged
    | TopicDeleted
    | ConfigsChanged
    | QuotaChanged
    | ProducerIdsAllocated
    | FeatureChanged
)


class MetadataImage:
    """`replay` is the only mutator, also in steps; everything else reads."""

    def __init__(self) -> None:
        self._cluster_id: str | None = None
        self._next_producer_id = 0
        self._brokers: dict[int, BrokerRecord] = {}
        self._topics: dict[UUID, TopicRecord] = {}
        #: (kind, name) -> what clients have set for it; see ConfigsRecord.
        self._configs: dict[tuple[str, str], Mapping[str, str]] = {}
        self._quotas: dict[Entity, Mapping[str, float]] = {}
        #: Finalized levels by name of the feature, where they are recorded.
        self._feature_levels: dict[str, int] = {}
        #: The same topics by name, and their names in order.
        self._by_name: dict[str, TopicRecord] = {}
        self._names: list[str] = []
        #: Names with "." written as "_": those under which two topics would share metrics. Same topics again.
        self._folded_names: dict[str, str] = {}
        #: Sum of the partitions of `_topics`.
        self._partition_count = 0
        #: Size of all `_configs`, `_quotas` and settings of `_topics` (broker.metadata.settings_size).
        self._settings_bytes = 0
        #: Topic -> of each partition, the offset behind the record that brought its present assignment.
        self._assigned_at: dict[UUID, tuple[int, ...]] = {}
        self._end_offset = 0
        self._epoch = 0
        #: Records that contradicted what came before them, and were passed over.
        self.contradictions = 0

    def copy(self) -> MetadataImage:
        """An image that goes on by itself."""
        copied = MetadataImage()
        for name, value in vars(self).items():
            setattr(copied, name, value.copy() if isinstance(value, dict | list) else value)
        return copied

    @property
    def cluster_id(self) -> str | None:
        return self._cluster_id

    @property
    def next_producer_id(self) -> int:
        """Ids from here on were never handed out."""
        return self._next_producer_id

    @property
    def brokers(self) -> Mapping[int, BrokerRecord]:
        """All registered brokers, alive or not, by node id."""
        return MappingProxyType(self._brokers)

    @property
    def topics(self) -> Mapping[UUID, TopicRecord]:
        return MappingProxyType(self._topics)

    def configs_of(self, kind: str, name: str) -> Mapping[str, str]:
        """What clients have set for a broker, for all of them (""), or for a group. For topics see their records."""
        return self._configs.get((kind, name), {})

    def configured(self, kind: str) -> list[str]:
        """Names of those of a kind for which anything is set, sorted."""
        return sorted(name for of_kind, name in self._configs if of_kind == kind)

    @property
    def quotas(self) -> Mapping[Entity, Mapping[str, float]]:
        """Every entity that has a limit."""
        return MappingProxyType(self._quotas)

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature of this build about which no setting decides; 0: none is finalized."""
        return self._feature_levels.get(name, FEATURES[name].default)

    def assigned_at(self, topic_id: UUID, partition: int) -> int:
        """`end_offset` as it was when the partition's assignment became what it is."""
        return self._assigned_at[topic_id][partition]

    @property
    def partition_count(self) -> int:
        return self._partition_count

    @property
    def settings_bytes(self) -> int:
        """What everything that clients have set takes in memory."""
        return self._settings_bytes

    @property
    def end_offset(self) -> int:
        """Everything below is applied."""
        return self._end_offset

    def pass_over(self, end_offset: int) -> None:
        """There are no records from `self.end_offset` to `end_offset`."""
        self._end_offset = max(end_offset, self._end_offset)

    @property
    def epoch(self) -> int:
        """The leader epoch of the last applied record."""
        return self._epoch

    def topic_named(self, name: str) -> TopicRecord | None:
        return self._by_name.get(name)

    def colliding_topic(self, name: str) -> str | None:
        """A topic of another name that equals `name` once "." and "_" are the same (KAFKA-2337)."""
        other = self._folded_names.get(fold_name(name))
        return None if other == name else other

    def topic_names(self) -> list[str]:
        """The names of all topics, sorted: a copy."""
        return self._names.copy()

    def topics_by_name(self) -> Iterable[TopicRecord]:
        """In the order of their names. The image must not change meanwhile."""
        return (self._by_name[name] for name in self._names)

    def replay(self, key: bytes, value: bytes | None, offset: int, epoch: int) -> Change | None:
        """Apply one record. Returns None where it says what was known already.

        Offsets rise, with holes where compaction removed records. Raises MetadataRecordError for a record
        that this build cannot read; the image is then unchanged. A record that contradicts the ones before it is passed
        over, by every node alike: nobody should have written it, but now it is committed, and a node that could not go
        on from there could not start again either.
        """
        return at_once(self.replay_in_steps(key, value, offset, epoch))

    def replay_in_steps(
        self, key: bytes, value: bytes | None, offset: int, epoch: int
    ) -> Generator[None, None, Change | None]:
        """As `replay`, in steps. The image changes in the last one."""
        record = yield from decode_in_steps(key, value)
        assert offset >= self._end_offset, f"metadata offset {offset} after {self._end_offset}"
        assert epoch >= self._epoch, f"metadata epoch {epoch} after {self._epoch}"
        self._end_offset = offset + 1
        self._epoch = epoch
        match record:
            case ClusterRecord():
                return self._replay_cluster(record)
            case BrokerRecord():
                return self._replay_broker(record)
            case TopicRecord():
                return self._replay_topic(record)
            case ConfigsRecord():
                return self._replay_configs(record)
            case QuotaRecord():
                return self._replay_quota(record)
            case ProducerIdsRecord():
                return self._replay_producer_ids(record)
            case FeatureRecord():
                return self._replay_feature(record)
            case Tombstone():
                return self._replay_tombstone(record)

    def _replay_cluster(self, record: ClusterRecord) -> Change | None:
        if self._cluster_id == record.cluster_id:
            return None
        if self._cluster_id is not None:
            return self._pass_over()  # a cluster is named once
        self._cluster_id = record.cluster_id
        return ClusterNamed(record.cluster_id)

    def _replay_broker(self, record: BrokerRecord) -> Change | None:
        old = self._brokers.get(record.node_id)
        if old == record:
            return None
        self._brokers[record.node_id] = record
        return BrokerRegistered(record, old)

    def _replay_topic(self, record: TopicRecord) -> Change | None:
        old = self._topics.get(record.topic_id)
        if old == record:
            return None
        namesake = self._by_name.get(record.name)
        if namesake is not None and namesake.topic_id != record.topic_id:
            return self._pass_over()  # two topics of one name
        if old is not None and (old.name != record.name or len(old.partitions) > len(record.partitions)):
            return self._pass_over()  # a topic is never renamed, and loses no partition
        self._topics[record.topic_id] = record
        self._note_assignments(record, old)
        self._by_name[record.name] = record
        if old is None:
            insort(self._names, record.name)
            self._folded_names[fold_name(record.name)] = record.name
        self._partition_count += len(record.partitions) - (len(old.partitions) if old else 0)
        self._settings_bytes += values_size(record.configs) - (values_size(old.configs) if old else 0)
        return TopicCreated(record) if old is None else TopicChanged(old, record)

    def _pass_over(self) -> Change | None:
        self.contradictions += 1
        return None

    def _note_assignments(self, record: TopicRecord, old: TopicRecord | None) -> None:
        ends = [self._end_offset] * len(record.partitions)
        if old is not None:
            before = self._assigned_at[record.topic_id]
            for index, (assignment, known) in enumerate(zip(record.partitions, old.partitions, strict=False)):
                if assignment is known or assignment == known:
                    ends[index] = before[index]
        self._assigned_at[record.topic_id] = tuple(ends)

    def _replay_configs(self, record: ConfigsRecord) -> Change | None:
        old = self.configs_of(record.kind, record.name)
        if old == record.configs:
            return None
        self._settings_bytes += configs_size(record.name, record.configs) - configs_size(record.name, old)
        self._configs[record.kind, record.name] = record.configs
        return ConfigsChanged(record.kind, record.name)

    def _replay_quota(self, record: QuotaRecord) -> Change | None:
        old = self._quotas.get(record.entity, {})
        if old == record.limits:
            return None
        self._settings_bytes += quota_size(record.entity, record.limits) - quota_size(record.entity, old)
        self._quotas[record.entity] = record.limits
        return QuotaChanged(record.entity, record.limits)

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> Change | None:
        if record.next_producer_id < self._next_producer_id:
            return self._pass_over()  # producer ids are never handed out again
        self._next_producer_id = record.next_producer_id
        return ProducerIdsAllocated(record.next_producer_id)

    def _replay_feature(self, record: FeatureRecord) -> Change | None:
        is_known = self.feature_level(record.name) == record.level
        self._feature_levels[record.name] = record.level
        return None if is_known else FeatureChanged(record.name, record.level)

    def _replay_tombstone(self, tombstone: Tombstone) -> Change | None:
        if tombstone.kind == "broker":
            broker = self._brokers.pop(int(tombstone.identifier), None)
            return None if broker is None else BrokerRemoved(broker)
        if tombstone.kind == "configs":
            identity = config_identity(tombstone.identifier)
            configs = self._configs.pop(identity, {})
            self._settings_bytes -= configs_size(identity[1], configs)
            return ConfigsChanged(*identity) if configs else None
        if tombstone.kind == "quota":
            entity = quota_entity(tombstone.identifier)
            limits = self._quotas.pop(entity, {})
            self._settings_bytes -= quota_size(entity, limits)
            return QuotaChanged(entity, {}) if limits else None
        topic = self._topics.pop(UUID(tombstone.identifier), None)
        if topic is None:
            return None  # compaction kept the tombstone and removed what it buried
        del self._assigned_at[topic.topic_id]
        del self._by_name[topic.name]
        del self._names[bisect_left(self._names, topic.name)]
        del self._folded_names[fold_name(topic.name)]
        self._partition_count -= len(topic.partitions)
        self._settings_bytes -= values_size(topic.configs)
        return TopicDeleted(topic)


def fold_name(name: str) -> str:
    """Topic names that differ only in "." and "_" collide in metric names, so Kafka refuses the second."""
    return name.replace(".", "_")
