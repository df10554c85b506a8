"""Metadata records keep their meaning through encode and decode, and what cannot be read is refused."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metadata.ids import cluster_id_problem
from broker.metadata.record_codec import (
    MetadataRecordError,
    config_identity,
    configs_record,
    decode,
    encode,
    topic_tombstone,
)
from broker.metadata.records import (
    CONFIG_KINDS,
    BrokerRecord,
    ClusterRecord,
    ConfigsRecord,
    Endpoint,
    FeatureRecord,
    KeyValue,
    PartitionAssignment,
    ProducerIdsRecord,
    QuotaRecord,
    Record,
    ReplicaIdentity,
    Tombstone,
    TopicRecord,
)

node_ids = st.integers(0, 2**31 - 1)
names = st.text(min_size=1, max_size=20)
endpoints = st.builds(Endpoint, names, st.integers(0, 65535))
cluster_ids = names.filter(lambda text: cluster_id_problem(text) is None)
topic_names = st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,20}", fullmatch=True)

identities = st.builds(ReplicaIdentity, node_ids, st.uuids(), node_ids)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionAssignment:
    replicas = draw(st.lists(node_ids, min_size=1, max_size=5, unique=True))
    size = len(replicas)
    pool = draw(st.lists(st.uuids(), min_size=1, max_size=3))
    return PartitionAssignment(
        tuple(replicas),
        tuple(draw(st.lists(st.sampled_from(pool), min_size=size, max_size=size))),
        tuple(draw(st.lists(node_ids, min_size=size, max_size=size))),
        draw(st.none() | st.lists(st.tuples(node_ids, st.uuids()), min_size=1, max_size=3).map(tuple)),
        tuple(
            replica for replica in draw(st.lists(identities, max_size=3)) if replica.node_id not in replicas
        ),
        draw(st.none() | st.lists(node_ids, min_size=1, max_size=3).map(tuple)),
    )


records = st.one_of(
    st.builds(ClusterRecord, cluster_ids),
    st.builds(ProducerIdsRecord, st.integers(0, 2**63 - 1)),
    st.builds(FeatureRecord, st.just("transaction.version"), st.integers(0, 2)),
    st.builds(
        ConfigsRecord,
        st.sampled_from(CONFIG_KINDS),
        st.text(),
        st.dictionaries(st.text(), st.text(), min_size=1, max_size=3),
    ),
    st.builds(
        BrokerRecord,
        node_ids,
        st.uuids(),
        st.uuids(),
        st.dictionaries(names, endpoints, max_size=3),
        endpoints,
        st.none() | st.text(),
    ),
    st.builds(
        TopicRecord,
        st.uuids(),
        topic_names,
        st.lists(partitions(), max_size=6).map(tuple),
        st.dictionaries(st.text(), st.text(), max_size=3),
    ),
)


@given(records)
def test_a_record_survives_encoding(record: Record) -> None:
    assert decode(*encode(record)) == record


@pytest.mark.parametrize(
    "record",
    [
        ClusterRecord(""),
        ClusterRecord("one\nnode.id=7"),
        ClusterRecord("c" * 201),
        TopicRecord(UUID(int=7), "../../outside", ()),
        TopicRecord(UUID(int=7), "..", ()),
        BrokerRecord(3, UUID(int=1), UUID(int=2), {"L": Endpoint("h" * 256, 1)}, Endpoint("localhost", 1)),
        BrokerRecord(3, UUID(int=1), UUID(int=2), {"": Endpoint("host", 1)}, Endpoint("localhost", 1)),
        BrokerRecord(3, UUID(int=1), UUID(int=2), {}, Endpoint("", 1)),
        BrokerRecord(-3, UUID(int=1), UUID(int=2), {}, Endpoint("localhost", 1)),
        QuotaRecord((("user", None),), {"producer_byte_rate": float("nan")}),
        KeyValue(b"broker/x", None),
        KeyValue(b"topic/x", None),
        KeyValue(b"cluster", b"[" * 100_000),
    ],
    ids=repr,
)
def test_what_would_harm_a_node_cannot_be_read(record: Record | KeyValue) -> None:
    """A cluster id is a line of a file, a topic's name is a folder, a host goes into answers to clients."""
    with pytest.raises(MetadataRecordError):
        decode(*(record if isinstance(record, KeyValue) else encode(record)))


def test_keys_are_readable_and_name_one_thing_each() -> None:
    topic = TopicRecord(UUID(int=7), "orders", ())
    broker = BrokerRecord(3, UUID(int=1), UUID(int=2), {}, Endpoint("localhost", 1))
    assert encode(topic).key == b"topic/00000000-0000-0000-0000-000000000007"
    assert encode(broker).key == b"broker/3"
    assert encode(ProducerIdsRecord(0)).key == b"producer-ids"
    assert encode(ClusterRecord("x")).key == b"cluster"


def test_a_null_value_is_the_removal_of_what_the_key_names() -> None:
    assert decode(*topic_tombstone(UUID(int=7))) == Tombstone("topic", str(UUID(int=7)))


@given(st.sampled_from(CONFIG_KINDS), st.text())
def test_settings_vanish_with_the_last_of_them_whatever_the_name(kind: str, name: str) -> None:
    kept, removed = configs_record(kind, name, {"a": "b"}), configs_record(kind, name, {})
    assert kept.key == removed.key and removed.value is None
    tombstone = decode(*removed)
    assert isinstance(tombstone, Tombstone) and tombstone.kind == "configs"
    assert config_identity(tombstone.identifier) == (kind, name)


def test_a_topic_of_ten_thousand_partitions_fits_into_one_ordinary_batch() -> None:
    """Producers and replicas carry at most message.max.bytes (1 MiB) in a batch."""
    directories = (UUID(int=1 << 100), UUID(int=2 << 100), UUID(int=3 << 100))
    partition = PartitionAssignment((1001, 1002, 1003), directories, (0, 0, 0))
    value = encode(TopicRecord(UUID(int=7), "orders", (partition,) * 10_000)).value
    assert value is not None and len(value) < 500_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"acl/1", b"{}"),
        (b"acl/1", None),
        (b"\xff", b"{}"),
        (b"topic", b'{"version":0}'),
        (b"cluster/1", b'{"version":0,"cluster_id":"x"}'),
        (b"cluster", None),
        (b"cluster", b"not json"),
        (b"cluster", b"[]"),
        (b"cluster", b'{"cluster_id":"x"}'),
        (b"cluster", b'{"version":1,"cluster_id":"x"}'),
        (b"cluster", b'{"version":0,"cluster_id":5}'),
        (b"cluster", b'{"version":0,"cluster_id":"x","region":"y"}'),
        (b"producer-ids", b'{"version":0,"next_producer_id":-1}'),
        (b"producer-ids", b'{"version":0,"next_producer_id":true}'),
    ],
)
def test_what_this_build_cannot_read_is_refused_not_skipped(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MetadataRecordError):
        decode(key, value)


def topic_value(partition: object, founding: object = None) -> bytes:
    fields = {
        "version": 0,
        "name": "orders",
        "founding": founding or {},
        "directories": [str(UUID(int=1))],
        "partitions": [partition],
        "configs": {},
    }
    return json.dumps(fields).encode()


TOPIC_KEY = f"topic/{UUID(int=7)}".encode()


def test_a_topic_value_as_it_stands_in_the_log() -> None:
    record = decode(TOPIC_KEY, topic_value([[1, 0, 0]], {"0": [[2, 0]]}))
    partition = PartitionAssignment((1,), (UUID(int=1),), (0,), ((2, UUID(int=1)),))
    assert record == TopicRecord(UUID(int=7), "orders", (partition,))


@pytest.mark.parametrize(
    "partition",
    [[[1, 1, 0]], [[1, -1, 0]], [[1, 0]], [], [[1, 0, 0], [1, 0, 0]], [[1.5, 0, 0]], 3],
    ids=["unknown directory", "negative position", "short row", "no replica", "twice", "fraction", "no list"],
)
def test_a_malformed_partition_is_refused(partition: object) -> None:
    with pytest.raises(MetadataRecordError):
        decode(TOPIC_KEY, topic_value(partition))


@pytest.mark.parametrize("founding", [{"0": [[1, -1]]}, {"0": [[1, 1]]}, {"x": [[1, 0]]}, {"0": [[1]]}, [1]])
def test_malformed_founding_replicas_are_refused(founding: object) -> None:
    with pytest.raises(MetadataRecordError):
        decode(TOPIC_KEY, topic_value([[1, 0, 0]], founding))


@pytest.mark.parametrize(
    "removing", [{"0": [[2, 0]]}, {"0": [[2, 1, 0]]}, {"x": [[2, 0, 0]]}, {"0": [[1, 0, 0]]}, [1]]
)
def test_malformed_leaving_replicas_are_refused(removing: object) -> None:
    """A short row, an unknown directory, no partition, one that stays, no mapping."""
    fields = json.loads(topic_value([[1, 0, 0]]))
    with pytest.raises(MetadataRecordError):
        decode(TOPIC_KEY, json.dumps({**fields, "removing": removing}).encode())
