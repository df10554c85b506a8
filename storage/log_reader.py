"""Reading a log: by offset, by Raft index, by timestamp. Nothing here changes the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator
from typing import NamedTuple, TypeAlias

from protocol.records.batch import BatchHeader, TimestampType, check_crc
from protocol.records.walk import Walk, walk_in_steps
from storage.disk import File
from storage.errors import CorruptLogError
from storage.lineage import Lineage
from storage.log_types import FlushedEnd, LogRange, LogSlice
from storage.segment import Segment
from storage.segment_files import iter_headers


class StoredBatch(NamedTuple):
    """A batch where it lies on disk."""

    header: BatchHeader
    file: File
    position: int

    def view(self) -> memoryview:
        return self.file.read(self.position, self.header.size_bytes)


class TimestampedOffset(NamedTuple):
    """An answer to ListOffsets."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


#: Timestamps that every record has reached, and none.
_ANY_TIME_MS, _NO_TIME_MS = -(2**63), 2**63 - 1

#: Steps to an answer. See "by timestamp".
Lookup: TypeAlias = Generator[None, None, TimestampedOffset | None]


class ReadableLog:
    """The segments and the lineage of a partition, for readers.

    The log does not know how far a reader may look (high watermark, last stable offset): callers pass that bound.
    """

    #: Invariants: at least one segment; base offsets rise strictly and `_bases` mirrors them; only the last
    #: segment grows, and only it may be empty or hold bytes that are not durable;
    #: start_offset <= end_offset, and end_offset is the end of the last segment.
    _segments: list[Segment]
    _bases: list[int]
    #: The log start: everything below is deleted, though the bytes may still be here.
    start_offset: int
    end_offset: int

    def __init__(self, segments: list[Segment], lineage: Lineage, start_offset: int, end_offset: int) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.lineage = lineage
        self.start_offset = start_offset
        self.end_offset = end_offset

    @property
    def end_index(self) -> int:
        """Raft entries in the log: records and lineage rows."""
        return self.end_offset + len(self.lineage.rows)

    @property
    def end(self) -> FlushedEnd:
        """The end in the form in which it is flushed and recorded."""
        rows = len(self.lineage.rows)
        return FlushedEnd(self.end_offset + rows, rows)

    @property
    def size_bytes(self) -> int:
        """Of all batches that are stored, also below the log start. Padding and indexes do not count."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def active_size_bytes(self) -> int:
        return self._segments[-1].size_bytes

    @property
    def first_stored_offset(self) -> int:
        """Where the first segment begins: below it, everything was deleted. At or below the log start."""
        return self._bases[0]

    @property
    def active_segment_base(self) -> int:
        """Where the segment begins to which batches are appended, the last one."""
        return self._bases[-1]

    @property
    def active_segment_bytes(self) -> int:
        """Size of the segment to which batches are appended, without padding."""
        return self._segments[-1].size_bytes

    # -- by offset

    def read(
        self, offset: int, max_bytes: int, *, below_offset: int, at_least_one: bool = True
    ) -> LogSlice | None:
        """Whole batches from the one that holds `offset` on.

        All of them end at or below `below_offset`, and together they fit in `max_bytes`. With `at_least_one`, a larger
        first batch is given alone. A slice never crosses a segment. None: there is nothing to give.
        """
        assert offset <= self.end_offset, f"read at {offset}, the log ends at {self.end_offset}"
        if offset >= below_offset:
            return None
        first = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self._segments[first:]:
            if segment.base_offset >= below_offset:
                return None
            position, _ = segment.locate(offset)
            if position < segment.size_bytes:
                return self._slice(segment, position, max_bytes, below_offset, at_least_one)
        return None

    def _slice(
        self, segment: Segment, position: int, max_bytes: int, below_offset: int, at_least_one: bool
    ) -> LogSlice | None:
        """The part of one segment that a read gives, from the batch at `position` on."""
        end, next_offset = segment.size_bytes, segment.end_offset
        if next_offset > below_offset:
            end, next_offset = segment.locate(below_offset)
            if end <= position:
                return None
        if end - position > max_bytes:
            cut, cut_offset = segment.boundary(position + max_bytes)
            if cut > position:
                end, next_offset = cut, cut_offset
            elif at_least_one:
                _, header = next(iter_headers(segment.file, position, segment.size_bytes))
                end, next_offset = position + header.size_bytes, header.last_offset + 1
            else:
                return None
        segment.remember_position(next_offset, end, next_offset)
        return LogSlice(segment.file, position, end - position, next_offset)

    def batch_across(self, offset: int) -> BatchHeader | None:
        """The batch that begins below `offset` and goes on above it, if there is one. Where batches begin is what the
        ends of those before them say: the base offset of a batch may be corrupt."""
        if not self.first_stored_offset < offset < self.end_offset:
            return None
        segment = self._segments[bisect_right(self._bases, offset) - 1]
        position, previous_end = segment.locate(offset)
        if position == segment.size_bytes or previous_end == offset:
            return None
        _, header = next(iter_headers(segment.file, position, segment.size_bytes))
        return header if header.base_offset < offset else None

    def batches(self, from_offset: int, below_offset: int | None = None) -> Iterator[StoredBatch]:
        """Headers of all batches that end above `from_offset` and begin below `below_offset`.

        Walks the files, so it is for replays and look-ups, not for serving.
        """
        below = self.end_offset if below_offset is None else below_offset
        first = max(bisect_right(self._bases, from_offset) - 1, 0)
        for segment in self._segments[first:]:
            if segment.base_offset >= below:
                return
            start, _ = segment.locate(from_offset)
            for position, header in iter_headers(segment.file, start, segment.size_bytes):
                if header.base_offset >= below:
                    return
                yield StoredBatch(header, segment.file, position)

    # -- by Raft index

    def read_range(self, start_index: int, limit_index: int, max_bytes: int) -> LogRange:
        """What to send a follower that has everything below `start_index`, at most up to `limit_index`.

        The range ends at a batch, or at the first lineage row that it meets: nothing may follow a row before the row is
        durable at the follower (replication.md section 1).
        """
        assert start_index <= limit_index <= self.end_index
        rows = self.lineage.rows
        row_at = self.lineage.rows_below_index(start_index)
        row = rows[row_at] if row_at < len(rows) and rows[row_at].index < limit_index else None
        # Index and offset differ by the rows below: none lies between start and the row, or the limit.
        start_offset = start_index - row_at
        below_offset = row.offset if row is not None else limit_index - row_at
        data = self.read(start_offset, max_bytes, below_offset=below_offset)
        if data is not None and data.next_offset < below_offset:
            return LogRange(start_index, data.next_offset + row_at, data, None)
        if row is not None:
            return LogRange(start_index, row.index + 1, data, row)
        return LogRange(start_index, below_offset + row_at, data, None)

    # -- by timestamp
    #
    # A look-up is a generator, because a small batch can hold millions of records. It yields after each step, of less
    # than a millisecond. The log may change meanwhile: positions found before are void then.

    def offset_for_timestamp(self, timestamp_ms: int, below_offset: int) -> Lookup:
        """The first record with at least this timestamp, below `below_offset` (ListOffsets, KIP-79)."""
        batch = self._batch_for_timestamp(timestamp_ms, 0, below_offset)
        while batch is not None:
            found = yield from self._first_record(batch, timestamp_ms)
            if found is not None:
                return found if found.offset < below_offset else None
            batch = self._batch_for_timestamp(timestamp_ms, batch.header.next_offset, below_offset)
        return None

    def _batch_for_timestamp(
        self, timestamp_ms: int, from_offset: int, below_offset: int
    ) -> StoredBatch | None:
        """The first batch with at least this timestamp that ends above `from_offset`."""
        from_offset = max(from_offset, self.start_offset)
        for segment in self._segments:
            if segment.base_offset >= below_offset:
                return None
            if segment.max_timestamp[0] < timestamp_ms or segment.end_offset <= from_offset:
                continue
            start, _ = segment.locate(max(segment.offset_before(timestamp_ms), from_offset))
            for position, header in iter_headers(segment.file, start, segment.size_bytes):
                if header.max_timestamp >= timestamp_ms:
                    return StoredBatch(header, segment.file, position)
        return None

    def max_timestamp_offset(self, below_offset: int) -> Lookup:
        """The record with the largest timestamp below `below_offset` (ListOffsets -3, KIP-734)."""
        best: TimestampedOffset | None = None
        from_offset = self.start_offset
        first = next(self.batches(from_offset, below_offset), None)
        if (
            first is not None
            and first.header.base_offset < from_offset <= first.header.last_offset < below_offset
        ):
            # The log start lies inside this batch, and the header speaks of the whole batch.
            best = yield from self._largest_timestamp_in(first)
            from_offset = max(first.header.next_offset, self.start_offset)
        largest_ms = -1 if best is None else best.timestamp_ms
        batch: StoredBatch | None = None
        for segment in self._segments:
            if segment.base_offset >= below_offset:
                break
            if segment.max_timestamp[0] <= largest_ms or segment.end_offset <= from_offset:
                continue
            found = _batch_with_largest_timestamp(segment, from_offset, below_offset)
            if found is not None and found.header.max_timestamp > largest_ms:
                batch, largest_ms = found, found.header.max_timestamp
        if batch is None:
            return best
        return (yield from self._first_record(batch, largest_ms))

    def _first_record(self, batch: StoredBatch, timestamp_ms: int) -> Lookup:
        """The first record of a batch with at least this timestamp, at or above the log start."""
        header = batch.header
        is_log_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        wanted_ms = _ANY_TIME_MS if is_log_append_time else timestamp_ms
        walk = yield from _walk(batch, self.start_offset, wanted_ms)
        if walk.found is None:
            return None
        offset_delta, found_ms = walk.found
        if is_log_append_time:
            found_ms = header.max_timestamp  # of all records; what they say themselves does not count
        return TimestampedOffset(header.base_offset + offset_delta, found_ms, header.leader_epoch)

    def _largest_timestamp_in(self, batch: StoredBatch) -> Lookup:
        """The record of a batch with the largest timestamp, at or above the log start."""
        header = batch.header
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return (yield from self._first_record(batch, header.max_timestamp))
        walk = yield from _walk(batch, self.start_offset, None)
        if walk.max_timestamp_delta < 0:
            return None
        offset = header.base_offset + walk.max_timestamp_delta
        return TimestampedOffset(offset, walk.max_timestamp_ms, header.leader_epoch)


def _walk(batch: StoredBatch, from_offset: int, wanted_ms: int | None) -> Generator[None, None, Walk]:
    """Walks through the records of a batch, of which those from `from_offset` on count. The walk ends at the first that
    has at least the wanted timestamp. Raises CorruptLogError, KafkaError CORRUPT_MESSAGE."""
    header = batch.header
    data = batch.view()  # before the first step: later the file may be closed
    if not check_crc(data, 0, header):
        raise CorruptLogError(batch.file.path, batch.position, "checksum")
    walk = Walk(
        header.count,
        header.base_timestamp,
        is_consecutive=False,
        from_delta=max(from_offset - header.base_offset, 0),
        wanted_ms=_NO_TIME_MS if wanted_ms is None else wanted_ms,
    )
    for _ in walk_in_steps(walk, data, header):
        if walk.found is not None:
            break
        yield
    return walk


def _batch_with_largest_timestamp(
    segment: Segment, from_offset: int, below_offset: int
) -> StoredBatch | None:
    """The batch with the largest timestamp of those in [from_offset, below_offset)."""
    best: StoredBatch | None = None
    start, _ = segment.locate(max(segment.largest_timestamp_before(below_offset), from_offset))
    for position, header in iter_headers(segment.file, start, segment.size_bytes):
        if header.last_offset >= below_offset:
            break
        if best is None or header.max_timestamp > best.header.max_timestamp:
            best = StoredBatch(header, segment.file, position)
    return best
