"""The batch and the stream reader: Spark's interfaces over planning.py (driver) and task_reader.py (executors)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pipeline.datasource.offsets import Offsets, Range, split
from pipeline.datasource.options import EARLIEST, LATEST, ReadOptions
from pipeline.datasource.planning import Planner
from pipeline.datasource.purge import Purge
from pipeline.datasource.task_reader import read_range


@dataclass
class RangePartition(InputPartition):
    """What one task reads."""

    range: Range


class BatchReader(DataSourceReader):
    """Reads between two offsets per partition that the driver fixes once, when Spark plans the query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options.for_batch()

    def partitions(self) -> list[InputPartition]:
        planner = Planner(self._options)
        return _tasks(self._options, planner.ranges(planner.start(EARLIEST), planner.end()))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver as long as the query. A copy of it, without the planner, goes to the tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options.for_stream()
        self._planner: Planner | None = None
        self._purge: Purge | None = None
        self._target: Offsets | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self._planning().start(LATEST).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        max_offsets = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if max_offsets is None else ReadMaxRows(max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._planning().everything()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        max_offsets = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._planning().next_end(Offsets.from_json(start), max_offsets, self._target)
        if self._purge is not None:
            self._purge.check({topic for topic, _ in end.next})
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What the last trigger saw, for the query's progress: no reason to ask the cluster once more."""
        seen = self._planning().seen
        return None if seen is None else seen.to_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        ranges = self._planning().ranges(Offsets.from_json(start), Offsets.from_json(end))
        return _tasks(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Spark has written everything below `end` and kept that in its checkpoint."""
        self._planning()
        if self._purge is not None:
            self._purge.after_commit(Offsets.from_json(end))

    def _planning(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
            if self._options.purge_interval_ms is not None:
                self._purge = Purge(self._planner.view, self._options.purge_interval_ms)
        return self._planner


def _tasks(options: ReadOptions, ranges: list[Range]) -> list[InputPartition]:
    return [RangePartition(each) for each in split(ranges, options.min_partitions)]


def _read(options: ReadOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    # Spark makes up a partition of its own where a batch has none.
    if not isinstance(partition, RangePartition):
        return iter(())
    return read_range(options, partition.range)
