"""Reading a topic back as a Spark frame: by the official connector, or by Python where that cannot be had.

Both give the connector's columns: key, value, topic, partition, offset, timestamp, timestampType, headers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from pyspark.sql import DataFrame, SparkSession

Ranges = dict[int, tuple[int, int]]
"""First offset and end offset (exclusive) to read, per partition."""

READ_SCHEMA_SQL = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int, headers array<struct<key: string, value: binary>>"
)
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_READ_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
    ]
)
_BATCH_RECORDS = 5_000
# Without a record for this long, the partition is unreadable.
_STALL_TIMEOUT_S = 60.0
# librdkafka counts timestamp types from "not available"; Kafka and the connector from CreateTime.
_TIMESTAMP_TYPES = {0: -1, 1: 0, 2: 1}


def read_by_connector(spark: SparkSession, bootstrap_server: str, topic: str, ranges: Ranges) -> DataFrame:
    """The ranges through `format("kafka")`, whose jars the session was started with."""

    def offsets(bound: int) -> str:
        return json.dumps({topic: {str(partition): both[bound] for partition, both in ranges.items()}})

    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_server)
        .option("assign", json.dumps({topic: sorted(ranges)}))
        .option("startingOffsets", offsets(0))
        .option("endingOffsets", offsets(1))
        .option("includeHeaders", "true")
        # The connector asks for the log's bounds at every poll: fewer, larger polls read up to 1.6 times faster.
        .option("kafka.max.poll.records", "5000")
        .load()
    )


def read_by_python(spark: SparkSession, bootstrap_server: str, topic: str, ranges: Ranges) -> DataFrame:
    """The same through confluent-kafka in Python workers: one task per partition."""
    rows = [(partition, start, end) for partition, (start, end) in sorted(ranges.items())]
    assignments = spark.createDataFrame(rows, "partition int, start bigint, end bigint")
    return assignments.repartitionByRange(len(rows), "partition").mapInArrow(
        _reading(bootstrap_server, topic), READ_SCHEMA_SQL
    )


def _reading(
    bootstrap_server: str, topic: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _read_partition(
                    bootstrap_server, topic, row["partition"], row["start"], row["end"]
                )

    return task


def _read_partition(
    bootstrap_server: str, topic: str, partition: int, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """The records with start <= offset < end, as the consumer delivers them."""
    if start >= end:
        return
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_server,
            "client.id": "varve-pipeline-verify",
            "group.id": "varve-pipeline-verify",  # asked for, never joined
            "enable.auto.commit": False,
            # An offset that is gone is a finding, not a reason to go on elsewhere.
            "auto.offset.reset": "error",
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, partition, start)])
    next_offset = start
    last_record_at = time.monotonic()
    try:
        while next_offset < end:
            # Asking for more than is left would wait for the whole timeout.
            messages = consumer.consume(min(_BATCH_RECORDS, end - next_offset), timeout=0.2)
            for message in messages:
                if (error := message.error()) is not None and not error.retriable():
                    raise KafkaException(error)
            records = [message for message in messages if message.error() is None]
            if records:
                next_offset = _offset(records[-1]) + 1
                last_record_at = time.monotonic()
                yield _to_arrow(records)
            elif time.monotonic() - last_record_at > _STALL_TIMEOUT_S:
                raise TimeoutError(f"{topic}-{partition}: nothing at offset {next_offset}, end {end}")
    finally:
        consumer.close()


def _to_arrow(records: list[Message]) -> pa.RecordBatch:
    types_and_times = [record.timestamp() for record in records]
    columns: list[tuple[list[Any], pa.DataType]] = [
        ([record.key() for record in records], pa.binary()),
        ([record.value() for record in records], pa.binary()),
        ([record.topic() for record in records], pa.string()),
        ([record.partition() for record in records], pa.int32()),
        ([record.offset() for record in records], pa.int64()),
        ([time_ms * 1000 for _, time_ms in types_and_times], pa.timestamp("us", tz="UTC")),
        ([_TIMESTAMP_TYPES[kind] for kind, _ in types_and_times], pa.int32()),
        ([_header_rows(record) for record in records], _HEADERS),
    ]
    return pa.RecordBatch.from_arrays([pa.array(*column) for column in columns], schema=_READ_SCHEMA)


def _header_rows(record: Message) -> list[dict[str, Any]] | None:
    headers = record.headers()
    if not headers:
        return None
    assert isinstance(headers, list), "a consumed record's headers are pairs, in order"
    return [{"key": key, "value": value} for key, value in headers]


def _offset(record: Message) -> int:
    offset = record.offset()
    assert offset is not None, "a consumed record has an offset"
    return offset
