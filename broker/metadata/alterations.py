"""Changing settings: what is left when single values are set, deleted, or appended to lists (KIP-339).

Codes are those of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from broker.config.resources import Resources
from broker.metadata.image import MetadataImage
from broker.metadata.record_codec import configs_record, encode_topic
from broker.metadata.records import KeyValue
from broker.metadata.settings_size import configs_size, values_size
from broker.metadata.topic_checks import check_name
from protocol.errors import ErrorCode, KafkaError

#: Of what has settings: no group can have a longer name.
MAX_NAME_BYTES = 32767


class AlterOperation(IntEnum):
    """Numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(AlterOperation)


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """What a request wants of the settings of one resource."""

    kind: str
    """As in ConfigsRecord, or "topic"."""
    name: str
    operations: tuple[tuple[str, int, str | None], ...]
    """(setting, AlterOperation, value)."""
    replaces_all: bool = False
    """AlterConfigs: what is not named is deleted."""


@dataclass(frozen=True, slots=True)
class AlterationResult:
    kind: str
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Altered:
    """What a change comes to."""

    records: tuple[KeyValue, ...] = ()
    """None if the settings are so already."""
    added_bytes: int = 0
    """How much more memory they take than before."""


def altered(
    image: MetadataImage, wanted: ConfigAlteration, resources: Resources
) -> Generator[None, None, Altered]:
    """Raises KafkaError."""
    if len(wanted.name.encode()) > MAX_NAME_BYTES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a name has at most {MAX_NAME_BYTES} bytes")
    if wanted.kind != "topic":
        current = image.configs_of(wanted.kind, wanted.name)
        configs = yield from _altered(current, wanted, resources)
        if configs == current:
            return Altered()
        added_bytes = configs_size(wanted.name, configs) - configs_size(wanted.name, current)
        return Altered((configs_record(wanted.kind, wanted.name, configs),), added_bytes)
    if not wanted.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(wanted.name)
    topic = image.topic_named(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.name}' does not exist.")
    configs = yield from _altered(topic.configs, wanted, resources)
    if configs == topic.configs:
        return Altered()
    record = yield from encode_topic(replace(topic, configs=configs))
    return Altered((record,), values_size(configs) - values_size(topic.configs))


def _altered(
    current: Mapping[str, str], wanted: ConfigAlteration, resources: Resources
) -> Generator[None, None, dict[str, str]]:
    """The settings that result, all together valid. Raises KafkaError."""
    yield from _check_operations(wanted)
    result = {} if wanted.replaces_all else dict(current)
    for name, operation, value in wanted.operations:
        yield
        if operation == AlterOperation.DELETE:
            result.pop(name, None)
            continue
        assert value is not None, "checked"
        result[name] = value
        if operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            if not resources.is_list(wanted.kind, name):
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Can't {AlterOperation(operation).name} to key {name} because its type is not LIST.",
                )
            known = current[name] if name in current else resources.default(wanted.kind, name)
            result[name] = _combined(known, operation, value)
    resources.validate(wanted.kind, result)
    return result


def _check_operations(wanted: ConfigAlteration) -> Generator[None, None, None]:
    names = [name for name, _, _ in wanted.operations]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for name, operation, value in wanted.operations:
        yield
        if operation not in _OPERATIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation} for {name}")
        if value is None and operation != AlterOperation.DELETE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")


def _combined(known: str, operation: int, value: str) -> str:
    """A list with these parts appended, each once, or taken away. Parts that are there, or not, change nothing."""
    parts = dict.fromkeys(part.strip() for part in known.split(",") if part.strip())
    named = [part.strip() for part in value.split(",") if part.strip()]
    for part in named:
        if operation == AlterOperation.APPEND:
            parts.setdefault(part)
        else:
            parts.pop(part, None)
    return ",".join(parts)
