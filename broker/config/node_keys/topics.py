"""Topics: what CreateTopics and auto-creation start from. Topic settings override most of these."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import INT64_MAX, boolean, choice, choices, integer, long, number, setting

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class TopicKeys:
    num_partitions: int = setting(
        "num.partitions", integer(1), "1", "Partitions of a topic whose creator does not say."
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        integer(1, 32767),
        "3",
        "Replicas of a topic whose creator does not say. Not set: three, or one for each broker. (Kafka: 1.)",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        integer(1),
        "1",
        """Replicas that must hold an acks=all record on disk before it is acknowledged, where that is more than a
        majority: a majority it always is.""",
        dynamic=True,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        boolean,
        "true",
        "Create a topic when a client that wants that asks for it.",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", boolean, "true", "Whether topics can be deleted."
    )
    log_segment_bytes: int = setting(
        "log.segment.bytes",
        integer(1024),
        str(1 << 30),
        "Size at which a segment is closed. (Kafka 4 asks for at least 1 MiB.)",
        dynamic=True,
    )
    log_roll_ms: int = setting(
        "log.roll.ms",
        long(1),
        str(168 * _HOUR_MS),
        "Age at which a segment is closed although it is small.",
        scaled=[("log.roll.hours", _HOUR_MS)],
        dynamic=True,
    )
    log_retention_ms: int = setting(
        "log.retention.ms",
        long(-1),
        str(168 * _HOUR_MS),
        "How long records are kept; -1 is for ever.",
        scaled=[("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)],
        dynamic=True,
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes",
        long(-1),
        "-1",
        "Bytes that a partition may hold before old segments go; -1 is no bound.",
        dynamic=True,
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        long(1),
        "300000",
        "How often retention looks for segments to delete.",
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes",
        integer(0),
        "4096",
        "Bytes between two entries of a segment's sparse index.",
        dynamic=True,
    )
    message_max_bytes: int = setting(
        "message.max.bytes",
        integer(0),
        "1048588",
        "Largest record batch, after compression, that is taken.",
        dynamic=True,
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        choice("CreateTime", "LogAppendTime"),
        "CreateTime",
        "Whose time records carry: the producer's or the broker's.",
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
        "What happens to old records. compact is accepted; until compaction is built it removes nothing.",
        dynamic=True,
    )
    compression_type: str = setting(
        "compression.type",
        choice("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "producer",
        "Kept with the topic. Batches are stored as the producer compressed them.",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms",
        long(0),
        str(24 * _HOUR_MS),
        "How long a compacted topic keeps tombstones. For compaction, when it comes.",
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms",
        long(0),
        "0",
        "Age below which a record is not compacted. As above.",
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms",
        long(1),
        str(INT64_MAX),
        "Age by which a record has been looked at by compaction. As above.",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        number(0, 1),
        "0.5",
        "Dirty part from which compaction is worth while. As above.",
        dynamic=True,
    )
