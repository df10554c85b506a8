"""The settings of a topic: Kafka's names, checked when a topic is created, typed where the broker reads them.

Only what a topic overrides is stored in the metadata; the rest follows the node's settings (`_NODE_DEFAULTS`), as in
Kafka. Every setting that Apache Kafka 4.3 has for topics is taken, so that its tools and Kafka Streams can create
what they need; those that ask for something Varve does not do are said so in their paragraph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.config.layers import ConfigSource, Described, NodeSettings, Synonym, parse_override
from broker.config.node_config import NodeConfig
from broker.config.values import (
    INT64_MAX,
    ConfigType,
    Key,
    boolean,
    choice,
    choices,
    integer,
    keys_of,
    long,
    number,
    setting,
    typed,
)
from protocol.errors import ErrorCode, KafkaError
from storage.log_types import LogConfig


@typed(ConfigType.LIST)
def _throttled_replicas(value: str) -> str:
    for part in value.split(",") if value and value != "*" else ():
        partition, colon, node = part.strip().partition(":")
        if not (colon and partition.isdecimal() and node.isdecimal()):
            raise ValueError(f"expected PARTITION:NODE,... or *, not {part!r}")
    return value


@typed(ConfigType.BOOLEAN)
def _only_false(value: str) -> bool:
    if boolean(value):
        raise ValueError("there is no tiered storage")
    return False


@typed(ConfigType.INT)
def _gzip_level(value: str) -> int:
    level = integer(-1, 9)(value)
    if level == 0:
        raise ValueError("expected -1 or a whole number from 1 to 9, not 0")
    return level


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    """The effective settings of one topic on this node. Made by `resolve`."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        choices("delete", "compact"),
        "delete",
        """delete: retention removes old segments. compact: records without a key are refused; until compaction is built
        it removes nothing. Empty: everything is kept.""",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        _gzip_level,
        "-1",
        "Kept, not used: batches stay as the producer compressed them.",
    )
    compression_lz4_level: int = setting("compression.lz4.level", integer(1, 17), "9", "Kept, not used.")
    compression_type: str = setting(
        "compression.type",
        choice("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "producer",
        "Kept, not used: batches stay as the producer compressed them.",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level", integer(-131072, 22), "3", "Kept, not used."
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms", long(0), "86400000", "How long compaction keeps a tombstone."
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        long(0),
        "60000",
        "Kept, not used: readers keep a deleted segment open themselves.",
    )
    flush_messages: int = setting(
        "flush.messages", long(1), str(INT64_MAX), "Kept, not used: every record is flushed before it counts."
    )
    flush_ms: int = setting("flush.ms", long(0), str(INT64_MAX), "Kept, not used, as flush.messages.")
    follower_throttled_replicas: str = setting(
        "follower.replication.throttled.replicas",
        _throttled_replicas,
        "",
        "Kept, not used: no throttling yet.",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes", integer(0), "4096", "Bytes between two entries of a segment's sparse index."
    )
    leader_throttled_replicas: str = setting(
        "leader.replication.throttled.replicas", _throttled_replicas, "", "Kept, not used: no throttling yet."
    )
    local_retention_bytes: int = setting("local.retention.bytes", long(-2), "-2", "Kept: no tiered storage.")
    local_retention_ms: int = setting("local.retention.ms", long(-2), "-2", "Kept: no tiered storage.")
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms", long(1), str(INT64_MAX), "Age by which compaction has looked at a record."
    )
    max_message_bytes: int = setting(
        "max.message.bytes", integer(0), "1048588", "Largest record batch, after compression, that is taken."
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        long(0),
        "3600000",
        "How far a producer's timestamp may lie ahead of the broker's clock.",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        long(0),
        str(INT64_MAX),
        "How far a producer's timestamp may lie behind the broker's clock.",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        choice("CreateTime", "LogAppendTime"),
        "CreateTime",
        "Whose time records carry: the producer's or the broker's.",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", number(0, 1), "0.5", "Dirty part from which compaction is worth while."
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms", long(0), "0", "Age below which a record is not compacted."
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        integer(1),
        "1",
        "Replicas that must hold an acks=all record on disk, where that is more than a majority.",
    )
    preallocate: bool = setting("preallocate", boolean, "false", "Kept, not used.")
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable", boolean, "false", "Kept: no tiered storage."
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable", boolean, "false", "Kept: no tiered storage."
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable", _only_false, "false", "true is refused: there is no tiered storage."
    )
    retention_bytes: int = setting(
        "retention.bytes",
        long(-1),
        "-1",
        "Bytes a partition may hold before old segments go; -1 is no bound.",
    )
    retention_ms: int = setting(
        "retention.ms", long(-1), "604800000", "How long records are kept; -1 is for ever."
    )
    segment_bytes: int = setting(
        "segment.bytes",
        integer(1024),
        "1073741824",
        "Size at which a segment is closed. (Kafka 4 asks for at least 1 MiB; smaller ones serve tests.)",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes", integer(4), "10485760", "Kept, not used: indexes grow as they need to."
    )
    segment_jitter_ms: int = setting("segment.jitter.ms", long(0), "0", "Kept, not used.")
    segment_ms: int = setting(
        "segment.ms", long(1), "604800000", "Age at which a segment is closed although it is small."
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        boolean,
        "false",
        "Kept, not used: a leader always holds every acknowledged record (replication.md section 10).",
    )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted_by_retention(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def log_config(self) -> LogConfig:
        """What shapes the log of each partition."""
        return LogConfig(self.segment_bytes, self.segment_ms, self.index_interval_bytes)

    @staticmethod
    def validate(overrides: Mapping[str, str | None]) -> None:
        """Raise KafkaError(INVALID_CONFIG) for a setting that does not exist or a value that it cannot have."""
        for name, value in overrides.items():
            key = TOPIC_KEYS.get(name)
            if key is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
            if value is None:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}"
                )
            parse_override(key, value)
        lags = [
            int(overrides.get(name) or TOPIC_KEYS[name].default)
            for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
        ]
        if lags[0] > lags[1]:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"min.compaction.lag.ms ({lags[0]}) must not be above max.compaction.lag.ms ({lags[1]})",
            )

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], node: NodeConfig) -> TopicConfig:
        """The effective settings: what the topic overrides, else what the node says, else the default.

        `overrides` have passed `validate` before they were stored. KafkaError(INVALID_CONFIG) otherwise.
        """
        values: dict[str, object] = {}
        for attribute, key in keys_of(cls).items():
            if key.name in overrides:
                values[attribute] = parse_override(key, overrides[key.name])
            elif key.name in _NODE_DEFAULTS:
                values[attribute] = getattr(node, _NODE_DEFAULTS[key.name])
        return cls(**values)  # type: ignore[arg-type]  # each value came from its own field's parser

    @staticmethod
    def describe(overrides: Mapping[str, str], settings: NodeSettings) -> list[Described]:
        """Every setting as clients are shown it, sorted by name."""
        return [_describe(key, overrides, settings) for _, key in sorted(TOPIC_KEYS.items())]


def _describe(key: Key, overrides: Mapping[str, str], settings: NodeSettings) -> Described:
    attribute = _NODE_DEFAULTS.get(key.name)
    values = [Synonym(key.name, overrides[key.name], ConfigSource.TOPIC)] if key.name in overrides else []
    if attribute is not None:
        values += settings.values_of(attribute)
    else:
        values.append(Synonym(key.name, key.default, ConfigSource.DEFAULT))
    return Described.of(key, values, is_read_only=False)


#: Setting name -> key, for every topic setting.
TOPIC_KEYS: dict[str, Key] = {key.name: key for key in keys_of(TopicConfig).values()}

#: Topic setting -> attribute of NodeConfig that gives its default on this node.
_NODE_DEFAULTS: dict[str, str] = {
    "cleanup.policy": "log_cleanup_policy",
    "compression.type": "compression_type",
    "delete.retention.ms": "log_cleaner_delete_retention_ms",
    "index.interval.bytes": "log_index_interval_bytes",
    "max.compaction.lag.ms": "log_cleaner_max_compaction_lag_ms",
    "max.message.bytes": "message_max_bytes",
    "message.timestamp.after.max.ms": "log_message_timestamp_after_max_ms",
    "message.timestamp.before.max.ms": "log_message_timestamp_before_max_ms",
    "message.timestamp.type": "log_message_timestamp_type",
    "min.cleanable.dirty.ratio": "log_cleaner_min_cleanable_ratio",
    "min.compaction.lag.ms": "log_cleaner_min_compaction_lag_ms",
    "min.insync.replicas": "min_insync_replicas",
    "retention.bytes": "log_retention_bytes",
    "retention.ms": "log_retention_ms",
    "segment.bytes": "log_segment_bytes",
    "segment.ms": "log_roll_ms",
}
