"""How much memory what clients set takes on every node: settings of topics, brokers and groups, and quotas.

The sizes are estimates from measured ones, rounded up, and depend on the texts alone: all nodes come to the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.metadata.records import Entity
from protocol.errors import ErrorCode, KafkaError

#: What a resource or an entity takes beside its texts, and what each of its values takes.
ENTRY_BYTES = 500
VALUE_BYTES = 150


def values_size(values: Mapping[str, object]) -> int:
    """Of settings that belong to something that is there anyway (a topic)."""
    texts = sum(_text_size(name) + _text_size(value) for name, value in values.items())
    return texts + VALUE_BYTES * len(values)


def configs_size(name: str, configs: Mapping[str, str]) -> int:
    """Of the settings of a broker or a group. 0 if it has none."""
    return ENTRY_BYTES + _text_size(name) + values_size(configs) if configs else 0


def quota_size(entity: Entity, limits: Mapping[str, float]) -> int:
    """0 if the entity has no limit."""
    return ENTRY_BYTES + sum(_text_size(name) for _, name in entity) + values_size(limits) if limits else 0


def _text_size(text: object) -> int:
    if not isinstance(text, str):
        return 0
    return len(text) if text.isascii() else 4 * len(text)


def check_room(used_bytes: int, added_bytes: int, max_bytes: int) -> None:
    """Raises POLICY_VIOLATION. What takes no more than before is always allowed."""
    if added_bytes > 0 and used_bytes + added_bytes > max_bytes:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"settings and quotas that clients set may take {max_bytes} bytes (varve.max.settings.bytes)",
        )
