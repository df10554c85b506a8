"""One segment: a file of record batches and the two sparse indexes into it.

The indexes of a sealed segment are loaded when they are first needed. Those of the active segment grow with it.
"""

from __future__ import annotations

from collections.abc import Callable

from protocol.records.batch import HEADER_BYTES, MIN_LENGTH, NO_TIMESTAMP, BatchHeader, parse_header
from storage.disk import Disk, File, MissingPathError
from storage.errors import CorruptLogError
from storage.index_files import delete_indexes, read_indexes, write_indexes
from storage.offset_index import IndexDamagedError, OffsetIndex, TimeIndex
from storage.segment_files import MAX_RELATIVE_OFFSET, deleted_path, iter_headers

#: `Segment.write_again` reads and writes so many bytes at a time.
REWRITE_BLOCK_BYTES = 1 << 20

#: So many recent batch boundaries are kept per segment. A reader near the end finds its position among them, without
#: index and walk.
MAX_CURSORS = 64


class Segment:
    """A segment file with its base offset, size, indexes, and the timestamps that retention needs."""

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
        "_is_verified",
        "_max_timestamp",
        "_time_index",
        "base_offset",
        "path",
        "size_bytes",
    )

    #: Invariant: the file holds whole batches in exactly `size_bytes` bytes, behind which the active one may be padded
    #: (`File.append`). Their offsets lie in [base_offset, end_offset).
    size_bytes: int
    #: Offset -> (position, previous end). Invariant: the first batch with a last offset at or above the key starts at
    #: that position, or the batches end there, and the batch before it ends at that previous end. Appending keeps
    #: this true; whatever cuts the file has to clear the map.
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
        # (timestamp ms, last offset of its batch) of the largest timestamp; (-1, base) without batches.
        self._max_timestamp = (-1, self.base_offset)
        self._first_timestamp_ms: int | None = None
        self._cursors = {}
        self._is_loaded = self.size_bytes == 0
        # Whether this process made the indexes. Those of a file may be corrupt, and Kafka's layout has no checksum:
        # each of their entries is compared with the batch that it names before a walk starts there.
        self._is_verified = True

    # -- the file

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def release_file(self) -> None:
        """Close the descriptor until it is needed again. The file must be durable."""
        self._file = None

    def keep_file(self) -> None:
        """Keep the descriptor: something else is about to have the file's name. Readers hold this object, and with
        the last of them it goes."""
        self._file = self.file

    # -- growing

    def note_batch(self, header: BatchHeader, position: int) -> None:
        """Add the batch at `position` to indexes and timestamps. It follows those that were noted before."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self._max_timestamp[0]:
            self._max_timestamp = (header.max_timestamp, last_offset)
        if position == 0 or self._first_timestamp_ms == NO_TIMESTAMP:
            self._first_timestamp_ms = header.max_timestamp
        if self._bytes_since_index > self._index_interval_bytes:
            self._index.add(last_offset, position)
            if self._max_timestamp[0] >= 0:
                self._time_index.add(*self._max_timestamp)
            self._bytes_since_index = 0
        self._bytes_since_index += header.length + 12
        self._end_offset = last_offset + 1

    def remember_position(self, offset: int, position: int, previous_end: int) -> None:
        """Keep where reading at `offset` starts (see the invariant of `_cursors`)."""
        cursors = self._cursors
        cursors[offset] = (position, previous_end)
        if len(cursors) > MAX_CURSORS:
            del cursors[next(iter(cursors))]

    def forget_batches(self) -> None:
        """Drop all that was noted: the file will be scanned again."""
        self._reset()

    def mark_scanned(self) -> None:
        """Every batch of the file was noted: nothing is left to load."""
        self._is_loaded = True

    def write_again(self, offset: int) -> None:
        """Write everything at or above `offset` once more, so that the next flush writes it even if the page cache
        holds it as clean."""
        position = self.locate(offset)[0]
        while position < self.size_bytes:
            data = self.file.read(position, REWRITE_BLOCK_BYTES)
            self.file.write_at(position, data)
            position += len(data)

    def cut_padding(self, position: int) -> None:
        """Cut off the padding that an earlier process left behind `position`. Every batch before it was noted."""
        self.file.truncate(position)
        self.size_bytes = position

    def cut(self, position: int, end_offset: int) -> None:
        """Keep what lies before `position`, the end of a batch, durably. The index files are deleted; the caller
        flushes the folder. `end_offset` is above every offset kept and at or below every offset cut."""
        self._load()
        self.delete_index_files()
        self.file.truncate(position)
        self.file.flush()
        self.size_bytes = position
        self._cursors.clear()
        self._index.truncate(position)
        self._time_index.truncate(end_offset)
        # Other entries are the last ones now.
        self._note_tail_behind_indexes()

    # -- indexes

    @property
    def end_offset(self) -> int:
        """One past the last offset in the file; the base offset if it is empty."""
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
        """(timestamp ms, last offset of the batch that holds it) of the largest timestamp, or (-1, base)."""
        self._load()
        return self._max_timestamp

    @property
    def first_timestamp_ms(self) -> int | None:
        """Largest timestamp of the first batch that has one. -1: none has; None: there is no batch.

        Fillers have none. A follower gets them in place of what its leader has compacted, and its segment would never
        be old enough to be rolled."""
        if self._first_timestamp_ms is None and self.size_bytes:
            is_file_open = self._file is not None
            self._first_timestamp_ms = self._read_first_timestamp()
            if not is_file_open:
                self.release_file()
        return self._first_timestamp_ms

    def _read_first_timestamp(self) -> int:
        position = 0
        while (header := self._header_at(position)) is not None and header.length >= MIN_LENGTH:
            if header.max_timestamp != NO_TIMESTAMP:
                return header.max_timestamp
            position += header.size_bytes
        return NO_TIMESTAMP

    def _load(self) -> None:
        """Read the indexes from their files and walk the batches behind the last entry."""
        if self._is_loaded:
            return
        is_file_open = self._file is not None
        try:
            self._load_index_files()
        except (MissingPathError, IndexDamagedError):
            self._reset()
        self._note_tail_behind_indexes()
        if not is_file_open:
            # Retention asks every segment of a log for its largest timestamp, and none of them for data.
            self.release_file()

    def _rebuild_indexes(self) -> None:
        """Rebuild them from the segment, and delete the index files, so that they are not read again."""
        self._reset()
        self.delete_index_files()
        self._note_tail_behind_indexes()

    def _note_tail_behind_indexes(self) -> None:
        """Note the batches that the indexes do not cover. If a last entry is corrupt, those are all batches."""
        try:
            if not self._is_verified:
                self._check_last_entries()
        except IndexDamagedError:
            self._reset()
        self._note_tail()
        self._is_loaded = True

    def _check_last_entries(self) -> None:
        """The walk begins at the last entry, and retention goes by the last time. Raises IndexDamagedError if either
        names no batch."""
        largest = self._time_index.last()
        is_corrupt = len(self._index) and not self._names_batch(*self._index.last())
        if is_corrupt or (largest is not None and not self._names_timestamp(*largest)):
            raise IndexDamagedError("the last entry names no batch of the segment")

    def _names_batch(self, last_offset: int, position: int) -> bool:
        """Whether a batch with this last offset starts at this position."""
        header = self._header_at(position)
        return header is not None and header.last_offset == last_offset

    def _names_timestamp(self, timestamp_ms: int, last_offset: int) -> bool:
        """Whether the batch with this last offset has this timestamp."""
        position = self._verified_start(self._index.entry_at_or_before(last_offset))
        if position is None:
            return False
        for _, header in iter_headers(self.file, position, self.size_bytes):
            if header.last_offset >= last_offset:
                return header.last_offset == last_offset and header.max_timestamp == timestamp_ms
        return False

    def _verified_start(self, entry: tuple[int, int] | None) -> int | None:
        """The position of an entry (0 without one). None: the entry is corrupt."""
        if entry is None:
            return 0
        return entry[1] if self._is_verified or self._names_batch(*entry) else None

    def _header_at(self, position: int) -> BatchHeader | None:
        data = self.file.read(position, HEADER_BYTES)
        return parse_header(data, 0) if len(data) == HEADER_BYTES else None

    def _note_tail(self) -> None:
        """Note the batches from the last index entry to the end, which the indexes do not cover."""
        self._end_offset = self.base_offset
        self._max_timestamp = self._time_index.last() or (-1, self.base_offset)
        self._first_timestamp_ms = None
        # The last indexed batch is noted again: counting from zero keeps it from being indexed twice.
        self._bytes_since_index = 0
        for at, header in iter_headers(self.file, self._index.last_position(), self.size_bytes):
            is_next = self._end_offset <= header.base_offset <= header.last_offset
            if not is_next or header.last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
                raise CorruptLogError(self.path, at, f"a batch at {header.base_offset}")
            self.note_batch(header, at)
        if self._index.last_position():
            # The walk began in the middle: the first batch is read when its timestamp is asked for.
            self._first_timestamp_ms = None

    def _load_index_files(self) -> None:
        self._reset()
        loaded = read_indexes(self._disk, self._directory, self.base_offset, self.size_bytes)
        if loaded is not None:
            self._index, self._time_index = loaded
            self._is_verified = False

    def write_index_files(self, *, is_sealed: bool) -> None:
        """Write both indexes durably; their names are durable with the folder's flush.

        The last time entry of a sealed segment holds its largest timestamp (as in Kafka). Nothing is written for a
        segment with no index entry: walking it costs less than two files.
        """
        if not len(self.index):
            self.delete_index_files()
            return
        if is_sealed and self._max_timestamp[0] >= 0:
            self._time_index.add(*self._max_timestamp)
        write_indexes(self._disk, self._directory, self.base_offset, self._index, self._time_index)

    def delete_index_files(self) -> None:
        delete_indexes(self._disk, self._directory, self.base_offset)

    def remove(self) -> None:
        """Rename the file to `.deleted`, durably. Its bytes are freed in the background. Whoever has found this segment
        can read on until then."""
        self.keep_file()
        self.delete_index_files()
        deleted = deleted_path(self._disk, self.path)
        self._disk.rename(self.path, deleted)
        self._disk.flush_directory(self._directory)
        self._disk.remove_later(deleted)

    # -- finding

    def locate(self, offset: int) -> tuple[int, int]:
        """(position, previous end): where the first batch with a last offset at or above `offset` starts (the size if
        there is none), and one past the last offset before that position."""
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
        self.remember_position(offset, position, previous_end)
        return position, previous_end

    def _start(self, find: Callable[[OffsetIndex, int], tuple[int, int] | None], wanted: int) -> int:
        """Where a walk starts, by the index entry that `find` chooses for an offset or a position."""
        start = self._verified_start(find(self.index, wanted))
        if start is None:
            self._rebuild_indexes()
            start = self._verified_start(find(self.index, wanted))
            assert start is not None, "an index that this process made needs no check"
        return start

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset at or below that of the first record with at least this timestamp."""
        return self._verified_time_offset(TimeIndex.entry_before, timestamp_ms)

    def largest_timestamp_before(self, below_offset: int) -> int:
        """Of the batches that end below `below_offset`, an offset in or before the first with the largest timestamp."""
        if self.end_offset <= below_offset:
            return self.max_timestamp[1]
        return self._verified_time_offset(TimeIndex.entry_below, below_offset)

    def _verified_time_offset(
        self, find: Callable[[TimeIndex, int], tuple[int, int] | None], wanted: int
    ) -> int:
        """The offset in the time index's entry that `find` chooses; the base offset without one."""
        entry = find(self.time_index, wanted)
        if entry is None:
            return self.base_offset
        if not self._is_verified and not self._names_timestamp(*entry):
            self._rebuild_indexes()
            return self._verified_time_offset(find, wanted)
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
            # The batch at the index entry does not fit: its start is the boundary. The batch before it tells the end
            # offset.
            limit, start = start, self._start(OffsetIndex.entry_below, start - 1)
