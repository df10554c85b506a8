"""Changing settings: what is left when single values are set, deleted, or appended to lists (KIP-339).

Codes are those of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from broker.config.resources import Resources
from protocol.errors import ErrorCode, KafkaError


class AlterOperation(IntEnum):
    """Numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


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


def altered(current: Mapping[str, str], wanted: ConfigAlteration, resources: Resources) -> dict[str, str]:
    """The settings that result, all together valid. Raises KafkaError."""
    _check_operations(wanted)
    result = {} if wanted.replaces_all else dict(current)
    for name, operation, value in wanted.operations:
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


def _check_operations(wanted: ConfigAlteration) -> None:
    names = [name for name, _, _ in wanted.operations]
    if len(set(names)) != len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for name, operation, value in wanted.operations:
        if operation not in AlterOperation.__members__.values():
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
