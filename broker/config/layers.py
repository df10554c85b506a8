"""A node's settings in layers: above what it was started with, what clients have set for it or for all (KIP-226).

Values that clients set are in the cluster's metadata and count on every node from the moment it replays them. Only
settings declared with `dynamic` can be set so. What a later version or another node wrote and this one cannot use is
passed over: a node does not stop because of it.
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
from broker.config.values import ConfigError, ConfigType, Key, show
from protocol.errors import ErrorCode, KafkaError


class ConfigSource(IntEnum):
    """Kafka's numbers for where a value comes from (DescribeConfigs and CreateTopics, "config_source")."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    """A value that counts where no stronger one is given, under the name by which it was given."""

    name: str
    value: str
    source: ConfigSource


class Described(NamedTuple):
    """One setting as CreateTopics (v5 and later) and DescribeConfigs show it. None of ours is sensitive."""

    name: str
    value: str
    source: ConfigSource
    is_read_only: bool
    type: ConfigType
    doc: str
    synonyms: Sequence[Synonym]
    """Strongest first; the first is the value that counts."""

    @classmethod
    def of(cls, key: Key, values: Sequence[Synonym], *, is_read_only: bool) -> Described:
        strongest = values[0]
        return cls(key.name, strongest.value, strongest.source, is_read_only, key.parse.type, key.doc, values)


#: Name -> attribute of NodeConfig, for every setting of a node that can be changed while it runs.
_DYNAMIC_ATTRIBUTES = {key.name: attribute for attribute, key in NODE_KEYS.items() if key.is_dynamic}


@dataclass(frozen=True)
class NodeSettings:
    """All layers of one node. `own` and `cluster`: what clients have set for this node, and for all."""

    static: NodeConfig
    cluster: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def config(self) -> NodeConfig:
        """What counts."""
        values: dict[str, Any] = {}
        for name, text in {**self.cluster, **self.own}.items():
            attribute = _DYNAMIC_ATTRIBUTES.get(name)
            if attribute is None:
                continue
            try:
                values[attribute] = NODE_KEYS[attribute].parse(text.strip())
            except ValueError:
                continue  # of a version that takes more
        return dataclasses.replace(self.static, **values)

    def values_of(self, attribute: str) -> list[Synonym]:
        """The values of one setting in all layers, strongest first. The last is the default."""
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
                Synonym(key.name, show(getattr(self.static, attribute)), ConfigSource.STATIC_BROKER)
            )
        values.append(Synonym(key.name, key.default, ConfigSource.DEFAULT))
        return values

    def describe(self) -> list[Described]:
        """Every setting of this node, sorted by name. What follows from other settings is shown as it came out."""
        rows = []
        for attribute, key in NODE_KEYS.items():
            values = self.values_of(attribute)
            if values[0].source is ConfigSource.DEFAULT:
                values[0] = values[0]._replace(value=show(getattr(self.static, attribute)))
            rows.append(Described.of(key, values, is_read_only=not key.is_dynamic))
        rows += _without_use(self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER, hidden_by=self.own)
        rows += _without_use(self.own, ConfigSource.DYNAMIC_BROKER)
        return sorted(rows)

    def describe_cluster(self) -> list[Described]:
        """What is set for all nodes, and nothing else."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        rows = [
            Described.of(
                NODE_KEYS[_DYNAMIC_ATTRIBUTES[name]], [Synonym(name, value, source)], is_read_only=False
            )
            for name, value in self.cluster.items()
            if name in _DYNAMIC_ATTRIBUTES
        ]
        return sorted([*rows, *_without_use(self.cluster, source)])


class LiveSettings:
    """A node's settings as they are now, for all of its parts."""

    def __init__(self, static: NodeConfig) -> None:
        self.layers = NodeSettings(static)
        #: What counts. Settings that are not dynamic never change.
        self.config = self.layers.config
        #: Called after each change.
        self.on_change: list[Callable[[], None]] = []

    def change(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Clients have set these for all nodes, and for this one."""
        self.layers = NodeSettings(self.layers.static, cluster, own)
        self.config = self.layers.config
        for changed in self.on_change:
            changed()


def _without_use(
    layer: Mapping[str, str], source: ConfigSource, hidden_by: Mapping[str, str] = MappingProxyType({})
) -> list[Described]:
    """What is set although it means nothing here: tools that have set it look for it, and take it away again."""
    return [
        Described(
            name, value, source, False, ConfigType.STRING, "Kept, not used.", [Synonym(name, value, source)]
        )
        for name, value in layer.items()
        if name in DYNAMIC_KEYS_WITHOUT_USE and name not in hidden_by
    ]


def validate_dynamic(overrides: Mapping[str, str], static: NodeConfig) -> None:
    """Raise KafkaError(INVALID_REQUEST) for what cannot be set, or not so, while a node with these settings runs."""
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
    """A value that a client gave a resource's setting. Raises KafkaError(INVALID_CONFIG)."""
    try:
        parsed: object = key.parse(value.strip())
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Invalid value {value} for configuration {key.name}: {error}"
        ) from None
    return parsed
