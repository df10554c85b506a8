"""The two queries: one transforms each record, the other counts records by key and window. Both read the same topic.

`kafka` is Spark's unmodified connector as source and sink. With `varve` as sink, the first query writes through
`format("varve")` exactly once; the source stays the connector, and so does the sink of the counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pipeline.datasource import VarveDataSource
from pipeline.streaming.spec import INPUT_SCHEMA_SQL, TAX_PERCENT, WINDOW_S, Topics

Sink = Literal["kafka", "varve"]
TRANSFORM = "transform"
COUNT = "count"
# At every start the same: the sink knows a task by its number.
_EXACTLY_ONCE_TASKS = 3


@dataclass(frozen=True, slots=True)
class QueryOptions:
    bootstrap_server: str
    topics: Topics
    checkpoints: Path
    """A folder with one checkpoint for each query, by its name."""
    sink: Sink = "kafka"
    trigger_ms: int = 500
    """A batch begins so long after the one before began, or when that has ended."""


def start_queries(spark: SparkSession, options: QueryOptions) -> list[StreamingQuery]:
    """Start both, or go on from their checkpoints."""
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.bootstrap_server)
        .option("subscribe", options.topics.source)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .load()
    )
    return [
        _start(_transformed(source), TRANSFORM, options.topics.sink, options.sink, options),
        _start(_counted(source), COUNT, options.topics.counts, "kafka", options),
    ]


def _start(frame: DataFrame, name: str, topic: str, sink: Sink, options: QueryOptions) -> StreamingQuery:
    if sink == "varve":
        # Spark finds it by itself only where this package is installed.
        frame.sparkSession.dataSource.register(VarveDataSource)
        # After a restart the connector reads the same offsets in other tasks. By key, each task has the same
        # records again, and the records of a key keep their order.
        frame = frame.repartition(_EXACTLY_ONCE_TASKS, "key")
        writer = frame.writeStream.format("varve").option("deliverySemantics", "exactly-once")
    else:
        writer = frame.writeStream.format("kafka")
    return (
        writer.queryName(name)
        .option("kafka.bootstrap.servers", options.bootstrap_server)
        .option("topic", topic)
        .option("checkpointLocation", str(options.checkpoints / name))
        # The transformation has the same answer in every mode; counts are told when they change.
        .outputMode("update" if name == COUNT else "append")
        .trigger(processingTime=f"{options.trigger_ms} milliseconds")
        .start()
    )


def _transformed(source: DataFrame) -> DataFrame:
    """Keep a part of each record, add what follows from it, and say where it came from."""
    fields = F.from_json(F.col("value").cast("string"), INPUT_SCHEMA_SQL)
    parsed = source.select("key", "partition", "offset", fields.alias("order"))
    value: Column = F.to_json(
        F.struct(
            "order.run",
            "order.sequence",
            "order.amount",
            F.expr(f"order.amount * {100 + TAX_PERCENT} div 100").alias("with_tax"),
            F.col("partition").alias("source_partition"),
            F.col("offset").alias("source_offset"),
        )
    )
    return parsed.select("key", value.alias("value"))


def _counted(source: DataFrame) -> DataFrame:
    """Without a watermark: a record that comes late counts, and the state is as large as the run."""
    counted = source.groupBy("key", F.window("timestamp", f"{WINDOW_S} seconds").alias("window")).count()
    window_start_s = F.unix_seconds("window.start")
    value = F.to_json(
        F.struct(
            F.col("key").cast("string").alias("key"),
            window_start_s.alias("window_start_s"),
            F.col("count").alias("records"),
        )
    )
    # Updates of one count go to one partition, so that the last of them is the newest.
    name = F.concat_ws("|", F.col("key").cast("string"), window_start_s.cast("string"))
    return counted.select(name.alias("key"), value.alias("value"))
