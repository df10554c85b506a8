"""The records of `__cluster_metadata`: what a cluster knows about itself.

    key                    value
    cluster                ClusterRecord
    broker/<node id>       BrokerRecord
    topic/<topic id>       TopicRecord
    configs/<kind>/<name>  ConfigsRecord
    quota/<entity>         QuotaRecord
    producer-ids           ProducerIdsRecord
    feature/<name>         FeatureRecord

The topic is compacted, so the latest value of each key is the whole state, and a record never depends on an
earlier one. A key with a null value (tombstone) removes the thing. How they are written stands in
`broker.metadata.record_codec`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

#: What a ConfigsRecord may be about.
CONFIG_KINDS = ("broker", "group")


class Endpoint(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    cluster_id: str


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """One registration. Says who a broker is and where it listens, not whether it is alive."""

    node_id: int
    directory_id: UUID
    boot_id: UUID
    """Drawn at every start of the process."""
    endpoints: Mapping[str, Endpoint]
    """What clients are told, by listener name."""
    peer: Endpoint
    """Where other nodes reach it: the controller listener."""
    rack: str | None = None
    metadata_incarnation: int = 0
    """Of its replica of `__cluster_metadata`, whose target assignment has no topic record to stand in."""


class ReplicaIdentity(NamedTuple):
    """One replica for ever: a wiped node or a discarded log is another one (replication.md section 3)."""

    node_id: int
    directory_id: UUID
    incarnation: int


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """The target assignment of one partition (replication.md section 4). Its current members are in the lineage.

    Position i of the three tuples names one replica identity; the first is the preferred leader.
    """

    replicas: tuple[int, ...]
    directories: tuple[UUID, ...]
    incarnations: tuple[int, ...]
    changed_from: tuple[tuple[int, UUID], ...] | None = None
    """The founding replicas (node id, directory), once the target has changed; None while it is still the first."""
    removing: tuple[ReplicaIdentity, ...] = ()
    """Replicas that are being removed, until the partition's leader has reported that their removal is committed.
    Until then they may be members, and are needed."""
    moving_from: tuple[int, ...] | None = None
    """The nodes before the reassignment that is under way, to go back to where it is cancelled; None: none is."""

    def __hash__(self) -> int:
        # Assignments are keys by the thousand, and UUIDs are hashed in Python.
        return hash((self.replicas, self.incarnations))

    def __post_init__(self) -> None:
        assert len(self.replicas) == len(self.directories) == len(self.incarnations) > 0
        assert len(set(self.replicas)) == len(self.replicas), "a node holds one replica of a partition"
        assert not {replica.node_id for replica in self.removing} & set(self.replicas), (
            "a replica stays or goes"
        )

    @property
    def founding(self) -> tuple[tuple[int, UUID], ...]:
        """The replicas that row 0 names. They never change: a replica that is opened for the first time after the
        target was changed must begin with the same row 0 as the others did, or with none."""
        return self.changed_from or tuple(zip(self.replicas, self.directories, strict=True))

    @classmethod
    def of(
        cls,
        replicas: Sequence[ReplicaIdentity],
        changed_from: tuple[tuple[int, UUID], ...] | None,
        removing: tuple[ReplicaIdentity, ...],
        moving_from: tuple[int, ...] | None = None,
    ) -> PartitionAssignment:
        return cls(
            replicas=tuple(replica.node_id for replica in replicas),
            directories=tuple(replica.directory_id for replica in replicas),
            incarnations=tuple(replica.incarnation for replica in replicas),
            changed_from=changed_from,
            removing=removing,
            moving_from=moving_from,
        )

    @property
    def is_reassigning(self) -> bool:
        """The partition's leader has yet to report that its members are the target."""
        return bool(self.removing) or self.moving_from is not None

    @property
    def identities(self) -> list[ReplicaIdentity]:
        """The target, replica by replica."""
        names = zip(self.replicas, self.directories, self.incarnations, strict=True)
        return [ReplicaIdentity(*name) for name in names]

    @property
    def holders(self) -> tuple[int, ...]:
        """The nodes that should hold a replica, and those that still do."""
        return self.replicas + tuple(replica.node_id for replica in self.removing)


_shared: dict[PartitionAssignment, PartitionAssignment] = {}
_MAX_SHARED = 10_000


def shared(assignment: PartitionAssignment) -> PartitionAssignment:
    """An equal assignment, mostly one that is there already: objects that are the same are compared at once."""
    if len(_shared) >= _MAX_SHARED:
        _shared.clear()
    return _shared.setdefault(assignment, assignment)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic with all its partitions; partition p is `partitions[p]`. Name and id never change."""

    topic_id: UUID
    name: str
    partitions: tuple[PartitionAssignment, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    """Overrides only, under Kafka's names."""


@dataclass(frozen=True, slots=True)
class ConfigsRecord:
    """What clients have set for something that has no record of its own to keep it in. Topics have theirs."""

    kind: str
    """"broker": by node id, or "" for all of them; "group": by group id."""
    name: str
    configs: Mapping[str, str]
    """Under Kafka's names. Never empty: what has nothing set has no record."""

    def __post_init__(self) -> None:
        assert self.kind in CONFIG_KINDS and self.configs


Entity = tuple[tuple[str, str | None], ...]
"""For whom a quota is: (type, name), sorted by type, each type once; the name None is the default of that type."""


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    entity: Entity
    limits: Mapping[str, float]
    """Under Kafka's names. Without any it is written as a removal."""


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """All producer ids below `next_producer_id` were handed out in blocks, or may have been."""

    next_producer_id: int


@dataclass(frozen=True, slots=True)
class FeatureRecord:
    """The finalized level of a feature (broker.metadata.features). A feature without a record has its default."""

    name: str
    level: int


Record = (
    ClusterRecord
    | BrokerRecord
    | TopicRecord
    | ConfigsRecord
    | QuotaRecord
    | ProducerIdsRecord
    | FeatureRecord
)


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The removal of one keyed thing; `kind` is the key's first part, `identifier` as the key spells it."""

    kind: str
    identifier: str


class KeyValue(NamedTuple):
    """One record as it is appended to the topic."""

    key: bytes
    value: bytes | None
