"""The records of `__cluster_metadata` as they are written: the key names the thing, the value is JSON with a version.

A kind, version or field that this build does not know raises: skipping it would let two builds disagree about the
state.

A topic may have ten thousand partitions: its record is written and read in steps. Most partitions have equal
assignments, because there are few nodes. They share one object, which saves time and memory.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any
from uuid import UUID

from broker.metadata.features import FEATURES
from broker.metadata.ids import cluster_id_problem, topic_name_problem
from broker.metadata.records import (
    BrokerRecord,
    ClusterRecord,
    ConfigsRecord,
    Endpoint,
    Entity,
    FeatureRecord,
    KeyValue,
    PartitionAssignment,
    ProducerIdsRecord,
    QuotaRecord,
    Record,
    ReplicaIdentity,
    Tombstone,
    TopicRecord,
    shared,
)
from protocol.codec import at_once

VALUE_VERSION = 0
#: Partitions of a topic that are written or read in one step.
PARTITIONS_PER_STEP = 100
_MAX_INT32 = 2**31 - 1
#: Of a host or the name of a listener: clients are told both, in strings of at most 32767 bytes.
_MAX_NAME_LENGTH = 255


class MetadataRecordError(ValueError):
    """A metadata record that this build cannot read: an unknown kind or version, or a malformed value."""


def topic_tombstone(topic_id: UUID) -> KeyValue:
    return KeyValue(f"topic/{topic_id}".encode(), None)


def configs_record(kind: str, name: str, configs: Mapping[str, str]) -> KeyValue:
    """The record that leaves exactly these settings, or none."""
    if configs:
        return encode(ConfigsRecord(kind, name, configs))
    return KeyValue(_configs_key(kind, name).encode(), None)


def broker_tombstone(node_id: int) -> KeyValue:
    return KeyValue(f"broker/{node_id}".encode(), None)


def encode(record: Record) -> KeyValue:
    if isinstance(record, TopicRecord):
        return at_once(encode_topic(record))
    match record:
        case ClusterRecord():
            return _pack("cluster", {"cluster_id": record.cluster_id})
        case ProducerIdsRecord():
            return _pack("producer-ids", {"next_producer_id": record.next_producer_id})
        case FeatureRecord():
            return _pack(f"feature/{record.name}", {"level": record.level})
        case ConfigsRecord():
            return _pack(_configs_key(record.kind, record.name), {"configs": _sorted(record.configs)})
        case QuotaRecord() if not record.limits:
            return KeyValue(_quota_key(record.entity).encode(), None)
        case QuotaRecord():
            return _pack(_quota_key(record.entity), {"limits": dict(record.limits)})
        case BrokerRecord():
            return _pack(f"broker/{record.node_id}", _broker_fields(record))


def encode_topic(topic: TopicRecord) -> Generator[None, None, KeyValue]:
    """As `encode`, in steps."""
    fields = yield from _topic_fields(topic)
    return _pack(f"topic/{topic.topic_id}", fields)


def decode(key: bytes, value: bytes | None) -> Record | Tombstone:
    """Read one record. Raises MetadataRecordError."""
    return at_once(decode_in_steps(key, value))


def decode_in_steps(key: bytes, value: bytes | None) -> Generator[None, None, Record | Tombstone]:
    """As `decode`, in steps."""
    kind, identifier = _split_key(key)
    if value is None:
        if kind not in _REMOVABLE:
            raise MetadataRecordError(f"a {kind} record cannot be removed")
        return _tombstone(kind, identifier)
    try:
        fields = json.loads(value)
        version = fields.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise MetadataRecordError(f"{key!r}: not a metadata value: {error}") from error
    if version != VALUE_VERSION:
        raise MetadataRecordError(f"{key!r}: version {version} of this record is not known here")
    record: Record
    try:
        if kind == "topic":
            record = yield from _read_topic(identifier, fields)
        else:
            record = _READERS[kind](identifier, fields)
    except (ValueError, KeyError, AttributeError, TypeError, IndexError, AssertionError) as error:
        raise MetadataRecordError(f"{key!r}: malformed value: {error!r}") from error
    if fields:
        raise MetadataRecordError(f"{key!r}: fields not known here: {', '.join(sorted(fields))}")
    return record


def _tombstone(kind: str, identifier: str) -> Tombstone:
    try:
        if kind == "broker":
            int(identifier)
        elif kind == "topic":
            UUID(identifier)
    except ValueError as error:
        raise MetadataRecordError(f"removal of {kind} {identifier!r}: {error}") from error
    return Tombstone(kind, identifier)


def check_readable(record: Record) -> None:
    """Raises MetadataRecordError for what would be written and could not be read again."""
    decode(*encode(record))


def _pack(key: str, fields: dict[str, Any]) -> KeyValue:
    value = json.dumps({"version": VALUE_VERSION, **fields}, separators=(",", ":"), ensure_ascii=False)
    return KeyValue(key.encode(), value.encode())


def _split_key(key: bytes) -> tuple[str, str]:
    try:
        kind, slash, identifier = key.decode("ascii").partition("/")
    except UnicodeDecodeError as error:
        raise MetadataRecordError(f"{key!r}: not a metadata key") from error
    if kind != "topic" and kind not in _READERS:
        raise MetadataRecordError(f"{key!r}: records of this kind are not known here")
    if (kind in _KEYED) != bool(slash and identifier):
        raise MetadataRecordError(f"{key!r}: malformed key")
    return kind, identifier


def _configs_key(kind: str, name: str) -> str:
    return f"configs/{kind}/{urllib.parse.quote(name, safe='')}"


def config_identity(identifier: str) -> tuple[str, str]:
    """(kind, name) of a ConfigsRecord or of its removal, as `identifier` in the key spells them."""
    kind, _, name = identifier.partition("/")
    return kind, urllib.parse.unquote(name)


def _quota_key(entity: Entity) -> str:
    """As in quota/client-id=app,user: names are quoted, the default has none."""
    parts = (kind if name is None else f"{kind}={urllib.parse.quote(name, safe='')}" for kind, name in entity)
    return f"quota/{','.join(parts)}"


def quota_entity(identifier: str) -> Entity:
    """The entity of a QuotaRecord or of its removal, as `identifier` in the key spells it."""
    parts = (part.partition("=") for part in identifier.split(","))
    return tuple((kind, urllib.parse.unquote(name) if equals else None) for kind, equals, name in parts)


def _broker_fields(broker: BrokerRecord) -> dict[str, Any]:
    return {
        "directory_id": str(broker.directory_id),
        "boot_id": str(broker.boot_id),
        "endpoints": {name: list(broker.endpoints[name]) for name in sorted(broker.endpoints)},
        "peer": list(broker.peer),
        "rack": broker.rack,
        "metadata_incarnation": broker.metadata_incarnation,
    }


def _topic_fields(topic: TopicRecord) -> Generator[None, None, dict[str, Any]]:
    """Directories are written once and named by position: a replica costs about ten bytes, not fifty."""
    positions: dict[UUID, int] = {}
    #: Equal assignments are written alike.
    written: dict[PartitionAssignment, list[list[int]]] = {}
    partitions: list[list[list[int]]] = []
    for partition in topic.partitions:
        rows = written.get(partition)
        if rows is None:
            rows = written[partition] = [
                [replica, positions.setdefault(directory, len(positions)), incarnation]
                for replica, directory, incarnation in partition.identities
            ]
        partitions.append(rows)
        if len(partitions) % PARTITIONS_PER_STEP == 0:
            yield
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


def _read_cluster(identifier: str, fields: dict[str, Any]) -> ClusterRecord:
    cluster_id = _text(fields.pop("cluster_id"))
    if (problem := cluster_id_problem(cluster_id)) is not None:
        raise ValueError(problem)
    return ClusterRecord(cluster_id)


def _read_producer_ids(identifier: str, fields: dict[str, Any]) -> ProducerIdsRecord:
    return ProducerIdsRecord(_number(fields.pop("next_producer_id"), 2**63 - 1))


def _read_feature(identifier: str, fields: dict[str, Any]) -> FeatureRecord:
    feature = FEATURES[identifier]
    if feature.setting is not None:
        raise ValueError(f"{feature.setting} decides about it")
    return FeatureRecord(identifier, _number(fields.pop("level"), feature.highest))


def _read_broker(identifier: str, fields: dict[str, Any]) -> BrokerRecord:
    endpoints = fields.pop("endpoints")
    rack = fields.pop("rack")
    return BrokerRecord(
        node_id=_number(int(identifier), _MAX_INT32),
        directory_id=UUID(fields.pop("directory_id")),
        boot_id=UUID(fields.pop("boot_id")),
        endpoints={_name(name): _endpoint(endpoints[name]) for name in endpoints},
        peer=_endpoint(fields.pop("peer")),
        rack=None if rack is None else _text(rack),
        metadata_incarnation=_number(fields.pop("metadata_incarnation", 0), _MAX_INT32),
    )


def _read_topic(identifier: str, fields: dict[str, Any]) -> Generator[None, None, TopicRecord]:
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
    name = _text(fields.pop("name"))
    if (problem := topic_name_problem(name)) is not None:
        raise ValueError(problem)
    known: dict[tuple[tuple[int, ...], ...], PartitionAssignment] = {}
    partitions: list[PartitionAssignment] = []
    for index, rows in enumerate(fields.pop("partitions")):
        key = tuple(map(tuple, rows))
        if index in founding or index in removing or index in moving_from:
            partition = _partition(
                rows, directories, founding.get(index), removing.get(index, []), moving_from.get(index)
            )
        elif (found := known.get(key)) is not None:
            partition = found
        else:
            partition = known[key] = shared(_partition(rows, directories, None, [], None))
        partitions.append(partition)
        if len(partitions) % PARTITIONS_PER_STEP == 0:
            yield
    return TopicRecord(
        topic_id=UUID(identifier),
        name=name,
        partitions=tuple(partitions),
        configs=_configs(configs),
    )


def _read_quota(identifier: str, fields: dict[str, Any]) -> QuotaRecord:
    limits = {_text(key): _limit(value) for key, value in fields.pop("limits").items()}
    return QuotaRecord(quota_entity(identifier), limits)


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
    return Endpoint(_name(host), _number(port, 65535))


def _name(value: object) -> str:
    if not 0 < len(text := _text(value)) <= _MAX_NAME_LENGTH:
        raise ValueError(f"a name of {len(text)} characters")
    return text


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
    "configs": _read_configs,
    "quota": _read_quota,
    "feature": _read_feature,
}

#: Kinds of which one can be removed.
_REMOVABLE = ("broker", "topic", "configs", "quota")
#: Kinds of which there are many: their keys name one.
_KEYED = (*_REMOVABLE, "feature")
