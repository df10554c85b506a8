"""One pass of compaction over the segments of a log: reads them, builds those that take their place.

`clean` is the heavy part of a pass. It is a generator, so that the caller decides where it runs: in a process of its
own, or step by step on a loop. It changes nothing of the log but the folder of the segment that is being built. Which
records go is decided in `storage.compaction`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import KafkaError
from protocol.records.batch import HEADER_BYTES, MAGIC, MIN_LENGTH, BatchHeader, check_crc, parse_header
from protocol.records.builder import build_filler
from protocol.schema import Buffer
from storage.aborted_index import AbortedIndex, AbortedTransaction
from storage.compaction.aborted_data import AbortedData
from storage.compaction.batch_filter import BatchFilter, PassRules
from storage.compaction.counts import PassCounts
from storage.compaction.key_map import KeyMap
from storage.compaction.plan import SegmentFacts, group_segments
from storage.disk import Disk
from storage.errors import CorruptLogError
from storage.segment_files import segment_path
from storage.segment_swap import SegmentBuild

if TYPE_CHECKING:
    from storage.log import Log

#: Read and written at a time.
BLOCK_BYTES = 1 << 20
#: Positions in an index have 31 bits.
_MAX_SEGMENT_BYTES = (1 << 31) - 1


class UncleanableError(Exception):
    """A pass cannot go through this log, although its bytes are what was written."""


class CleaningTask(NamedTuple):
    """What a pass has to know. Offsets are exclusive upper bounds."""

    directory: str
    segments: Sequence[SegmentFacts]
    """All of the log; the last one, which is active, is not read."""
    rows: Sequence[tuple[int, int]]
    """(offset, term) of the rows of the lineage, rising. No filler spans one."""
    first_dirty_offset: int
    end_offset: int
    """The dirty range ends here, where a segment does."""
    rules: PassRules
    aborted: Sequence[AbortedTransaction]
    """Those with records in the sealed segments below `end_offset`."""
    map_bytes: int
    segment_bytes: int
    index_interval_bytes: int


class BytesMoved(NamedTuple):
    """So many bytes were read or written since the last event: for throttling."""

    byte_count: int


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
    counts: PassCounts


CleaningEvent = BytesMoved | MapReady | SegmentReady | PassOver
Cleaning = Generator[CleaningEvent, None, None]


def clean(disk: Disk, task: CleaningTask) -> Cleaning:
    """One pass. The last event is `PassOver`.

    Raises CorruptLogError for bytes that are not what was written; UncleanableError; KeyMapTooSmallError;
    DiskFullError; MissingPathError if the log has deleted a segment meanwhile. The log is as it was at the last event
    then, and the next pass begins anew.
    """
    source = _Source(disk, task)
    aborted = AbortedData(task.aborted)
    key_map = KeyMap(task.map_bytes, task.first_dirty_offset)
    yield from _fill_map(source, task, key_map, aborted)
    yield from source.moved(at_least_bytes=1)
    yield MapReady(key_map.end_offset)
    batch_filter = BatchFilter(key_map, aborted, task.rules)
    for group in group_segments(task.segments, key_map.end_offset, task.segment_bytes):
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
    yield PassOver(key_map.end_offset, batch_filter.counts)


def has_its_segments(log: Log) -> bool:
    """Whether all files of the log that a pass reads are there, by name. If not, somebody else has taken them away."""
    return all(log.disk.exists(segment_path(log.directory, each.base_offset)) for each in log.segments())


def _fill_map(source: _Source, task: CleaningTask, key_map: KeyMap, aborted: AbortedData) -> Cleaning:
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


class _Explaining:
    """Tells corruption from what a producer was allowed to write once, and compaction cannot read."""

    def __init__(self, path: str, header: BatchHeader, batch: memoryview) -> None:
        self._path = path
        self._header = header
        self._batch = batch

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, KafkaError):
            return
        where = f"the batch at {self._header.base_offset}"
        if not check_crc(self._batch, 0, self._header):
            raise CorruptLogError(self._path, 0, f"{where} fails its checksum") from error
        raise UncleanableError(f"{where} cannot be read: {error.message}") from error


class _Source:
    """The sealed segments of the log. What lies outside of the checksum of a batch is compared with where it stands."""

    def __init__(self, disk: Disk, task: CleaningTask) -> None:
        self._disk = disk
        self._directory = task.directory
        self._row_offsets = [offset for offset, _ in task.rows]
        self._row_terms = [term for _, term in task.rows]
        #: Bytes read and written since the last event.
        self.moved_bytes = 0

    def moved(self, at_least_bytes: int = BLOCK_BYTES) -> Iterator[BytesMoved]:
        if self.moved_bytes >= at_least_bytes:
            moved, self.moved_bytes = self.moved_bytes, 0
            yield BytesMoved(moved)

    def term_at(self, offset: int) -> int:
        at = bisect_right(self._row_offsets, offset) - 1
        return self._row_terms[at]

    def borders(self, from_offset: int, below_offset: int) -> list[int]:
        """Where rows stand strictly between the two."""
        first = bisect_right(self._row_offsets, from_offset)
        return sorted({offset for offset in self._row_offsets[first:] if offset < below_offset})

    def explaining(self, segment: SegmentFacts, header: BatchHeader, batch: memoryview) -> _Explaining:
        return _Explaining(segment_path(self._directory, segment.base_offset), header, batch)

    def batches(self, segment: SegmentFacts) -> Iterator[tuple[BatchHeader, memoryview]]:
        """All batches of a segment. Raises CorruptLogError, MissingPathError."""
        path = segment_path(self._directory, segment.base_offset)
        file = self._disk.open(path)
        position, end_offset, size = 0, segment.base_offset, segment.size_bytes
        block_start, block = 0, memoryview(b"")
        try:
            while position < size:
                at = position - block_start
                header, wanted = _batch_at(block, at)
                while header is None:
                    block = file.read(position, min(max(wanted, BLOCK_BYTES), size - position))
                    if len(block) < wanted:
                        raise CorruptLogError(path, position, "half a batch")
                    self.moved_bytes += len(block)
                    block_start, at = position, 0
                    header, wanted = _batch_at(block, 0)
                self._check_place(path, position, header, end_offset)
                yield header, block[at : at + header.size_bytes]
                position += header.size_bytes
                end_offset = header.next_offset
        finally:
            file.close()
        if end_offset != segment.end_offset:
            raise CorruptLogError(path, position, f"ends at {end_offset}, not at {segment.end_offset}")

    def _check_place(self, path: str, position: int, header: BatchHeader, end_offset: int) -> None:
        is_in_place = (
            header.magic == MAGIC
            and header.length >= MIN_LENGTH
            and header.base_offset == end_offset
            and header.leader_epoch == self.term_at(end_offset)
        )
        if not is_in_place:
            raise CorruptLogError(path, position, f"the batch at {end_offset} is not what was written")


def _batch_at(block: memoryview, at: int) -> tuple[BatchHeader | None, int]:
    """The header of the batch at this position. None: the block does not have all of it, and so many bytes are
    needed."""
    if at + HEADER_BYTES > len(block):
        return None, HEADER_BYTES
    header = parse_header(block, at)
    size_bytes = max(header.size_bytes, HEADER_BYTES)
    return (header, 0) if at + size_bytes <= len(block) else (None, size_bytes)


class _Rewriting:
    """Neighbouring segments on their way to becoming one.

    A single segment of which nothing changes is not built: nothing is written before the first change.
    """

    def __init__(
        self, disk: Disk, task: CleaningTask, source: _Source, group: Sequence[SegmentFacts]
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
