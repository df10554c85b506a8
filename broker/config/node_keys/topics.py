"""Defaults of topics. The settings of a topic override most of them."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import INT64_MAX, boolean, choice, choices, integer, long, number, setting

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class TopicKeys:
    num_partitions: int = setting(
        "num.partitions",
        integer(1),
        "1",
        "The number of partitions of a topic if the client that creates it names none.",
    )
    max_partitions: int = setting(
        "varve.max.partitions",
        integer(1),
        "50000",
        """How many partitions the cluster may have. Each of its replicas takes 12 KB of memory, whether it is used or
        not.""",
    )
    max_settings_bytes: int = setting(
        "varve.max.settings.bytes",
        long(0),
        str(4 << 20),
        """How much memory everything that clients set may take on a node: settings of topics, brokers and groups, and
        quotas. A setting takes about 150 bytes, and a group, broker or quota 500, beside their texts.""",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        integer(1, 32767),
        "3",
        """The number of replicas of a topic if the client names none. Not set: three, or one for each broker. (Kafka:
        1.)""",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        integer(1),
        "1",
        """How many replicas must have an acks=all record on disk before it is acknowledged. It is always at least a
        majority.""",
        dynamic=True,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        boolean,
        "true",
        "Whether a topic is created when a client asks for its metadata, if the client allows that.",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", boolean, "true", "Whether topics can be deleted."
    )
    log_segment_bytes: int = setting(
        "log.segment.bytes",
        integer(1024),
        str(1 << 30),
        "The size at which a segment is closed. (The least value is 1 MiB in Kafka 4.)",
        dynamic=True,
    )
    log_roll_ms: int = setting(
        "log.roll.ms",
        long(1),
        str(168 * _HOUR_MS),
        "The age at which a segment is closed, whatever its size.",
        scaled=[("log.roll.hours", _HOUR_MS)],
        dynamic=True,
    )
    log_retention_ms: int = setting(
        "log.retention.ms",
        long(-1),
        str(168 * _HOUR_MS),
        "How long records are kept. -1: for ever.",
        scaled=[("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)],
        dynamic=True,
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes",
        long(-1),
        "-1",
        "The size of a partition above which its oldest segments are deleted. -1: no bound.",
        dynamic=True,
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        long(1),
        "300000",
        "How often segments are checked for retention.",
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes",
        integer(0),
        "4096",
        "How many bytes lie between two entries of a segment's indexes.",
        dynamic=True,
    )
    message_max_bytes: int = setting(
        "message.max.bytes",
        integer(0),
        "1048588",
        "The largest record batch, after compression, that a producer may send.",
        dynamic=True,
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        choice("CreateTime", "LogAppendTime"),
        "CreateTime",
        "The timestamp of records: that of the producer, or the time of the append.",
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms",
        long(0),
        str(INT64_MAX),
        "How far a producer's timestamp may lie behind the broker's clock.",
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms",
        long(0),
        str(_HOUR_MS),
        "How far a producer's timestamp may lie ahead of the broker's clock.",
        dynamic=True,
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy",
        choices("delete", "compact"),
        "delete",
        "What happens to old records.",
        dynamic=True,
    )
    compression_type: str = setting(
        "compression.type",
        choice("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "producer",
        "Accepted without effect: batches stay as the producer compressed them.",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms",
        long(0),
        str(24 * _HOUR_MS),
        "How long compaction keeps a tombstone.",
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms",
        long(0),
        "0",
        "The age below which a record is not compacted.",
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms",
        long(1),
        str(INT64_MAX),
        "The age at which a record is compacted at the latest.",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        number(0, 1),
        "0.5",
        "The part of the log that must be dirty before it is compacted.",
        dynamic=True,
    )
