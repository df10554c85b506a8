"""The settings of a topic, under Kafka's names.

The metadata stores only what a topic overrides. The other settings follow those of the node (`_NODE_DEFAULTS`), as in
Kafka. All topic settings of Apache Kafka 4.3 are accepted, so that its tools and Kafka Streams can create their topics.
The paragraph of a setting says so if it has no effect here.
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
        """delete: retention deletes old segments. compact: of each key, the last record is kept, and records without a
        key are refused. Empty: everything is kept.""",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        _gzip_level,
        "-1",
        "Accepted without effect: batches stay as the producer compressed them.",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level", integer(1, 17), "9", "Accepted without effect."
    )
    compression_type: str = setting(
        "compression.type",
        choice("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "producer",
        "Accepted without effect: batches stay as the producer compressed them.",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level", integer(-131072, 22), "3", "Accepted without effect."
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        long(0),
        "86400000",
        "How long compaction keeps a tombstone.",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        long(0),
        "60000",
        "Accepted without effect: readers keep a deleted segment open themselves.",
    )
    flush_messages: int = setting(
        "flush.messages",
        long(1),
        str(INT64_MAX),
        "Accepted without effect: every record is flushed before it is acknowledged.",
    )
    flush_ms: int = setting(
        "flush.ms", long(0), str(INT64_MAX), "Accepted without effect, as flush.messages."
    )
    follower_throttled_replicas: str = setting(
        "follower.replication.throttled.replicas",
        _throttled_replicas,
        "",
        "Accepted without effect: there is no throttling yet.",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        integer(0),
        "4096",
        "How many bytes lie between two entries of a segment's indexes.",
    )
    leader_throttled_replicas: str = setting(
        "leader.replication.throttled.replicas",
        _throttled_replicas,
        "",
        "Accepted without effect: there is no throttling yet.",
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes", long(-2), "-2", "Accepted without effect: there is no tiered storage."
    )
    local_retention_ms: int = setting(
        "local.retention.ms", long(-2), "-2", "Accepted without effect: there is no tiered storage."
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        long(1),
        str(INT64_MAX),
        "The age at which a record is compacted at the latest.",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        integer(0),
        "1048588",
        "The largest record batch, after compression, that a producer may send.",
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
        "The timestamp of records: that of the producer, or the time of the append.",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        number(0, 1),
        "0.5",
        "The part of the log that must be dirty before it is compacted.",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        long(0),
        "0",
        "The age below which a record is not compacted.",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        integer(1),
        "1",
        """Replicas that must have an acks=all record on disk before it is acknowledged, if that is more than a
        majority.""",
    )
    preallocate: bool = setting("preallocate", boolean, "false", "Accepted without effect.")
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable", boolean, "false", "Accepted without effect: there is no tiered storage."
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        boolean,
        "false",
        "Accepted without effect: there is no tiered storage.",
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable", _only_false, "false", "Must be false: there is no tiered storage."
    )
    retention_bytes: int = setting(
        "retention.bytes",
        long(-1),
        "-1",
        "The size of a partition above which its oldest segments are deleted. -1: no bound.",
    )
    retention_ms: int = setting(
        "retention.ms", long(-1), "604800000", "How long records are kept. -1: for ever."
    )
    segment_bytes: int = setting(
        "segment.bytes",
        integer(1024),
        "1073741824",
        "The size at which a segment is closed. (The least value is 1 MiB in Kafka 4. Smaller ones are for tests.)",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        integer(4),
        "10485760",
        "Accepted without effect: indexes grow as they need to.",
    )
    segment_jitter_ms: int = setting("segment.jitter.ms", long(0), "0", "Accepted without effect.")
    segment_ms: int = setting(
        "segment.ms", long(1), "604800000", "The age at which a segment is closed, whatever its size."
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        boolean,
        "false",
        "Accepted without effect: a leader always holds every acknowledged record.",
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
        """The settings that storage needs for the log of a partition."""
        segment_ms = self.segment_ms
        if self.is_compacted:  # the active segment is never compacted, and no record may wait for longer
            segment_ms = min(segment_ms, self.max_compaction_lag_ms)
        return LogConfig(self.segment_bytes, segment_ms, self.index_interval_bytes)

    @staticmethod
    def validate(overrides: Mapping[str, str | None]) -> None:
        """Raises INVALID_CONFIG for an unknown setting or an invalid value."""
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
        """The effective settings: what the topic overrides, otherwise the setting of the node, otherwise the default.

        `overrides` have passed `validate`. Raises INVALID_CONFIG if they have not.
        """
        values: dict[str, object] = {}
        for attribute, key in keys_of(cls).items():
            if key.name in overrides:
                values[attribute] = parse_override(key, overrides[key.name])
            elif key.name in _NODE_DEFAULTS:
                values[attribute] = getattr(node, _NODE_DEFAULTS[key.name])
        return cls(**values)  # type: ignore[arg-type]  # Each value is from the parser of its field.

    @staticmethod
    def describe(overrides: Mapping[str, str], settings: NodeSettings) -> list[Described]:
        """Every setting as DescribeConfigs shows it, sorted by name."""
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
