"""The sink: where a row goes, what becomes of its columns, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from tests.integration.harness import eventually
from tests.spark.options import FROM_START
from tests.spark.target import LIMIT_S, Target, numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.spark.reading import Reader

pytestmark = pytest.mark.slow


def write(reader: Reader, frame: DataFrame, **options: str) -> None:
    named = {"kafka.bootstrap.servers": reader.target.bootstrap, **options}
    frame.write.format("kafka").options(**named).save()


def received(target: Target, topic: str, partitions: int = 1) -> list[Message]:
    """All records of the topic by another client than Java's, by partition and offset."""
    settings = {"bootstrap.servers": target.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "log_level": 2})
    ends = target.ends(topic, partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    try:
        messages: list[Message] = []
        while len(messages) < sum(ends.values()):
            came = consumer.consume(sum(ends.values()) - len(messages), LIMIT_S)
            assert came, f"{len(messages)} of {ends}"
            assert not [message.error() for message in came if message.error()]
            messages += came
        return sorted(messages, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


def test_topic_by_option(target: Target, reader: Reader, name: str) -> None:
    target.create(name, 3)
    frame = reader.spark.range(1000).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(id % 50 AS STRING) AS key"
    )
    write(reader, frame, topic=name)
    messages = received(target, name, 3)
    assert sorted(int(message.value() or b"") for message in messages) == list(range(1000))
    where = {(message.key(), message.partition()) for message in messages}
    assert len(where) == 50, "a key is in one partition only"


def test_topic_by_column_and_the_option_that_overrules_it(target: Target, reader: Reader, name: str) -> None:
    for suffix in "abc":
        target.create(f"{name}-{suffix}")
    frame = reader.spark.range(100).selectExpr(
        f"IF(id % 4 = 0, '{name}-a', '{name}-b') AS topic", "CAST(id AS STRING) AS value"
    )
    write(reader, frame)
    assert target.ends(f"{name}-a") == {0: 25}
    assert target.ends(f"{name}-b") == {0: 75}
    write(reader, frame, topic=f"{name}-c")
    assert target.ends(f"{name}-c") == {0: 100}
    assert target.ends(f"{name}-a") == {0: 25}


def test_headers_partition_and_nulls(target: Target, reader: Reader, name: str) -> None:
    target.create(name, 4)
    frame = reader.spark.sql(
        """
        SELECT * FROM VALUES
          ('k', 'v', 3, array(named_struct('key', 'h', 'value', CAST('1' AS BINARY)),
                              named_struct('key', 'h', 'value', CAST(NULL AS BINARY)))),
          (NULL, 'no key', 2, NULL), ('no value', NULL, 1, NULL), (NULL, NULL, 0, NULL)
          AS rows(key, value, partition, headers)
        """
    )
    write(reader, frame, topic=name, includeHeaders="true")
    assert [(x.partition(), x.key(), x.value(), x.headers()) for x in received(target, name, 4)] == [
        (0, None, None, None),
        (1, b"no value", None, None),
        (2, None, b"no key", None),
        (3, b"k", b"v", [("h", b"1"), ("h", None)]),
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression(target: Target, reader: Reader, name: str, codec: str) -> None:
    target.create(name)
    frame = reader.spark.range(2000).selectExpr("CAST(id AS STRING) AS value").coalesce(1)
    write(reader, frame, topic=name, **{"kafka.compression.type": codec})
    assert [message.value() for message in received(target, name)] == [b"%d" % n for n in range(2000)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acknowledgements(target: Target, reader: Reader, name: str, acks: str) -> None:
    target.create(name)
    frame = reader.spark.range(200).selectExpr("CAST(id AS STRING) AS value").coalesce(1)
    options = {"kafka.acks": acks, "kafka.enable.idempotence": str(acks == "all").lower()}
    write(reader, frame, topic=name, **options)
    if acks != "all":
        # Readers see a record when the followers have it, and the sink has not waited for that.
        eventually(lambda: target.ends(name) == {0: 200}, "all records", LIMIT_S)
    assert [message.value() for message in received(target, name)] == [b"%d" % n for n in range(200)]


def test_a_topic_that_is_created_by_writing(target: Target, reader: Reader, name: str) -> None:
    assert name not in target.topics()
    write(reader, reader.spark.range(50).selectExpr("CAST(id AS STRING) AS value"), topic=name)
    assert sum(target.ends(name).values()) == 50


#: A producer waits so long for a partition that may yet be added.
BRIEFLY = {"kafka.max.block.ms": "5000"}
REFUSED = [
    pytest.param("'v' AS value", {"topic": "no/such name"}, "(?i)invalid ?topic", id="name-of-topic"),
    pytest.param("'v' AS value", {}, "(?i)topic option required|attribute.* not found|topic", id="no-topic"),
    pytest.param("CAST(NULL AS STRING) AS topic, 'v' AS value", {}, "(?i)null topic", id="null-topic"),
    pytest.param("'v' AS other", {"topic": "NAME"}, "(?i)value.* not found|value", id="no-value"),
    pytest.param("1.5D AS value", {"topic": "NAME"}, "(?i)type", id="type-of-value"),
    pytest.param("'v' AS value, 7 AS partition", {"topic": "NAME", **BRIEFLY}, "(?i)partition", id="partition"),
    pytest.param("repeat('v', 2000000) AS value", {"topic": "NAME"}, "(?i)too ?large|larger than", id="too-large"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "options", "said"), REFUSED)
def test_what_is_refused(
    target: Target, reader: Reader, name: str, columns: str, options: dict[str, str], said: str
) -> None:
    """The last one passes the client's own limit, and is the broker's to refuse."""
    target.create(name)
    limits = {"kafka.max.request.size": "5000000"}
    named = {key: value.replace("NAME", name) for key, value in options.items()}
    with pytest.raises(Exception, match=said):
        write(reader, reader.spark.sql(f"SELECT {columns}"), **named, **limits)
    assert target.ends(name) == {0: 0}


def test_a_stream_from_topic_to_topic(target: Target, reader: Reader, name: str, tmp_path: Path) -> None:
    """Source, transformation and sink; the second run writes only what is new."""
    target.create(f"{name}-in", 2)
    target.create(f"{name}-out", 2)
    target.write(f"{name}-in", numbers(0, 60))
    target.write(f"{name}-in", numbers(60, 100), partition=1)

    def run() -> list[str]:
        options = {"kafka.bootstrap.servers": target.bootstrap, "subscribe": f"{name}-in", **FROM_START}
        source = reader.spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger="30").load()
        query = (
            source.selectExpr("key", "upper(CAST(value AS STRING)) AS value", "partition")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", target.bootstrap)
            .option("topic", f"{name}-out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(int(LIMIT_S))
        return [(message.value() or b"").decode() for message in received(target, f"{name}-out", 2)]

    assert run() == numbers(0, 100, "V")
    assert target.ends(f"{name}-out", 2) == {0: 60, 1: 40}
    target.write(f"{name}-in", numbers(100, 105), partition=1)
    assert run() == numbers(0, 105, "V")


def test_a_stream_by_topic_column(target: Target, reader: Reader, name: str, tmp_path: Path) -> None:
    for suffix in ("in", "even", "odd"):
        target.create(f"{name}-{suffix}")
    target.write(f"{name}-in", [json.dumps(number) for number in range(31)])
    options = {"kafka.bootstrap.servers": target.bootstrap, "subscribe": f"{name}-in", **FROM_START}
    source = reader.spark.readStream.format("kafka").options(**options).load()
    topic = f"IF(CAST(CAST(value AS STRING) AS INT) % 2 = 0, '{name}-even', '{name}-odd') AS topic"
    query = (
        source.selectExpr(topic, "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", target.bootstrap)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )  # fmt: skip
    assert query.awaitTermination(int(LIMIT_S))
    assert (target.ends(f"{name}-even"), target.ends(f"{name}-odd")) == ({0: 16}, {0: 15})
