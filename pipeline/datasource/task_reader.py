"""One task's reading: a range of one partition as Arrow batches, in a Python worker of an executor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from pipeline.datasource.cluster_view import QUIET, checked_client, logger
from pipeline.datasource.columns import ARROW, HEADERS
from pipeline.datasource.errors import ClusterUnavailable, DataLoss
from pipeline.datasource.offsets import Range, described
from pipeline.datasource.options import ReadOptions

_BATCH_RECORDS = 10_000
# Also how long the end of a range takes to be noticed where its last offsets hold no record.
_CONSUME_TIMEOUT_S = 0.1
_STALL_TIMEOUT_S = 120.0
_CLIENT_CONFIG: dict[str, Any] = {
    **QUIET,
    "group.id": "varve-spark-reader",  # asked for by librdkafka, never joined
    # A fetch at the end of the log waits for this long; the end is known only after it.
    "fetch.wait.max.ms": 100,
}
_OWN_CONFIG: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An offset that is gone is data loss, not a reason to go on elsewhere.
    "auto.offset.reset": "error",
    # The only sign of having passed offsets without a record: compacted, aborted, or markers of transactions.
    "enable.partition.eof": True,
}
# librdkafka counts timestamp types from "not available"; Kafka and the connector from CreateTime.
_TIMESTAMP_TYPES = {0: -1, 1: 0, 2: 1}


def read_range(options: ReadOptions, wanted: Range) -> Iterator[pa.RecordBatch]:
    """The range's records, in order. Raises DataLoss, and ClusterUnavailable after two minutes without progress."""
    consumer = checked_client(Consumer, {**_CLIENT_CONFIG, **options.client_config, **_OWN_CONFIG})
    try:
        yield from _RangeReader(consumer, options, wanted).batches()
    finally:
        consumer.close()


class _RangeReader:
    def __init__(self, consumer: Consumer, options: ReadOptions, wanted: Range) -> None:
        self._consumer = consumer
        self._options = options
        self._range = wanted
        # Every offset below it is read, or holds no record.
        self._position = wanted.start

    def batches(self) -> Iterator[pa.RecordBatch]:
        end = self._range.end
        self._assign()
        progress_at = time.monotonic()
        while self._position < end:
            before = self._position
            # Asking for more than is left would wait for the whole timeout.
            messages = self._consumer.consume(min(_BATCH_RECORDS, end - self._position), _CONSUME_TIMEOUT_S)
            records = [message for message in messages if message.error() is None]
            if records:
                self._position = _offset(records[-1]) + 1
                if self._position > end:
                    records = [record for record in records if _offset(record) < end]
            if records:
                yield _to_arrow(records, self._options.includes_headers)
            for message in messages:
                if (error := message.error()) is not None:
                    self._meet(error, message)
            if self._position > before or records:
                progress_at = time.monotonic()
            elif time.monotonic() - progress_at > _STALL_TIMEOUT_S:
                raise ClusterUnavailable(
                    f"{self._range.topic}-{self._range.partition}: nothing comes at offset {self._position}"
                    f" for {_STALL_TIMEOUT_S:.0f} s; the task should read up to {end - 1}"
                )

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(self._range.topic, self._range.partition, self._position)])

    def _meet(self, error: KafkaError, message: Message) -> None:
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._position = max(self._position, _offset(message))
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._go_past_what_is_gone()
        elif code in (
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._UNKNOWN_TOPIC,
            KafkaError._UNKNOWN_PARTITION,
        ):
            self._lose(self._range.end)
        elif not error.retriable() and code not in _TRANSIENT:
            raise KafkaException(error)

    def _go_past_what_is_gone(self) -> None:
        """The broker has nothing at this offset: the log begins later, or ends before it."""
        place = TopicPartition(self._range.topic, self._range.partition)
        low, _ = self._consumer.get_watermark_offsets(place, timeout=30, cached=False)
        self._lose(min(low, self._range.end) if low > self._position else self._range.end)
        self._assign()

    def _lose(self, until: int) -> None:
        lost = Range(self._range.topic, self._range.partition, self._position, until)
        what = f"records are gone that were to be read: {described([lost])}"
        if self._options.fails_on_data_loss:
            raise DataLoss(f"{what}. failOnDataLoss=false goes on with what there is")
        logger().warning("%s; going on, as failOnDataLoss=false says", what)
        self._position = until


# librdkafka reports these and goes on by itself; a lasting one ends in the stall.
_TRANSIENT = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE}


def _to_arrow(records: list[Message], includes_headers: bool) -> pa.RecordBatch:
    types_and_times = [record.timestamp() for record in records]
    columns: list[list[Any]] = [
        [record.key() for record in records],
        [record.value() for record in records],
        [record.topic() for record in records],
        [record.partition() for record in records],
        [record.offset() for record in records],
        [time_ms * 1000 for _, time_ms in types_and_times],
        [_TIMESTAMP_TYPES[kind] for kind, _ in types_and_times],
    ]
    schema = ARROW
    if includes_headers:
        columns.append([_header_rows(record) for record in records])
        schema = ARROW.append(HEADERS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _header_rows(record: Message) -> list[dict[str, Any]] | None:
    headers = record.headers()
    if not headers:
        return None
    assert isinstance(headers, list), "a consumed record's headers are pairs, in order"
    return [{"key": key, "value": value} for key, value in headers]


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a consumed record and the end of a partition have an offset"
    return offset
