"""Plain values that the log, the journal and their callers exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from storage.disk import File
from storage.lineage import Row


class GroupKey(NamedTuple):
    """Which Raft group a log belongs to (replication.md section 4)."""

    topic_id: UUID
    partition: int


class FlushedEnd(NamedTuple):
    """How much of a log is durable: `end_index` Raft entries, `row_count` of them lineage rows."""

    end_index: int
    row_count: int
    #: False in the journal from before a truncation until its result is recorded. A process that is killed meanwhile
    #: may leave files that show the truncation although it is not durable: a loss of power may undo it.
    is_settled: bool = True

    @property
    def end_offset(self) -> int:
        return self.end_index - self.row_count


NOTHING_FLUSHED = FlushedEnd(0, 0)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The topic settings that shape a log. Names and defaults of all are Kafka's."""

    #: A segment is sealed before it would grow beyond this.
    segment_bytes: int = 1 << 30
    #: ... or when its first batch is older than this by the time of the newest.
    segment_ms: int = 7 * 24 * 3600 * 1000
    #: Bytes of batches between two entries of the sparse index.
    index_interval_bytes: int = 4096

    def __post_init__(self) -> None:
        assert 0 < self.segment_bytes < 1 << 31, "positions in index files are 31 bits"
        assert self.segment_ms > 0
        assert self.index_interval_bytes >= 0


class StoredSegment(NamedTuple):
    """A segment, as far as those have to know it who decide what goes."""

    base_offset: int
    end_offset: int
    """Base offset of the next segment, or the log end."""
    size_bytes: int
    max_timestamp_ms: int
    """Of its records. -1: unknown, or it has none."""


class LogSlice(NamedTuple):
    """Whole batches, contiguous in one file, as they lie on disk.

    The slice keeps its file open, so it stays readable when its segment is deleted meanwhile.
    """

    file: File
    position: int
    size_bytes: int
    #: One past the last offset of the last batch: where the next read begins.
    next_offset: int

    @property
    def first_offset(self) -> int:
        """Base offset of the first batch: at or below the offset asked for."""
        return int.from_bytes(self.file.read(self.position, 8), "big")

    def view(self) -> memoryview:
        return self.file.read(self.position, self.size_bytes)


class LogRange(NamedTuple):
    """A part of the Raft log, [start_index, end_index): batches, then at most one lineage row.

    `end_index` is the end of a batch or of a row. The first batch may be a filler that begins below `start_index`.
    """

    start_index: int
    end_index: int
    data: LogSlice | None
    row: Row | None


class FlushTicket(NamedTuple):
    """One flush of a log that is under way."""

    #: In the order in which they must become durable: lineage, then data.
    files: tuple[File, ...]
    #: What is durable when all of them are.
    end: FlushedEnd
    #: Truncations of the log before this flush. A later one makes the ticket void.
    truncation_count: int
