"""Topic settings: Kafka's names and checks, defaults from the node, and descriptions for clients."""

from __future__ import annotations

import pytest

from broker.config.layers import ConfigSource, NodeSettings
from broker.config.sources import load
from broker.config.topic_config import TOPIC_KEYS, TopicConfig
from protocol.errors import ErrorCode, KafkaError

STREAMS_TOPIC = {
    "cleanup.policy": "compact,delete",
    "segment.bytes": "52428800",
    "retention.ms": "86400000",
    "message.timestamp.type": "CreateTime",
    "min.compaction.lag.ms": "0",
}


def test_a_topic_overrides_the_node_which_overrides_the_default() -> None:
    node = load(flags={"log.retention.hours": "1", "message.max.bytes": "2000"}).config
    config = TopicConfig.resolve({"max.message.bytes": "3000", "cleanup.policy": "compact"}, node)
    assert (config.max_message_bytes, config.retention_ms, config.retention_bytes) == (3000, 3_600_000, -1)
    assert config.is_compacted
    assert not config.is_deleted_by_retention
    assert not config.is_log_append_time


def test_settings_of_kafka_streams_topics_are_accepted() -> None:
    TopicConfig.validate(STREAMS_TOPIC)
    config = TopicConfig.resolve(STREAMS_TOPIC, load().config)
    assert config.is_compacted
    assert config.is_deleted_by_retention
    assert config.segment_bytes == 50 << 20


def test_every_setting_is_described_with_its_source() -> None:
    node = load(flags={"log.retention.hours": "1"}).config
    rows = {row.name: row for row in TopicConfig.describe({"segment.bytes": "4096"}, NodeSettings(node))}
    assert len(rows) == 33, "Apache Kafka 4.3 shows 33 settings of a topic"
    assert rows["segment.bytes"][:3] == ("segment.bytes", "4096", ConfigSource.TOPIC)
    assert rows["retention.ms"][:3] == ("retention.ms", "3600000", ConfigSource.STATIC_BROKER)
    assert rows["preallocate"][:3] == ("preallocate", "false", ConfigSource.DEFAULT)
    assert rows["cleanup.policy"][:3] == ("cleanup.policy", "delete", ConfigSource.DEFAULT)
    assert list(rows) == sorted(rows)


def test_topic_defaults_and_node_defaults_agree() -> None:
    node = load().config
    described = {row.name: row.value for row in TopicConfig.describe({}, NodeSettings(node))}
    assert described == {name: key.default for name, key in TOPIC_KEYS.items()}
    TopicConfig.validate(described)
    assert TopicConfig.resolve(described, node) == TopicConfig() == TopicConfig.resolve({}, node)


@pytest.mark.parametrize(
    "overrides",
    [
        {"retention": "1"},
        {"retention.ms": None},
        {"retention.ms": "soon"},
        {"retention.ms": "-2"},
        {"cleanup.policy": "shrink"},
        {"min.insync.replicas": "0"},
        {"min.cleanable.dirty.ratio": "1.5"},
        {"min.cleanable.dirty.ratio": "nan"},
        {"compression.gzip.level": "0"},
        {"compression.type": "brotli"},
        {"max.message.bytes": "2147483648"},
        {"remote.storage.enable": "true"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
        {"leader.replication.throttled.replicas": "1"},
    ],
)
def test_a_bad_setting_is_invalid_config(overrides: dict[str, str | None]) -> None:
    with pytest.raises(KafkaError) as caught:
        TopicConfig.validate(overrides)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert next(iter(overrides)) in str(caught.value)
