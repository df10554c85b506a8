"""The aborted transactions of a log: one index for each segment, in memory and beside the segment.

The index of a segment is complete or unknown. That of the active segment grows with the log, and after a start it comes
from the newest producer snapshot and the replay behind that. Those of sealed segments are found when somebody asks
(`aborted_loading.load_aborted`): in their files, or where one is missing or wrong, in the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from storage.aborted_index import AbortedIndex, AbortedIndexDamagedError, AbortedTransaction
from storage.disk import Disk, DiskFullError
from storage.segment_files import TRANSACTION_INDEX_SUFFIX, segment_path
from storage.small_files import read_file, replace_file


class AbortedIndexMissingError(Exception):
    """The aborted transactions of a segment are not known yet. `aborted_loading.load_aborted` finds them."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"segment {base_offset}")
        self.base_offset = base_offset


class AbortedTransactions:
    """Of one log. Segments are named by their base offsets."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        #: Invariant: each index is complete.
        self._known: dict[int, AbortedIndex] = {}

    # -- readers

    def overlapping(
        self, bases: Sequence[int], from_offset: int, below_offset: int
    ) -> list[AbortedTransaction]:
        """The aborted transactions with records in [from_offset, below_offset). `bases`: of all segments, rising.
        `below_offset` is at or below the last stable offset. Raises AbortedIndexMissingError."""
        found: list[AbortedTransaction] = []
        for base_offset in bases[max(bisect_right(bases, from_offset) - 1, 0) :]:
            index = self._known.get(base_offset)
            if index is None:
                raise AbortedIndexMissingError(base_offset)
            part, is_all = index.overlapping(from_offset, below_offset)
            found += part
            if is_all:
                break
        return found

    def of_segment(self, base_offset: int) -> AbortedIndex | None:
        """The index of a segment. None: not known yet."""
        return self._known.get(base_offset)

    def read_file(self, base_offset: int) -> AbortedIndex | None:
        """The file of a sealed segment, whatever it says. None: it is missing or damaged."""
        path = self._path(base_offset)
        if not self._disk.exists(path):
            return None
        try:
            return AbortedIndex.decode(read_file(self._disk, path))
        except AbortedIndexDamagedError:
            return None

    def proved(self, base_offset: int, index: AbortedIndex) -> None:
        """The index of a sealed segment was read, and compared with the log."""
        self._known[base_offset] = index

    def rebuilt(self, base_offset: int, index: AbortedIndex, *, is_sealed: bool) -> None:
        """The index of a segment was found again in the log. A full disk costs only its file."""
        self._known[base_offset] = index
        if is_sealed:
            try:
                self._write(base_offset, index)
            except DiskFullError:
                self._unlink(base_offset)

    # -- the log grows

    def segment_added(self, base_offset: int) -> None:
        """An empty segment was made."""
        self._known[base_offset] = AbortedIndex()

    def add(self, active_base: int, aborted: AbortedTransaction) -> None:
        """A marker was appended to the active segment."""
        index = self._known.get(active_base)
        if index is not None:
            index.add(aborted)

    def segment_sealed(self, base_offset: int) -> None:
        """Write the index durably; its name is durable with the folder's flush. An unknown one is built again if
        somebody asks, so no stale file may be left. Nor is a full disk a reason not to seal where there is nothing to
        write. Raises DiskFullError."""
        index = self._known.get(base_offset)
        if index is None:
            self._unlink(base_offset)
            return
        try:
            self._write(base_offset, index)
        except DiskFullError:
            if len(index):
                raise

    def _write(self, base_offset: int, index: AbortedIndex) -> None:
        replace_file(self._disk, self._path(base_offset), index.encode())

    # -- the log is opened, or cut

    def restore(
        self,
        active_base: int,
        snapshot_offset: int,
        of_snapshot: tuple[int, AbortedIndex] | None,
        replayed: Iterable[AbortedTransaction],
    ) -> None:
        """The producer state was loaded: `replayed` were aborted at or above `snapshot_offset`, and the snapshot tells
        of (a segment's base, those aborted in it below)."""
        if active_base in self._known:
            return
        if snapshot_offset <= active_base:
            index = AbortedIndex()
        elif of_snapshot is not None and of_snapshot[0] == active_base:
            index = of_snapshot[1]
        else:
            return
        for aborted in replayed:
            if aborted.last_offset >= active_base:
                index.add(aborted)
        self._known[active_base] = index

    def segment_cut(self, base_offset: int, end_offset: int) -> None:
        """A segment is the active one now, and ends here. Its file, from when it was sealed, would speak of what is
        cut."""
        index = self._known.get(base_offset)
        if index is not None:
            index.truncate(end_offset)
        self._unlink(base_offset)

    def segment_removed(self, base_offset: int) -> None:
        self._known.pop(base_offset, None)
        self._unlink(base_offset)

    def segments_replaced(self, base_offsets: Sequence[int], index: AbortedIndex) -> None:
        """One segment has the place of these, and its file is there."""
        for base_offset in base_offsets:
            self._known.pop(base_offset, None)
        self._known[base_offsets[0]] = index

    # -- files

    def _path(self, base_offset: int) -> str:
        return segment_path(self._directory, base_offset, TRANSACTION_INDEX_SUFFIX)

    def _unlink(self, base_offset: int) -> None:
        path = self._path(base_offset)
        if self._disk.exists(path):
            self._disk.unlink(path)
