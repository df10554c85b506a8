"""Spark reads through `format("kafka")`: at once, or as a stream whose batches are kept by their numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.integration.harness import eventually
from tests.spark.target import LIMIT_S, Target

Options = dict[str, str]
#: The connector gives up on a record after this; a reader that hangs must fail before the test's limit.
POLL_TIMEOUT_MS = 20_000


def source_options(target: Target, options: Options) -> Options:
    return {
        "kafka.bootstrap.servers": target.bootstrap,
        "kafkaConsumer.pollTimeoutMs": str(POLL_TIMEOUT_MS),
        **options,
    }


class Reader:
    """What the tests ask of Spark: frames of the source, and streams that stop at the end of the test."""

    def __init__(self, spark: SparkSession, target: Target, folder: Path) -> None:
        self.spark = spark
        self.target = target
        self.folder = folder
        self._streams: list[Stream] = []

    def frame(self, **options: str) -> DataFrame:
        """A batch read, not yet carried out. Options as Spark names them; those with a dot through a dict."""
        return self.spark.read.format("kafka").options(**source_options(self.target, options)).load()

    def rows(self, **options: str) -> list[Row]:
        """All columns, in the order of topic, partition and offset."""
        return list(self.frame(**options).sort("topic", "partition", "offset").collect())

    def values(self, **options: str) -> list[str | None]:
        return values_of(self.rows(**options))

    def stream(self, checkpoint: str = "checkpoint", **options: str) -> Stream:
        stream = Stream(self, self.folder / checkpoint, options)
        self._streams.append(stream)
        return stream

    def close(self) -> None:
        for stream in self._streams:
            stream.stop()


class Stream:
    """A streaming query with a checkpoint. Its batches stay here by their number, also across its restarts."""

    def __init__(self, reader: Reader, checkpoint: Path, options: Options) -> None:
        self._reader = reader
        self._checkpoint = checkpoint
        self.options = options
        self.batches: dict[int, list[Row]] = {}
        self.after_batch: Callable[[int], None] | None = None
        """Called with the number of a batch when its records are here, before Spark commits it."""
        self._query: StreamingQuery | None = None

    def start(self, **trigger: Any) -> Stream:
        """Begin, or go on from the checkpoint. `trigger` as in availableNow=True; without, it runs until stopped."""
        options = source_options(self._reader.target, self.options)
        frame = self._reader.spark.readStream.format("kafka").options(**options).load()
        writer = frame.writeStream.foreachBatch(self._keep).option(
            "checkpointLocation", str(self._checkpoint)
        )
        self._query = (writer.trigger(**trigger) if trigger else writer).start()
        return self

    def _keep(self, frame: DataFrame, number: int) -> None:
        # A batch that is carried out again replaces its first attempt, as in an idempotent sink.
        rows = frame.selectExpr("*", "spark_partition_id() AS piece").collect()
        self.batches[number] = sorted(rows, key=lambda row: (row.topic, row.partition, row.offset))
        if self.after_batch is not None:
            self.after_batch(number)

    @property
    def query(self) -> StreamingQuery:
        assert self._query is not None
        return self._query

    def available_now(self) -> Stream:
        """Everything that is there now, then stopped. Raises what the query failed with."""
        self.start(availableNow=True)
        assert self.query.awaitTermination(int(LIMIT_S)), "the stream does not come to its end"
        return self

    def catch_up(self) -> Stream:
        """Until all that is in the topic now has gone through. Raises what the query failed with."""
        self.query.processAllAvailable()
        return self

    def wait_for(self, count: int) -> Stream:
        """Until so many records have come; for what is discovered only by a later trigger."""
        return self.wait_until(lambda: len(self.rows) >= count, f"{count} records")

    def wait_until(self, is_reached: Callable[[], bool], what: str) -> Stream:
        def look() -> bool:
            error = self.query.exception()
            if error is not None:
                raise error
            return is_reached()

        eventually(look, what, LIMIT_S)
        return self

    def failure(self) -> str:
        """Wait until the query fails, and return what it says."""
        eventually(lambda: not self.query.isActive, "the query to fail", LIMIT_S)
        error = self.query.exception()
        assert error is not None, "the query has ended without an error"
        return str(error)

    def stop(self) -> Stream:
        if self._query is not None:
            self._query.stop()
        return self

    @property
    def rows(self) -> list[Row]:
        return [row for _number, batch in sorted(self.batches.items()) for row in batch]

    @property
    def values(self) -> list[str | None]:
        return values_of(self.rows)

    @property
    def sizes(self) -> list[int]:
        """Of the batches that brought anything."""
        return [len(batch) for _number, batch in sorted(self.batches.items()) if batch]

    @property
    def end_offsets(self) -> dict[str, dict[str, int]]:
        """Up to where the stream has read, by topic and partition, as the checkpoint has it."""
        newest = max((self._checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        offsets: dict[str, dict[str, int]] = json.loads(newest.read_text().splitlines()[-1])
        return offsets


def values_of(rows: list[Row]) -> list[str | None]:
    return [None if row.value is None else bytes(row.value).decode() for row in rows]
