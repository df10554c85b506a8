"""The records of `__cluster_metadata`: what a cluster knows about itself.

    key                    value
    cluster                ClusterRecord
    broker/<node id>       BrokerRecord
    topic/<topic id>       TopicRecord
    configs/<kind>/<name>  ConfigsRecord
    quota/<entity>         QuotaRecord
    producer-ids           ProducerIdsRecord

The topic is compacted, so the latest value of each key is the whole state, and a record never depends on an
earlier one. A key with a null value (tombstone) removes the thing. Values are JSON with a version; a kind,
version or field that this build does not know raises: skipping it would let two builds disagree about the
state.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

VALUE_VERSION = 0
#: What a ConfigsRecord may be about.
CONFIG_KINDS = ("broker", "group")
_MAX_INT32 = 2**31 - 1


class MetadataRecordError(ValueError):
    """A metadata record that this build cannot read: an unknown kind or version, or a malformed value."""


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
    """Of its replica of `__cluster_metadata`: the wish for that group has no topic record to stand in."""


class ReplicaIdentity(NamedTuple):
    """One replica for ever: a wiped node or a discarded log is another one (replication.md section 3)."""

    node_id: int
    directory_id: UUID
    incarnation: int


@dataclass(frozen=True, slots=True)
class PartitionAssignment:
    """The wish for one partition's replicas (replication.md section 4). The lineage holds the fact.

    Position i of the three tuples names one replica identity; the first is the preferred leader.
    """

    replicas: tuple[int, ...]
    directories: tuple[UUID, ...]
    incarnations: tuple[int, ...]
    changed_from: tuple[tuple[int, UUID], ...] | None = None
    """The founding replicas (node id, directory), once the wish is another one; None while it is still the first."""
    removing: tuple[ReplicaIdentity, ...] = ()
    """Replicas that are wished away, until the partition's leader has said that their removal is committed. Until
    then they may be members, and are needed."""
    moving_from: tuple[int, ...] | None = None
    """The nodes before the reassignment that is under way, to go back to where it is cancelled; None: none is."""

    def __post_init__(self) -> None:
        assert len(self.replicas) == len(self.directories) == len(self.incarnations) > 0
        assert len(set(self.replicas)) == len(self.replicas), "a node holds one replica of a partition"
        assert not {replica.node_id for replica in self.removing} & set(self.replicas), (
            "a replica stays or goes"
        )

    @property
    def founding(self) -> tuple[tuple[int, UUID], ...]:
        """The replicas that row 0 names. They never change: a replica that is opened for the first time after the
        wish was changed must begin with the same row 0 as the others did, or with none."""
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
    def is_settled(self) -> bool:
        """Nothing is left to be reported: the fact was the wish, and the wish has not changed since."""
        return not self.removing and self.moving_from is None

    @property
    def identities(self) -> list[ReplicaIdentity]:
        """The wish, replica by replica."""
        names = zip(self.replicas, self.directories, self.incarnations, strict=True)
        return [ReplicaIdentity(*name) for name in names]

    @property
    def holders(self) -> tuple[int, ...]:
        """The nodes that should hold a replica, and those that still do."""
        return self.replicas + tuple(replica.node_id for replica in self.removing)


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

    @property
    def identifier(self) -> str:
        return f"{self.kind}/{urllib.parse.quote(self.name, safe='')}"


Entity = tuple[tuple[str, str | None], ...]
"""For whom a quota is: (type, name), sorted by type, each type once; the name None is the default of that type."""


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    entity: Entity
    limits: Mapping[str, float]
    """Under Kafka's names. Without any it is written as a removal."""

    @property
    def identifier(self) -> str:
        """As in client-id=app,user: names are quoted, the default has none."""
        return ",".join(
            kind if name is None else f"{kind}={urllib.parse.quote(name, safe='')}"
            for kind, name in self.entity
        )


@dataclass(frozen=True, slots=True)
class ProducerIdsRecord:
    """All producer ids below `next_producer_id` were handed out in blocks, or may have been."""

    next_producer_id: int


Record = ClusterRecord | BrokerRecord | TopicRecord | ConfigsRecord | QuotaRecord | ProducerIdsRecord


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The removal of one keyed thing; `kind` is one of _KEYED, `identifier` as the key spells it."""

    kind: str
    identifier: str


class KeyValue(NamedTuple):
    """One record as it is appended to the topic."""

    key: bytes
    value: bytes | None


def topic_tombstone(topic_id: UUID) -> KeyValue:
    return KeyValue(f"topic/{topic_id}".encode(), None)


def configs_record(kind: str, name: str, configs: Mapping[str, str]) -> KeyValue:
    """The record that leaves exactly these settings, or none."""
    if configs:
        return encode(ConfigsRecord(kind, name, configs))
    return KeyValue(f"configs/{kind}/{urllib.parse.quote(name, safe='')}".encode(), None)


def broker_tombstone(node_id: int) -> KeyValue:
    return KeyValue(f"broker/{node_id}".encode(), None)


def encode(record: Record) -> KeyValue:
    match record:
        case ClusterRecord():
            return _pack("cluster", {"cluster_id": record.cluster_id})
        case ProducerIdsRecord():
            return _pack("producer-ids", {"next_producer_id": record.next_producer_id})
        case ConfigsRecord():
            return _pack(f"configs/{record.identifier}", {"configs": _sorted(record.configs)})
        case QuotaRecord() if not record.limits:
            return KeyValue(f"quota/{record.identifier}".encode(), None)
        case QuotaRecord():
            return _pack(f"quota/{record.identifier}", {"limits": dict(record.limits)})
        case BrokerRecord():
            return _pack(f"broker/{record.node_id}", _broker_fields(record))
        case TopicRecord():
            return _pack(f"topic/{record.topic_id}", _topic_fields(record))


def decode(key: bytes, value: bytes | None) -> Record | Tombstone:
    """Read one record. Raises MetadataRecordError."""
    kind, identifier = _split_key(key)
    if value is None:
        if kind not in _KEYED:
            raise MetadataRecordError(f"a {kind} record cannot be removed")
        return Tombstone(kind, identifier)
    try:
        fields = json.loads(value)
        version = fields.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise MetadataRecordError(f"{key!r}: not a metadata value: {error}") from error
    if version != VALUE_VERSION:
        raise MetadataRecordError(f"{key!r}: version {version} of this record is not known here")
    try:
        record = _READERS[kind](identifier, fields)
    except (ValueError, KeyError, AttributeError, TypeError, IndexError, AssertionError) as error:
        raise MetadataRecordError(f"{key!r}: malformed value: {error!r}") from error
    if fields:
        raise MetadataRecordError(f"{key!r}: fields not known here: {', '.join(sorted(fields))}")
    return record


def _pack(key: str, fields: dict[str, Any]) -> KeyValue:
    value = json.dumps({"version": VALUE_VERSION, **fields}, separators=(",", ":"), ensure_ascii=False)
    return KeyValue(key.encode(), value.encode())


def _split_key(key: bytes) -> tuple[str, str]:
    try:
        kind, slash, identifier = key.decode("ascii").partition("/")
    except UnicodeDecodeError as error:
        raise MetadataRecordError(f"{key!r}: not a metadata key") from error
    if kind not in _READERS:
        raise MetadataRecordError(f"{key!r}: records of this kind are not known here")
    if (kind in _KEYED) != bool(slash and identifier):
        raise MetadataRecordError(f"{key!r}: malformed key")
    return kind, identifier


def _broker_fields(broker: BrokerRecord) -> dict[str, Any]:
    return {
        "directory_id": str(broker.directory_id),
        "boot_id": str(broker.boot_id),
        "endpoints": {name: list(broker.endpoints[name]) for name in sorted(broker.endpoints)},
        "peer": list(broker.peer),
        "rack": broker.rack,
        "metadata_incarnation": broker.metadata_incarnation,
    }


def _topic_fields(topic: TopicRecord) -> dict[str, Any]:
    """Directories are written once and named by position: a replica costs about ten bytes, not fifty."""
    positions: dict[UUID, int] = {}
    partitions = [
        [
            [replica, positions.setdefault(directory, len(positions)), incarnation]
            for replica, directory, incarnation in partition.identities
        ]
        for partition in topic.partitions
    ]
    founding = {
        str(index): [
            [node_id, positions.setdefault(directory, len(positions))]
            for node_id, directory in partition.changed_from
        ]
        for index, partition in enumerate(topic.partitions)
        if partition.changed_from is not None
    }
    removing = {
        str(index): [
            [node_id, positions.setdefault(directory, len(positions)), incarnation]
            for node_id, directory, incarnation in partition.removing
        ]
        for index, partition in enumerate(topic.partitions)
        if partition.removing
    }
    moving_from = {
        str(index): list(partition.moving_from)
        for index, partition in enumerate(topic.partitions)
        if partition.moving_from is not None
    }
    return {
        "name": topic.name,
        "founding": founding,
        **({"removing": removing} if removing else {}),
        **({"moving_from": moving_from} if moving_from else {}),
        "directories": [str(directory) for directory in positions],
        "partitions": partitions,
        "configs": _sorted(topic.configs),
    }


def _sorted(configs: Mapping[str, str]) -> dict[str, str]:
    return {name: configs[name] for name in sorted(configs)}


def config_identity(identifier: str) -> tuple[str, str]:
    """(kind, name) of a ConfigsRecord or of its removal, as `identifier` in the key spells them."""
    kind, _, name = identifier.partition("/")
    return kind, urllib.parse.unquote(name)


def _read_cluster(identifier: str, fields: dict[str, Any]) -> ClusterRecord:
    return ClusterRecord(_text(fields.pop("cluster_id")))


def _read_producer_ids(identifier: str, fields: dict[str, Any]) -> ProducerIdsRecord:
    return ProducerIdsRecord(_number(fields.pop("next_producer_id"), 2**63 - 1))


def _read_broker(identifier: str, fields: dict[str, Any]) -> BrokerRecord:
    endpoints = fields.pop("endpoints")
    rack = fields.pop("rack")
    return BrokerRecord(
        node_id=_number(int(identifier), _MAX_INT32),
        directory_id=UUID(fields.pop("directory_id")),
        boot_id=UUID(fields.pop("boot_id")),
        endpoints={_text(name): _endpoint(endpoints[name]) for name in endpoints},
        peer=_endpoint(fields.pop("peer")),
        rack=None if rack is None else _text(rack),
        metadata_incarnation=_number(fields.pop("metadata_incarnation", 0), _MAX_INT32),
    )


def _read_topic(identifier: str, fields: dict[str, Any]) -> TopicRecord:
    directories = [UUID(text) for text in fields.pop("directories")]
    configs = fields.pop("configs")
    founding = {
        int(index): tuple(
            (_number(node_id, _MAX_INT32), directories[_number(position, len(directories) - 1)])
            for node_id, position in replicas
        )
        for index, replicas in fields.pop("founding").items()
    }
    removing = {int(index): rows for index, rows in fields.pop("removing", {}).items()}
    moving_from = {
        int(index): tuple(_number(node_id, _MAX_INT32) for node_id in replicas)
        for index, replicas in fields.pop("moving_from", {}).items()
    }
    return TopicRecord(
        topic_id=UUID(identifier),
        name=_text(fields.pop("name")),
        partitions=tuple(
            _partition(
                rows, directories, founding.get(index), removing.get(index, []), moving_from.get(index)
            )
            for index, rows in enumerate(fields.pop("partitions"))
        ),
        configs=_configs(configs),
    )


def _read_quota(identifier: str, fields: dict[str, Any]) -> QuotaRecord:
    limits = {_text(key): _limit(value) for key, value in fields.pop("limits").items()}
    return QuotaRecord(quota_entity(identifier), limits)


def quota_entity(identifier: str) -> Entity:
    """The entity of a QuotaRecord or of its removal, as `identifier` in the key spells it."""
    parts = (part.partition("=") for part in identifier.split(","))
    return tuple((kind, urllib.parse.unquote(name) if equals else None) for kind, equals, name in parts)


def _limit(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ValueError(f"not a limit: {value!r}")
    return float(value)


def _read_configs(identifier: str, fields: dict[str, Any]) -> ConfigsRecord:
    kind, name = config_identity(identifier)
    return ConfigsRecord(kind, name, _configs(fields.pop("configs")))


def _configs(configs: Mapping[str, Any]) -> dict[str, str]:
    return {_text(name): _text(configs[name]) for name in configs}


def _partition(
    rows: list[list[int]],
    directories: Sequence[UUID],
    changed_from: tuple[tuple[int, UUID], ...] | None,
    removing: list[list[int]],
    moving_from: tuple[int, ...] | None,
) -> PartitionAssignment:
    return PartitionAssignment.of(
        [_replica(row, directories) for row in rows],
        changed_from,
        tuple(_replica(row, directories) for row in removing),
        moving_from,
    )


def _replica(row: list[int], directories: Sequence[UUID]) -> ReplicaIdentity:
    node_id, position, incarnation = row
    return ReplicaIdentity(
        _number(node_id, _MAX_INT32),
        directories[_number(position, len(directories) - 1)],
        _number(incarnation, _MAX_INT32),
    )


def _endpoint(pair: list[Any]) -> Endpoint:
    host, port = pair
    return Endpoint(_text(host), _number(port, 65535))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"not a string: {value!r}")
    return value


def _number(value: object, largest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise ValueError(f"not a number between 0 and {largest}: {value!r}")
    return value


_READERS: dict[str, Callable[[str, dict[str, Any]], Record]] = {
    "cluster": _read_cluster,
    "producer-ids": _read_producer_ids,
    "broker": _read_broker,
    "topic": _read_topic,
    "configs": _read_configs,
    "quota": _read_quota,
}

#: Kinds of which there are many: their keys name one, and one can be removed.
_KEYED = ("broker", "topic", "configs", "quota")
