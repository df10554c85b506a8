"""The settings of one group of the consumer protocol (KIP-848): what clients have set for it, otherwise the node's.

Kafka's other settings of groups are for share groups and streams groups, which do not exist here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.config.layers import ConfigSource, Described, NodeSettings, Synonym, parse_override
from broker.config.node_config import NodeConfig
from broker.config.values import Key, integer, keys_of, setting
from protocol.errors import ErrorCode, KafkaError


@dataclass(frozen=True, kw_only=True)
class GroupConfig:
    """The effective settings, made by `resolve`. The defaults are the attributes of the same name of `NodeConfig`."""

    consumer_session_timeout_ms: int = setting(
        "consumer.session.timeout.ms",
        integer(1),
        "45000",
        "A member that has sent no heartbeat for this long is removed from the group.",
    )
    consumer_heartbeat_interval_ms: int = setting(
        "consumer.heartbeat.interval.ms",
        integer(1),
        "5000",
        "How often members send a heartbeat. A member learns of a new assignment from the answer.",
    )
    consumer_assignment_interval_ms: int = setting(
        "consumer.assignment.interval.ms",
        integer(0),
        "1000",
        "The shortest time between two assignments of the group, however many members join and leave.",
    )

    @classmethod
    def validate(cls, overrides: Mapping[str, str], node: NodeConfig) -> None:
        """Raises INVALID_CONFIG for an unknown setting or an invalid value."""
        for name, value in overrides.items():
            key = GROUP_KEYS.get(name)
            if key is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"there is no setting {name} of groups")
            parse_override(key, value)
        config = cls.resolve(overrides, node)
        if config.consumer_heartbeat_interval_ms >= config.consumer_session_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"consumer.heartbeat.interval.ms ({config.consumer_heartbeat_interval_ms}) must be below "
                f"consumer.session.timeout.ms ({config.consumer_session_timeout_ms})",
            )

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], node: NodeConfig) -> GroupConfig:
        """`overrides` have passed `validate`. Raises INVALID_CONFIG if they have not."""
        values: dict[str, object] = {
            attribute: parse_override(key, overrides[key.name])
            if key.name in overrides
            else getattr(node, attribute)
            for attribute, key in keys_of(cls).items()
        }
        return cls(**values)  # type: ignore[arg-type]  # Each value is from the parser of its field.

    @classmethod
    def describe(cls, overrides: Mapping[str, str], settings: NodeSettings) -> list[Described]:
        """Every setting as DescribeConfigs shows it, sorted by name."""
        rows = []
        for attribute, key in sorted(keys_of(cls).items(), key=lambda item: item[1].name):
            values = settings.values_of(attribute)
            if key.name in overrides:
                values.insert(0, Synonym(key.name, overrides[key.name], ConfigSource.GROUP))
            rows.append(Described.of(key, values, is_read_only=False))
        return rows


GROUP_KEYS: dict[str, Key] = {key.name: key for key in keys_of(GroupConfig).values()}
