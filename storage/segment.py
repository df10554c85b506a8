"""One segment: a file of record batches and the two sparse indexes into it.

The indexes of a sealed segment are loaded when they are first needed; those of the active one grow with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from protocol.records.batch import HEADER_BYTES, MIN_LENGTH, BatchHeader, parse_header
from storage.disk import Disk, File, MissingPathError
from storage.errors import CorruptLogError
from storage.offset_index import IndexDamagedError, OffsetIndex, TimeIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"

#: Headers are walked in blocks of this size: forty batches of 100 bytes per read, and no more than one read
#: wasted on batches larger than it.
WALK_BLOCK_BYTES = 16 * 1024

#: What `Segment.write_again` moves at once.
REWRITE_BLOCK_BYTES = 1 << 20

#: Offsets in an index are relative to the segment's base and 31 bits wide.
MAX_RELATIVE_OFFSET = (1 << 31) - 1

#: Positions of recent batch boundaries kept per segment, so that a reader near the end finds its place
#: without index and walk.
MAX_CURSORS = 64


def segment_path(directory: str, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


def iter_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Walk batch headers in [position, end). Raises CorruptLogError at bytes that are no header."""
    block_start = block_end = position
    block = memoryview(b"")
    while position < end:
        if position + HEADER_BYTES > block_end:
            block_start = position
            block = file.read(position, min(WALK_BLOCK_BYTES, end - position))
            block_end = block_start + len(block)
            if len(block) < HEADER_BYTES:
                raise CorruptLogError(file.path, position, "half a batch header")
        header = parse_header(block, position - block_start)
        if header.length < MIN_LENGTH or position + header.size_bytes > end:
            raise CorruptLogError(file.path, position, f"a batch of {header.length} bytes")
        yield position, header
        position += header.size_bytes


class Segment:
    """A segment file with base offset, size, indexes and what retention needs to know."""

    __slots__ = (
        "_bytes_since_index",
        "_cursors",
        "_directory",
        "_disk",
        "_end_offset",
        "_file",
        "_first_timestamp_ms",
        "_index",
        "_index_interval_bytes",
        "_is_loaded",
        "_is_proven",
        "_max_timestamp",
        "_time_index",
        "base_offset",
        "path",
        "size_bytes",
    )

    #: Invariants: the file holds whole batches in exactly `size_bytes` bytes, behind which the active one may be padded
    #: (`File.append`); their offsets lie in [base_offset, end_offset). `_cursors` maps an offset to (position, previous
    #: end): the first batch with a last offset at or above the key starts at that position, or the batches end there;
    #: the batch before it ends at that previous end. Appending keeps this true; cutting clears the map.
    size_bytes: int
    _cursors: dict[int, tuple[int, int]]

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, file: File, index_interval_bytes: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        self.path = file.path
        self._file: File | None = file
        self.size_bytes = file.size
        self._index_interval_bytes = index_interval_bytes
        self._reset()

    def _reset(self) -> None:
        self._index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._end_offset = self.base_offset
        self._bytes_since_index = 0
        # (timestamp ms, last offset of its batch) of the youngest batch; (-1, base) when there is none.
        self._max_timestamp = (-1, self.base_offset)
        self._first_timestamp_ms: int | None = None
        self._cursors = {}
        self._is_loaded = self.size_bytes == 0
        # Whether this process made the indexes. Those of a file may have rotted, and Kafka's layout has no checksum:
        # an entry of theirs is compared with the batch that it names before anybody starts there.
        self._is_proven = True

    # -- the file

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def release_file(self) -> None:
        """Drop the descriptor until it is needed again. The file must be durable."""
        self._file = None

    def path_of(self, suffix: str) -> str:
        return segment_path(self._directory, self.base_offset, suffix)

    # -- growing

    def note(self, header: BatchHeader, position: int) -> None:
        """Account for the batch at `position`, the next one after those noted before."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self._max_timestamp[0]:
            self._max_timestamp = (header.max_timestamp, last_offset)
        if position == 0:
            self._first_timestamp_ms = header.max_timestamp
        if self._bytes_since_index > self._index_interval_bytes:
            self._index.add(last_offset, position)
            if self._max_timestamp[0] >= 0:
                self._time_index.add(*self._max_timestamp)
            self._bytes_since_index = 0
        self._bytes_since_index += header.length + 12
        self._end_offset = last_offset + 1

    def remember(self, offset: int, position: int, previous_end: int) -> None:
        """Note where reading at `offset` starts (see the invariant of `_cursors`)."""
        cursors = self._cursors
        cursors[offset] = (position, previous_end)
        if len(cursors) > MAX_CURSORS:
            del cursors[next(iter(cursors))]

    def forget(self) -> None:
        """Nothing noted so far counts: the file will be scanned again."""
        self._reset()

    def mark_scanned(self) -> None:
        """The whole file was noted batch by batch: nothing is left to load."""
        self._is_loaded = True

    def write_again(self, offset: int) -> None:
        """Have the next flush write what lies at or above `offset`, whatever the page cache thinks of it."""
        position = self.locate(offset)[0]
        while position < self.size_bytes:
            data = self.file.read(position, REWRITE_BLOCK_BYTES)
            self.file.write_at(position, data)
            position += len(data)

    def cut_padding(self, position: int) -> None:
        """The file was found to end there, but for the padding that another process left. Index and tail were noted."""
        self.file.truncate(position)
        self.size_bytes = position

    def cut(self, position: int, end_offset: int) -> None:
        """Keep what lies before `position`, the end of a batch, durably. Index files go; the caller flushes
        the folder. `end_offset` is above every offset kept and at or below every offset cut."""
        self._load()
        self.delete_index_files()
        self.file.truncate(position)
        self.file.flush()
        self.size_bytes = position
        self._cursors.clear()
        self._index.truncate(position)
        self._time_index.truncate(end_offset)
        self._note_tail()

    # -- indexes

    @property
    def end_offset(self) -> int:
        """One past the last offset in the file; the base offset where it is empty."""
        self._load()
        return self._end_offset

    @property
    def index(self) -> OffsetIndex:
        self._load()
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        self._load()
        return self._time_index

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """(timestamp ms, last offset of the batch that holds it) of the youngest record, or (-1, base)."""
        self._load()
        return self._max_timestamp

    @property
    def first_timestamp_ms(self) -> int | None:
        """Largest timestamp of the first batch; None where there is no batch."""
        if self._first_timestamp_ms is None and self.size_bytes:
            self._first_timestamp_ms = parse_header(self.file.read(0, HEADER_BYTES), 0).max_timestamp
        return self._first_timestamp_ms

    def _load(self) -> None:
        """Take the indexes from their files and walk what follows the last entry."""
        if self._is_loaded:
            return
        is_file_open = self._file is not None
        try:
            self._load_index_files()
            self._check_last_entries()
        except (MissingPathError, IndexDamagedError):
            self._reset()
        self._note_tail()
        self._is_loaded = True
        if not is_file_open:
            # Retention asks every segment of a log for its youngest record, and none of them for data.
            self.release_file()

    def _rebuild_indexes(self) -> None:
        """From the segment itself. The files go, so that nobody meets them again."""
        self._reset()
        self.delete_index_files()
        self._note_tail()
        self._is_loaded = True

    def _check_last_entries(self) -> None:
        """The walk begins at the last entry, and retention believes the last time. Raises IndexDamagedError."""
        youngest = self._time_index.last()
        is_rotten = len(self._index) and not self._names_batch(*self._index.last())
        if is_rotten or (youngest is not None and not self._names_youngest(*youngest)):
            raise IndexDamagedError("the last entry names no batch of the segment")

    def _names_batch(self, last_offset: int, position: int) -> bool:
        """Whether a batch with this last offset starts at this position."""
        header = self._header_at(position)
        return header is not None and header.last_offset == last_offset

    def _names_youngest(self, timestamp_ms: int, last_offset: int) -> bool:
        """Whether the batch with this last offset has this timestamp."""
        position = self._proven_start(self._index.entry_at_or_before(last_offset))
        if position is None:
            return False
        for _, header in iter_headers(self.file, position, self.size_bytes):
            if header.last_offset >= last_offset:
                return header.last_offset == last_offset and header.max_timestamp == timestamp_ms
        return False

    def _proven_start(self, entry: tuple[int, int] | None) -> int | None:
        """The position of an entry (0 where there is none), None if it has rotted."""
        if entry is None:
            return 0
        return entry[1] if self._is_proven or self._names_batch(*entry) else None

    def _header_at(self, position: int) -> BatchHeader | None:
        data = self.file.read(position, HEADER_BYTES)
        return parse_header(data, 0) if len(data) == HEADER_BYTES else None

    def _note_tail(self) -> None:
        """Walk from the last index entry to the end, for what the indexes do not say."""
        self._end_offset = self.base_offset
        self._max_timestamp = self._time_index.last() or (-1, self.base_offset)
        self._first_timestamp_ms = None
        # The last indexed batch is noted again: counting from zero keeps it from being indexed twice.
        self._bytes_since_index = 0
        for at, header in iter_headers(self.file, self._index.last_position(), self.size_bytes):
            is_next = self._end_offset <= header.base_offset <= header.last_offset
            if not is_next or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
                raise CorruptLogError(self.path, at, f"a batch at {header.base_offset}")
            self.note(header, at)
        if self._index.last_position():
            # The walk began in the middle: the first batch is read when somebody asks.
            self._first_timestamp_ms = None

    def _load_index_files(self) -> None:
        self._reset()
        if not self._disk.exists(self.path_of(INDEX_SUFFIX)):
            return
        self._is_proven = False
        data = self._read_whole(self.path_of(INDEX_SUFFIX))
        self._index = OffsetIndex.decode(self.base_offset, data, self.size_bytes)
        self._time_index = TimeIndex.decode(
            self.base_offset, self._read_whole(self.path_of(TIME_INDEX_SUFFIX))
        )

    def _read_whole(self, path: str) -> memoryview:
        file = self._disk.open(path)
        try:
            return file.read(0, file.size)
        finally:
            file.close()

    def write_index_files(self, *, is_sealed: bool) -> None:
        """Write both indexes durably, under their names only when they are whole.

        A file under its own name is therefore never torn; the rename itself may be lost, then the indexes
        are rebuilt. The last time entry of a sealed segment is its youngest record (as in Kafka). Nothing
        is written for a segment with no index entry: walking it costs less than two files.
        """
        if not len(self.index):
            self.delete_index_files()
            return
        if is_sealed and self._max_timestamp[0] >= 0:
            self._time_index.add(*self._max_timestamp)
        # The time index first: it is harmless without its partner, the offset index is not.
        for suffix, data in (
            (TIME_INDEX_SUFFIX, self._time_index.encode()),
            (INDEX_SUFFIX, self._index.encode()),
        ):
            path = self.path_of(suffix)
            file = self._disk.open(path + TEMPORARY_SUFFIX, create=True)
            file.truncate(0)
            file.append([data])
            file.flush()
            file.close()
            self._disk.rename(path + TEMPORARY_SUFFIX, path)

    def remove(self) -> None:
        """Take the files out of the folder, durably; the bytes go in the background."""
        self.delete_index_files()
        deleted = self.path + DELETED_SUFFIX
        self._disk.rename(self.path, deleted)
        self._disk.flush_directory(self._directory)
        self._disk.remove_later(deleted)

    def delete_index_files(self) -> None:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if self._disk.exists(self.path_of(suffix)):
                self._disk.unlink(self.path_of(suffix))

    # -- finding

    def locate(self, offset: int) -> tuple[int, int]:
        """(position, previous end): where the first batch with a last offset at or above `offset` starts (the
        size if there is none), and one past the last offset before that position."""
        cursor = self._cursors.get(offset)
        if cursor is not None:
            return cursor
        start = position = self._start(OffsetIndex.entry_at_or_before, offset)
        previous_end = self.base_offset
        for at, header in iter_headers(self.file, start, self.size_bytes):
            position = at
            last_offset = header.base_offset + header.last_offset_delta
            if last_offset >= offset:
                break
            previous_end = last_offset + 1
        else:
            position = self.size_bytes
        if position == start > 0:
            _, previous_end = self.boundary(position)
        self.remember(offset, position, previous_end)
        return position, previous_end

    def _start(self, find: Callable[[OffsetIndex, int], tuple[int, int] | None], wanted: int) -> int:
        """Where to start walking, by the index entry that `find` chooses for an offset or a position."""
        start = self._proven_start(find(self.index, wanted))
        if start is None:
            self._rebuild_indexes()
            start = self._proven_start(find(self.index, wanted))
            assert start is not None, "an index that was just made is proven"
        return start

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset at or below that of the first record with at least this timestamp."""
        return self._proven_youngest(TimeIndex.entry_before, timestamp_ms)

    def youngest_before(self, below_offset: int) -> int:
        """An offset in, or before, the first of the youngest batches that end below this one."""
        if self.end_offset <= below_offset:
            return self.max_timestamp[1]
        return self._proven_youngest(TimeIndex.entry_below, below_offset)

    def _proven_youngest(self, find: Callable[[TimeIndex, int], tuple[int, int] | None], wanted: int) -> int:
        """The offset in the time index's entry that `find` chooses; the base offset where there is none."""
        entry = find(self.time_index, wanted)
        if entry is None:
            return self.base_offset
        if not self._is_proven and not self._names_youngest(*entry):
            self._rebuild_indexes()
            return self._proven_youngest(find, wanted)
        return entry[1]

    def boundary(self, limit: int) -> tuple[int, int]:
        """(position, end offset) of the last batch boundary at or below byte position `limit`."""
        start = self._start(OffsetIndex.entry_below, limit)
        while True:
            found = start
            end_offset = self.base_offset
            for position, header in iter_headers(self.file, start, self.size_bytes):
                if position + header.length + 12 > limit:
                    break
                found = position + header.length + 12
                end_offset = header.base_offset + header.last_offset_delta + 1
            if found > start or start == 0:
                return found, end_offset
            # The batch at the index entry does not fit: its start is the boundary, the batch before it tells
            # the end offset.
            limit, start = start, self._start(OffsetIndex.entry_below, start - 1)
