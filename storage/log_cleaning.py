"""One pass of compaction over the segments of a log: reads them, builds those that take their place.

`clean` is the heavy part of a pass. It is a generator, so that the caller decides where it runs: in a process of its
own, or step by step on a loop. It changes nothing of the log but the folder of the segment that is being built. Which
records go is decided in `storage.compaction`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from protocol.records.batch import BatchHeader, parse_header
from protocol.records.builder import build_filler
from protocol.schema import Buffer
from storage.aborted_index import AbortedIndex, AbortedTransaction
from storage.batch_scan import BLOCK_BYTES, BatchScan, BytesMoved, UncleanableError
from storage.compaction.aborted_data import AbortedData
from storage.compaction.batch_filter import BatchFilter, PassRules
from storage.compaction.counts import PassCounts
from storage.compaction.key_map import KeyMap
from storage.compaction.plan import SegmentFacts, group_segments
from storage.disk import Disk
from storage.journal_records import UNSET
from storage.segment_swap import SegmentBuild

#: Positions in an index have 31 bits.
_MAX_SEGMENT_BYTES = (1 << 31) - 1


class CleaningTask(NamedTuple):
    """What a pass has to know. Offsets are exclusive upper bounds."""

    directory: str
    segments: Sequence[SegmentFacts]
    """All of the log; the last one, which is active, is not read."""
    rows: Sequence[tuple[int, int]]
    """(offset, term) of the rows of the lineage, rising. No filler spans one."""
    first_dirty_offset: int
    end_offset: int
    """The dirty range ends here, where a segment does, or is empty."""
    rules: PassRules
    aborted: Sequence[AbortedTransaction]
    """Those with records in the sealed segments below `end_offset`."""
    map_bytes: int
    segment_bytes: int
    index_interval_bytes: int


class MapReady(NamedTuple):
    """All keys below this offset are in the map. The pass cleans up to here."""

    end_offset: int


class SegmentReady(NamedTuple):
    """A segment is built, durably, in place of those with these base offsets. It takes their place when the log says
    so (`Log.swap`), which has to be before the generator goes on."""

    bases: tuple[int, ...]
    aborted: AbortedIndex
    """What was aborted in it, as readers must be told."""


class PassOver(NamedTuple):
    """Every segment is in place."""

    end_offset: int
    """The log is cleaned below. It lies below the end of the map where that is in a segment which was not rewritten."""
    transaction_free_end: int
    """Below it no batch carries the transactional bit as data. UNSET: the pass has left some in what it rewrote."""
    counts: PassCounts


CleaningEvent = BytesMoved | MapReady | SegmentReady | PassOver
Cleaning = Generator[CleaningEvent, None, None]


def clean(disk: Disk, task: CleaningTask) -> Cleaning:
    """One pass. The last event is `PassOver`.

    Raises CorruptLogError for bytes that are not what was written; UncleanableError; KeyMapTooSmallError;
    DiskFullError; MissingPathError if the log has deleted a segment meanwhile. The log is as it was at the last event
    then, and the next pass begins anew.
    """
    source = BatchScan(disk, task.directory, task.rows)
    aborted = AbortedData(task.aborted)
    key_map = KeyMap(task.map_bytes, task.first_dirty_offset)
    yield from _fill_map(source, task, key_map, aborted)
    yield from source.moved(at_least_bytes=1)
    yield MapReady(key_map.end_offset)
    batch_filter = BatchFilter(key_map, aborted, task.rules)
    rewritten_end = task.segments[0].base_offset
    for group in group_segments(task.segments, task.end_offset, key_map.end_offset, task.segment_bytes):
        rewriting = _Rewriting(disk, task, source, group)
        for segment in group:
            for header, batch in source.batches(segment):
                with source.explaining(segment, header, batch):
                    rewriting.add(header, batch, batch_filter.filter(batch))
                yield from source.moved()
        ready = rewriting.finish(key_map.end_offset)
        yield from source.moved(at_least_bytes=1)
        if ready is not None:
            yield ready
        rewritten_end = group[-1].end_offset
    counts = batch_filter.counts
    cleaned_end = min(key_map.end_offset, rewritten_end)
    yield PassOver(cleaned_end, cleaned_end if counts.is_transaction_free else UNSET, counts)


def _fill_map(source: BatchScan, task: CleaningTask, key_map: KeyMap, aborted: AbortedData) -> Cleaning:
    for segment in task.segments[:-1]:
        if segment.end_offset <= task.first_dirty_offset or segment.end_offset > task.end_offset:
            continue
        for header, batch in source.batches(segment):
            if header.next_offset <= task.first_dirty_offset:
                continue
            with source.explaining(segment, header, batch):
                if not key_map.add_batch(batch, aborted):
                    return
            yield from source.moved()


class _Rewriting:
    """Neighbouring segments on their way to becoming one.

    A single segment of which nothing changes is not built: nothing is written before the first change.
    """

    def __init__(
        self, disk: Disk, task: CleaningTask, source: BatchScan, group: Sequence[SegmentFacts]
    ) -> None:
        self._disk = disk
        self._task = task
        self._source = source
        self._group = group
        self._build: SegmentBuild | None = None
        #: Where the batches begin that were given and are not passed on yet, because nothing of them stays. They
        #: become a filler. -1: there are none.
        self._gap_from = -1
        #: The gap is this one batch, which is a filler already.
        self._old_filler: tuple[BatchHeader, memoryview] | None = None
        #: To be written together.
        self._buffers: list[Buffer] = []
        self._headers: list[BatchHeader] = []
        self._buffered_bytes = 0
        if len(group) > 1:
            self._begin()

    def add(self, header: BatchHeader, batch: memoryview, output: Buffer | None) -> None:
        """The next batch, and what becomes of it."""
        if output is None:
            self._old_filler = (header, batch) if header.is_filler and self._gap_from < 0 else None
            if self._gap_from < 0:
                self._gap_from = header.base_offset
            return
        self._close_gap(header.base_offset)
        is_changed = output is not batch
        self._put(parse_header(output) if is_changed else header, output, is_changed=is_changed)

    def finish(self, map_end_offset: int) -> SegmentReady | None:
        """Everything was given. None: nothing changes."""
        base_offset, end_offset = self._group[0].base_offset, self._group[-1].end_offset
        self._close_gap(end_offset)
        if self._build is None:
            return None
        self._write()
        aborted = AbortedIndex()
        for each in self._task.aborted:
            # With its data gone, it would make readers leave out what its producer writes later.
            if max(base_offset, map_end_offset) <= each.last_offset < end_offset:
                aborted.add(each)
        self._build.finish(end_offset, aborted)
        return SegmentReady(tuple(segment.base_offset for segment in self._group), aborted)

    def _close_gap(self, below_offset: int) -> None:
        start, self._gap_from = self._gap_from, -1
        if start < 0:
            return
        if self._old_filler is not None:
            self._put(*self._old_filler, is_changed=False)
            self._old_filler = None
            return
        for border in (*self._source.borders(start, below_offset), below_offset):
            filler = build_filler(start, border, self._source.term_at(start))
            self._put(parse_header(filler), filler, is_changed=True)
            start = border

    def _put(self, header: BatchHeader, data: Buffer, *, is_changed: bool) -> None:
        if self._build is None:
            if not is_changed:
                return
            self._begin()
            # The same batches as before, up to here.
            for old_header, old in self._source.batches(self._group[0]):
                if old_header.base_offset >= header.base_offset:
                    break
                self._buffer(old_header, old)
        self._buffer(header, data)

    def _begin(self) -> None:
        bases = [segment.base_offset for segment in self._group]
        self._build = SegmentBuild(self._disk, self._task.directory, bases, self._task.index_interval_bytes)

    def _buffer(self, header: BatchHeader, data: Buffer) -> None:
        self._buffers.append(data)
        self._headers.append(header)
        self._buffered_bytes += header.size_bytes
        if self._buffered_bytes >= BLOCK_BYTES:
            self._write()

    def _write(self) -> None:
        build = self._build
        assert build is not None
        if build.size_bytes + self._buffered_bytes > _MAX_SEGMENT_BYTES:
            raise UncleanableError("with delete horizons a segment would be larger than 2 GiB")
        build.append(self._buffers, self._headers)
        self._source.moved_bytes += self._buffered_bytes
        self._buffers, self._headers, self._buffered_bytes = [], [], 0
