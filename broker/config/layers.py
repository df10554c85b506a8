"""The layers of a node's settings (KIP-226): set by clients for this node, set by clients for all nodes, set at the
start, and defaults.

What clients set is in the cluster's metadata, and takes effect on a node when the node replays it. Only settings that
are declared with `dynamic` can be set by clients. A node ignores a value that it cannot use, because a newer version
may have written it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

from broker.config.kafka_keys import DYNAMIC_KEYS_WITHOUT_USE
from broker.config.node_config import NodeConfig
from broker.config.sources import NODE_KEYS
from broker.config.values import ConfigError, ConfigType, Key, format_value
from protocol.errors import ErrorCode, KafkaError


class ConfigSource(IntEnum):
    """The source of a value, by Kafka's numbers (`config_source` of DescribeConfigs and CreateTopics)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    """A value of a setting in one layer, under the name by which it was set."""

    name: str
    value: str
    source: ConfigSource


class Described(NamedTuple):
    """One setting as CreateTopics (v5 and later) and DescribeConfigs show it. No setting is sensitive."""

    name: str
    value: str
    source: ConfigSource
    is_read_only: bool
    type: ConfigType
    doc: str
    synonyms: Sequence[Synonym]
    """The highest layer first. That is the effective value."""

    @classmethod
    def of(cls, key: Key, values: Sequence[Synonym], *, is_read_only: bool) -> Described:
        effective = values[0]
        return cls(key.name, effective.value, effective.source, is_read_only, key.parse.type, key.doc, values)


#: Name -> attribute of NodeConfig, for the settings that clients can change while a node runs.
_DYNAMIC_ATTRIBUTES = {key.name: attribute for attribute, key in NODE_KEYS.items() if key.is_dynamic}


@dataclass(frozen=True)
class NodeSettings:
    """All layers of one node. Clients have set `own` for this node and `cluster` for all nodes."""

    static: NodeConfig
    cluster: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def config(self) -> NodeConfig:
        """The effective settings."""
        values: dict[str, Any] = {}
        for name, text in {**self.cluster, **self.own}.items():
            attribute = _DYNAMIC_ATTRIBUTES.get(name)
            if attribute is None:
                continue
            try:
                values[attribute] = NODE_KEYS[attribute].parse(text.strip())
            except ValueError:
                continue  # A newer version may accept this value.
        return dataclasses.replace(self.static, **values)

    def values_of(self, attribute: str) -> list[Synonym]:
        """The values of one setting in all layers, the highest first. The last one is the default."""
        key = NODE_KEYS[attribute]
        values = []
        for layer, source in (
            (self.own, ConfigSource.DYNAMIC_BROKER),
            (self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ):
            if key.is_dynamic and key.name in layer:
                values.append(Synonym(key.name, layer[key.name], source))
        if not {key.name, *(scaled for scaled, _ in key.scaled)}.isdisjoint(self.static.given):
            values.append(
                Synonym(key.name, format_value(getattr(self.static, attribute)), ConfigSource.STATIC_BROKER)
            )
        values.append(Synonym(key.name, key.default, ConfigSource.DEFAULT))
        return values

    def describe(self) -> list[Described]:
        """Every setting of this node, sorted by name. A default that depends on other settings is shown as its
        result."""
        rows = []
        for attribute, key in NODE_KEYS.items():
            values = self.values_of(attribute)
            if values[0].source is ConfigSource.DEFAULT:
                values[0] = values[0]._replace(value=format_value(getattr(self.static, attribute)))
            rows.append(Described.of(key, values, is_read_only=not key.is_dynamic))
        rows += _describe_unused(self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER, hidden_by=self.own)
        rows += _describe_unused(self.own, ConfigSource.DYNAMIC_BROKER)
        return sorted(rows)

    def describe_cluster(self) -> list[Described]:
        """Only the settings that clients have set for all nodes."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        rows = [
            Described.of(
                NODE_KEYS[_DYNAMIC_ATTRIBUTES[name]], [Synonym(name, value, source)], is_read_only=False
            )
            for name, value in self.cluster.items()
            if name in _DYNAMIC_ATTRIBUTES
        ]
        return sorted([*rows, *_describe_unused(self.cluster, source)])


class LiveSettings:
    """The present settings of a node. All parts of the node share this object."""

    def __init__(self, static: NodeConfig) -> None:
        self.layers = NodeSettings(static)
        #: The effective settings. Only dynamic settings change.
        self.config = self.layers.config
        #: Called after each change.
        self.on_change: list[Callable[[], None]] = []

    def change(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Clients have changed what is set for all nodes (`cluster`) or for this node (`own`)."""
        self.layers = NodeSettings(self.layers.static, cluster, own)
        self.config = self.layers.config
        for changed in self.on_change:
            changed()


def _describe_unused(
    layer: Mapping[str, str], source: ConfigSource, hidden_by: Mapping[str, str] = MappingProxyType({})
) -> list[Described]:
    """Settings of Kafka that clients have set and that have no effect here. The tools that set them read and delete
    them later."""
    return [
        Described(
            name,
            value,
            source,
            False,
            ConfigType.STRING,
            "Accepted without effect.",
            [Synonym(name, value, source)],
        )
        for name, value in layer.items()
        if name in DYNAMIC_KEYS_WITHOUT_USE and name not in hidden_by
    ]


def validate_dynamic(overrides: Mapping[str, str], static: NodeConfig) -> None:
    """Raises INVALID_REQUEST for a setting that clients cannot change while a node runs, and for an invalid value."""
    for name, text in overrides.items():
        if name in DYNAMIC_KEYS_WITHOUT_USE:
            continue
        attribute = _DYNAMIC_ATTRIBUTES.get(name)
        if attribute is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{name}]")
        try:
            NODE_KEYS[attribute].parse(text.strip())
        except ValueError as error:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Invalid value {text} for configuration {name}: {error}"
            ) from None
    try:
        NodeSettings(static, overrides).config.validate()
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def parse_override(key: Key, value: str) -> object:
    """Parses a value that a client has set. Raises INVALID_CONFIG."""
    try:
        parsed: object = key.parse(value.strip())
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {key.name}: {error}"
        ) from None
    return parsed
