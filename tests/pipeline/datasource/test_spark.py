"""`format("varve")` in a real Spark session against a real broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pipeline.datasource import VarveDataSource
from pipeline.datasource.options import WriteOptions
from pipeline.datasource.writers import StreamWriter
from tests.integration.harness import eventually
from tests.pipeline.datasource.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def stream(spark: SparkSession, topics: Topics, topic: str, **options: str) -> DataFrame:
    given = topics.options(topic, startingOffsets="earliest", **options)
    return spark.readStream.format("varve").options(**given).load()


def run(frame: DataFrame, name: str, **options: Any) -> StreamingQuery:
    """The query, when it has written all that there was."""
    query = frame.writeStream.format(name).options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_a_batch_and_a_stream_carry_every_record_once(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Also after a restart from the checkpoint, and with no more in a trigger than was asked for."""
    source, copy = topics.create("spark-source", 3), topics.create("spark-copy", 2)
    sink = {"bootstrap.servers": topics.bootstrap}
    numbers = spark.range(600).selectExpr("cast(id as string) key", "cast(id as string) value")
    numbers.write.format("varve").options(**sink, topic=source).mode("append").save()
    read = spark.read.format("varve").options(**topics.options(source, minPartitions="5")).load()
    assert read.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    rows = read.collect()
    assert sorted(int(row.value) for row in rows) == list(range(600))
    assert {row.partition for row in rows} == {0, 1, 2}
    assert all(row.key == row.value for row in rows)

    to_copy = {**sink, "topic": copy, "checkpointLocation": str(tmp_path / "checkpoint")}
    limited = stream(spark, topics, source, maxOffsetsPerTrigger="250")
    first = run(limited.select("key", "value"), "varve", **to_copy)
    sizes = [progress["numInputRows"] for progress in first.recentProgress if progress["numInputRows"]]
    assert sum(sizes) == 600
    assert len(sizes) == 3
    assert all(size <= 250 for size in sizes)
    topics.produce(source, range(600, 610), partition=1)
    second = run(limited.select("key", "value"), "varve", **to_copy)
    assert sum(progress["numInputRows"] for progress in second.recentProgress) == 10
    assert sorted(map(int, topics.committed_values(copy))) == list(range(610))


class _DyingWriter(StreamWriter):
    """The worker process of the task that writes partition 0 of batch 0 dies once."""

    def __init__(self, options: WriteOptions, schema: StructType, grave: Path, *, after_commit: bool) -> None:
        super().__init__(options, schema)
        self._grave, self._after_commit = grave, after_commit

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        done = super().write(iterator if self._after_commit else self._then_die(iterator))
        self._die()
        return done

    def _then_die(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from iterator
        self._die()

    def _die(self) -> None:
        try:
            self._grave.touch(exist_ok=False)
        except FileExistsError:
            return
        os._exit(1)


@pytest.mark.slow
@pytest.mark.parametrize("after_commit", [True, False])
def test_a_task_that_dies_around_its_commit_writes_exactly_once(
    spark: SparkSession, topics: Topics, tmp_path: Path, after_commit: bool
) -> None:
    """After the commit Spark never hears of it, and runs the batch again: the records must not come twice."""
    name = f"dying-{after_commit}".lower()
    source, copy = topics.create(f"{name}-source", 2), topics.create(f"{name}-copy", 2)
    topics.produce(source, range(50), 0)
    topics.produce(source, range(50, 100), 1)
    grave = tmp_path / "died"

    class Dying(VarveDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
            return _DyingWriter(WriteOptions.parse(self.options), schema, grave, after_commit=after_commit)

    spark.dataSource.register(Dying)
    options = {
        "bootstrap.servers": topics.bootstrap,
        "topic": copy,
        "deliverySemantics": "exactly-once",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    frame = stream(spark, topics, source).select("key", "value")
    with pytest.raises(StreamingQueryException):
        run(frame, name, **options)
    assert grave.exists()
    if after_commit:
        assert len(topics.committed_values(copy)) >= 50
    run(frame, name, **options)
    assert sorted(map(int, topics.committed_values(copy))) == list(range(100))
    topics.produce(source, range(100, 105), 1)
    run(frame, "varve", **options)
    assert sorted(map(int, topics.committed_values(copy))) == list(range(105))


@pytest.mark.slow
def test_a_stream_deletes_what_it_has_consumed_and_refuses_a_table(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, copy = topics.create("repartition"), topics.create("repartition-copy")
    topics.produce(topic, range(40))
    options = {
        "bootstrap.servers": topics.bootstrap,
        "topic": copy,
        "checkpointLocation": str(tmp_path / "a"),
    }
    frame = stream(spark, topics, topic, maxOffsetsPerTrigger="10", **{"repartition.purge.interval.ms": "0"})
    run(frame.select("value"), "varve", **options)
    # Spark tells a source of a batch's end with the next batch, and not of the last one.
    eventually(lambda: topics.earliest(topic) in (20, 30) or None, "the purge")
    run(frame.select("value"), "varve", **options)
    assert sorted(map(int, topics.committed_values(copy))) == list(range(40))

    table = topics.create("repartition-table", cleanup_policy="compact")
    topics.produce(table, range(3))
    frame = stream(spark, topics, table, purgeConsumedRecords="true").select("value")
    with pytest.raises(StreamingQueryException, match="repartition-table: consumed records cannot be purged"):
        run(frame, "varve", **options | {"checkpointLocation": str(tmp_path / "b")})


@pytest.mark.slow
def test_spark_shows_the_message_of_a_refusal(spark: SparkSession, topics: Topics) -> None:
    with pytest.raises(Exception, match="startingoffset: no such option; is startingOffsets meant"):
        spark.read.format("varve").options(**topics.options("t", startingOffset="earliest")).load()
