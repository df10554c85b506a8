"""The batch writer and the stream writer: Spark's interfaces over sender.py and exactly_once.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pipeline.datasource.errors import InvalidOption
from pipeline.datasource.exactly_once import TaskOfBatch, send_exactly_once
from pipeline.datasource.options import WriteOptions
from pipeline.datasource.rows import check_schema
from pipeline.datasource.sender import send_at_least_once

# Local properties that Spark sets for the jobs of a micro-batch; the writer's interface passes neither on.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass
class Sent(WriterCommitMessage):
    """What a task says to the driver."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    """Appends at least once: a task that Spark runs again sends its records again."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise InvalidOption("a topic cannot be overwritten: use mode('append')")
        if options.exactly_once:
            raise InvalidOption(
                "deliverySemantics=exactly-once: only for writeStream, whose batches have numbers"
            )
        check_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Sent(send_at_least_once(self._options, iterator))


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends at least once, or exactly once where the options say so."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if not self._options.exactly_once:
            return Sent(send_at_least_once(self._options, iterator))
        return Sent(send_exactly_once(self._options, _this_task(), iterator))


def _this_task() -> TaskOfBatch:
    context = TaskContext.get()
    assert context is not None, "Spark calls a writer within a task"
    query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    assert query_id is not None and batch_id is not None, "a task of a streaming query knows both"
    return TaskOfBatch(query_id, int(batch_id), context.partitionId())
