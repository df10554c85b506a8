"""The seam between storage and the machine's disk.

`storage` never touches `os` directly: everything durable goes through a `Disk`. Production injects
`storage.file_disk.FileDisk`; the simulator injects a memory disk whose crash keeps any subset of what was
not flushed (architecture.md section 2 and 8). Calls are synchronous, except `Disk.flush`, which is the one
slow thing on the hot path and therefore runs beside the event loop.

Errors, of which none is an OSError. asyncio and uvloop take an OSError that a protocol raises for an error of that
connection: they close it and tell nobody (`tests/simulation/test_instruments_conformance.py`).

DiskError
├── DiskFullError          an answer: the caller cuts back and goes on
├── MissingPathError       an answer where the caller expects it; otherwise somebody took the data away, the node stops
├── DiskFailedError        the node stops (replication.md section 2)
└── DirectoryLockedError   the node does not start
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview

#: Padding ends at a multiple of this: four pages of memory, and blocks of common file systems. With one of these what
#: sixteen producers send in a turn needed the next, and so the journal, with most flushes.
BLOCK_BYTES = 16 * 1024
#: The largest append that leaves padding: of larger ones, most need another block, and so the journal.
MAX_PADDED_BYTES = BLOCK_BYTES // 2


def padding_after(end: int, append_bytes: int) -> int:
    """How many zeros follow a padded append of so many bytes up to position `end`: to the end of the block, if any."""
    return -end % BLOCK_BYTES if append_bytes <= MAX_PADDED_BYTES else 0


class DiskError(Exception):
    """Root of what a disk can do to us."""


class DiskFullError(DiskError):
    """ENOSPC or EDQUOT. Nothing beyond what `File.size` now says is in the file."""


class MissingPathError(DiskError):
    """ENOENT: nothing has that name, or a folder on the way to it is missing."""


class DiskFailedError(DiskError):
    """EIO or any error of a flush: what the page cache still holds can no longer be trusted. Fatal."""


class File(Protocol):
    """An open file. Positions and sizes are bytes. A file is flushed before it is closed, by its owner."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes in the file as this process sees it (written, perhaps not yet durable), without padding that it wrote.
        What another process left counts."""

    def append(self, buffers: Sequence[Buffer], *, is_padded: bool = False) -> None:
        """Write all buffers at the end, as one vectored write where the system allows.

        `is_padded`: a small append may be followed by zeros up to the end of the block (`padding_after`). The next ones
        are written over them, and as the file does not grow, their flush need not wait for the file system's journal.
        Raises DiskFullError after cutting the file back to its size before the call.
        """

    def trim(self) -> None:
        """Cut off the padding. Not durable before a flush; nothing is lost if it never is."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place: a journal's preallocated area, or in recovery the same bytes once more."""

    def read(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes from `position`; shorter only at the end of the file."""

    def fileno(self) -> int:
        """The descriptor for sendfile, or -1 where there is none (memory disk)."""

    def truncate(self, size: int) -> None:
        """Cut, or fill up with zeros. Padding goes."""

    def flush(self) -> None:
        """Make contents and size durable before returning. Blocks: for rare, ordered steps only.

        Raises, too, what a `Disk.flush` met that was not answered yet: the error of this very file may be its.
        """

    def start_writeback(self) -> None:
        """A flush of what was appended comes soon: the disk may begin. Makes nothing durable.

        Raises DiskFailedError where the disk says that it cannot.
        """

    def drop_cached(self) -> None:
        """Nobody is likely to read more than the end of this file: the system need not keep the rest in memory. Called
        after each append, a hint, and less than a millisecond's work."""

    def close(self) -> None: ...


class Disk(Protocol):
    """One data directory's file system. Paths are absolute strings below `root`."""

    @property
    def root(self) -> str: ...

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. `create` makes a missing file (durable only after
        `File.flush` and `flush_directory` of its folder). MissingPathError where there is none, or no folder for it."""

    def flush(
        self,
        files: Sequence[File],
        done: Callable[[DiskError | None], None],
        *,
        may_block: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Flush all `files` in the given order, then call `done` on the loop.

        That happens beside the loop, or, where the caller `may_block`, at once if that is expected to be quicker than
        handing it over: then `done` is called before this returns, and before the flush `meanwhile`, which writes
        nothing: to get ready what `done` needs, while the disk is at work already (`File.start_writeback`).

        What is guaranteed durable is what had been written when `flush` was called. The order holds: file n is durable
        before the flush of file n+1 begins. `done(error)` means that none of it may be believed. Files may not be
        closed before `done`.
        """

    def exists(self, path: str) -> bool:
        """False only where there surely is nothing; DiskFailedError where that cannot be told."""

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted. MissingPathError where there is no such folder."""

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Create a folder and missing parents; existing ones are fine."""

    def rename(self, old: str, new: str) -> None:
        """Atomic; durable only after `flush_directory`."""

    def unlink(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder and what is in it, at once. For small folders and recovery."""

    def remove_later(self, path: str) -> None:
        """Remove a (renamed) file or folder in the background, shrinking large files stepwise so that no
        other flush stalls behind the discard (performance.md section 1)."""

    def flush_directory(self, path: str) -> None: ...
    def flush_together(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """Make all of these durable before returning, in whatever order. Blocks, but about as long as for one: what is
        asked of a disk at the same time it does at once."""

    def free_bytes(self) -> int: ...

    def total_bytes(self) -> int:
        """Of the volume, used or not."""

    def lock(self) -> None:
        """Take the directory for this process, or raise DirectoryLockedError."""

    def close(self) -> None:
        """Finish background work and give the lock back."""


class DirectoryLockedError(DiskError):
    """Another process holds the data directory."""
