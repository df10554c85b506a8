"""The kinds of resources whose settings clients can read and change: topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.config.group_config import GROUP_KEYS, GroupConfig
from broker.config.layers import Described, LiveSettings, NodeSettings, validate_dynamic
from broker.config.sources import NODE_KEYS
from broker.config.topic_config import TOPIC_KEYS, TopicConfig
from broker.config.values import ConfigType, Key
from protocol.errors import ErrorCode, KafkaError

#: Kafka's resource types, and their names in the metadata.
KINDS = {2: "topic", 4: "broker", 32: "group"}

#: The longest value, as in Kafka. Older versions of DescribeConfigs cannot hold a longer one, and a list that clients
#: append to must not grow without bound.
MAX_VALUE_BYTES = 32767

_KEYS: dict[str, Mapping[str, Key]] = {
    "topic": TOPIC_KEYS,
    "broker": {key.name: key for key in NODE_KEYS.values()},
    "group": GROUP_KEYS,
}


class Resources:
    """The rules of each kind. `settings` are those of the node that answers."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings
        #: Kind -> what its resources show that have no settings of their own, under the settings `_rows_of`. A request
        #: may ask for all topics, and most of them have none.
        self._rows: dict[str, list[Described]] = {}
        self._rows_of = settings.layers

    def validate(self, kind: str, overrides: Mapping[str, str]) -> None:
        """Raises KafkaError if these cannot be the settings of a resource. `overrides` are all that is set for it."""
        for name, value in overrides.items():
            if len(value.encode()) > MAX_VALUE_BYTES:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"the value of {name} has more than {MAX_VALUE_BYTES} bytes"
                )
        if kind == "topic":
            TopicConfig.validate(overrides)
        elif kind == "group":
            GroupConfig.validate(overrides, self._settings.config)
        else:
            validate_dynamic(overrides, self._settings.layers.static)

    def is_list(self, kind: str, name: str) -> bool:
        """Whether values can be appended to this setting and subtracted from it."""
        key = _KEYS[kind].get(name)
        return key is not None and key.parse.type is ConfigType.LIST

    def default(self, kind: str, name: str) -> str:
        """The value of a setting of this kind if clients have not set it."""
        rows = (
            self.describe_topic({})
            if kind == "topic"
            else NodeSettings(self._settings.layers.static).describe()
        )
        return next(row.value for row in rows if row.name == name)

    def describe_topic(self, overrides: Mapping[str, str]) -> list[Described]:
        """Topics without overrides have the same list, which must not be changed."""
        return self._describe("topic", TopicConfig.describe, overrides)

    def describe_group(self, overrides: Mapping[str, str]) -> list[Described]:
        """As `describe_topic`."""
        return self._describe("group", GroupConfig.describe, overrides)

    def _describe(
        self,
        kind: str,
        describe: Callable[[Mapping[str, str], NodeSettings], list[Described]],
        overrides: Mapping[str, str],
    ) -> list[Described]:
        layers = self._settings.layers
        if overrides:
            return describe(overrides, layers)
        if self._rows_of is not layers:
            self._rows, self._rows_of = {}, layers
        rows = self._rows.get(kind)
        if rows is None:
            rows = self._rows[kind] = describe(overrides, layers)
        return rows

    def describe_node(self) -> list[Described]:
        """The settings of this node."""
        return self._settings.layers.describe()

    def describe_all_nodes(self) -> list[Described]:
        """The settings that clients have set for all nodes."""
        return self._settings.layers.describe_cluster()
