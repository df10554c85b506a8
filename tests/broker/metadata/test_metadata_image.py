from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from broker.metadata.image import (
    BrokerRegistered,
    BrokerRemoved,
    Change,
    ClusterNamed,
    ConfigsChanged,
    MetadataImage,
    ProducerIdsAllocated,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.record_codec import MetadataRecordError, configs_record, encode, topic_tombstone
from broker.metadata.records import (
    BrokerRecord,
    ClusterRecord,
    Endpoint,
    KeyValue,
    PartitionAssignment,
    ProducerIdsRecord,
    Record,
    TopicRecord,
)

PARTITION = PartitionAssignment((1,), (UUID(int=101),), (0,))
ORDERS = TopicRecord(UUID(int=7), "orders", (PARTITION, PARTITION), {"retention.ms": "1"})
BROKER = BrokerRecord(
    1, UUID(int=101), UUID(int=1), {"PLAIN": Endpoint("localhost", 1)}, Endpoint("localhost", 2)
)


def replay(image: MetadataImage, record: Record | KeyValue) -> Change | None:
    key, value = record if isinstance(record, KeyValue) else encode(record)
    return image.replay(key, value, image.end_offset, image.epoch)


def test_every_change_is_reported_once() -> None:
    image = MetadataImage()
    wider = replace(ORDERS, partitions=(PARTITION,) * 3)
    moved = replace(BROKER, boot_id=UUID(int=2))
    story: list[tuple[Record | KeyValue, Change | None]] = [
        (ClusterRecord("c"), ClusterNamed("c")),
        (ClusterRecord("c"), None),
        (BROKER, BrokerRegistered(BROKER, None)),
        (BROKER, None),
        (moved, BrokerRegistered(moved, BROKER)),
        (ORDERS, TopicCreated(ORDERS)),
        (wider, TopicChanged(ORDERS, wider)),
        (wider, None),
        (ProducerIdsRecord(1000), ProducerIdsAllocated(1000)),
        (topic_tombstone(ORDERS.topic_id), TopicDeleted(wider)),
        (topic_tombstone(ORDERS.topic_id), None),
        (KeyValue(b"broker/1", None), BrokerRemoved(moved)),
    ]
    for record, change in story:
        assert replay(image, record) == change
    assert image.cluster_id == "c" and image.next_producer_id == 1000
    assert not image.topics and not image.brokers and image.partition_count == 0
    assert image.end_offset == len(story)


def test_topics_are_found_by_id_and_by_name_and_counted() -> None:
    image = MetadataImage()
    replay(image, ORDERS)
    assert image.topics[ORDERS.topic_id] is image.topic_named("orders")
    assert image.topic_named("order") is None
    assert image.partition_count == 2
    replay(image, replace(ORDERS, topic_id=UUID(int=8), name="a"))
    assert [topic.name for topic in image.topics_by_name()] == ["a", "orders"]


def test_a_name_is_free_again_after_deletion_under_a_new_id() -> None:
    image = MetadataImage()
    again = replace(ORDERS, topic_id=UUID(int=8))
    replay(image, ORDERS)
    replay(image, topic_tombstone(ORDERS.topic_id))
    assert replay(image, again) == TopicCreated(again)
    assert replay(image, topic_tombstone(ORDERS.topic_id)) is None
    assert image.topic_named("orders") == again


def test_names_collide_where_dots_and_underscores_are_the_same() -> None:
    image = MetadataImage()
    replay(image, replace(ORDERS, name="a.b"))
    assert image.colliding_topic("a_b") == "a.b"
    assert image.colliding_topic("a.b") is None
    assert image.colliding_topic("a-b") is None


def test_replaying_a_compacted_log_gives_the_same_state() -> None:
    wider = replace(ORDERS, partitions=(PARTITION,) * 3)
    full, compacted = MetadataImage(), MetadataImage()
    records: list[Record] = [ORDERS, BROKER, ProducerIdsRecord(1000), wider, ProducerIdsRecord(2000)]
    for offset, record in enumerate(records):
        full.replay(*encode(record), offset, epoch=1)
        if offset not in (0, 2):
            compacted.replay(*encode(record), offset, epoch=1)
    assert full.topics == compacted.topics and full.brokers == compacted.brokers
    assert full.next_producer_id == compacted.next_producer_id == 2000
    assert full.end_offset == compacted.end_offset and full.epoch == 1


def test_an_unknown_record_leaves_the_image_as_it_was() -> None:
    image = MetadataImage()
    replay(image, ORDERS)
    with pytest.raises(MetadataRecordError):
        image.replay(b"acl/1", b"{}", 1, 0)
    assert image.end_offset == 1


WIDE = replace(ORDERS, topic_id=UUID(int=77), name="wide", partitions=(PARTITION,) * 3)


@pytest.mark.parametrize(
    "record",
    [
        ClusterRecord("another"),
        replace(ORDERS, name="renamed"),
        replace(ORDERS, topic_id=UUID(int=9)),
        replace(WIDE, partitions=WIDE.partitions[:1]),
        ProducerIdsRecord(5),
    ],
    ids=[
        "cluster named twice",
        "topic renamed",
        "two topics of one name",
        "partition gone",
        "producer ids go back",
    ],
)
def test_what_contradicts_the_image_is_passed_over(record: Record) -> None:
    """It is committed. A node that stopped there could never start again."""
    image, untouched = MetadataImage(), MetadataImage()
    for each in (image, untouched):
        for before in (ClusterRecord("c"), ORDERS, WIDE, ProducerIdsRecord(10)):
            replay(each, before)
    assert replay(image, record) is None
    assert image.contradictions == 1
    assert image.end_offset == untouched.end_offset + 1
    assert (image.cluster_id, image.topics, image.next_producer_id) == (
        untouched.cluster_id,
        untouched.topics,
        untouched.next_producer_id,
    )
    assert image.topic_named(ORDERS.name) == ORDERS


def test_offsets_and_epochs_never_go_back() -> None:
    image = MetadataImage()
    image.replay(*encode(ORDERS), offset=5, epoch=2)
    for offset, epoch in ((5, 2), (6, 1)):
        with pytest.raises(AssertionError):
            image.replay(*encode(BROKER), offset, epoch)


def test_settings_of_brokers_and_groups_come_and_go() -> None:
    image = MetadataImage()

    def leave(kind: str, name: str, configs: dict[str, str]) -> Change | None:
        return replay(image, configs_record(kind, name, configs))

    assert leave("broker", "", {"a": "1"}) == ConfigsChanged("broker", "")
    assert leave("group", "1", {"b": "2"}) == ConfigsChanged("group", "1")
    assert leave("group", "1", {"b": "2"}) is None
    assert (image.configs_of("broker", ""), image.configs_of("broker", "1")) == ({"a": "1"}, {})
    assert (image.configured("broker"), image.configured("group")) == ([""], ["1"])
    assert leave("broker", "", {}) == ConfigsChanged("broker", "")
    assert leave("broker", "", {}) is None
    assert image.configs_of("broker", "") == {} and image.configured("broker") == []
