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

#: Padding ends at a multiple of this: four pages of memory, and of the blocks of common file systems. With 4 KB, the
#: batches of sixteen producers in one loop iteration mostly needed another block, and their flush the journal.
BLOCK_BYTES = 16 * 1024
#: The largest append that leaves padding. Most larger ones need another block, and their flush the journal.
MAX_PADDED_BYTES = BLOCK_BYTES // 2


def padding_after(end: int, append_bytes: int) -> int:
    """How many zeros follow a padded append of so many bytes that ends at position `end`."""
    return -end % BLOCK_BYTES if append_bytes <= MAX_PADDED_BYTES else 0


class DiskError(Exception):
    """The root of all errors of a disk."""


class DiskFullError(DiskError):
    """ENOSPC or EDQUOT. Nothing beyond what `File.size` now says is in the file."""


class MissingPathError(DiskError):
    """ENOENT: nothing has that name, or a folder on the way to it is missing."""


class DiskFailedError(DiskError):
    """EIO or any error of a flush: what the page cache still holds can no longer be trusted. Fatal."""


class File(Protocol):
    """An open file. Positions and sizes are in bytes. Its owner flushes it before it is closed."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes in the file as this process sees it (written, perhaps not durable), without padding that this process
        wrote. Padding that an earlier process left counts."""

    def append(self, buffers: Sequence[Buffer], *, is_padded: bool = False) -> None:
        """Write all buffers at the end, as one vectored write where the system allows.

        `is_padded`: a small append may be followed by zeros up to the end of the block (`padding_after`). The next
        appends are written over them. As the file does not grow then, their flush need not wait for the file system's
        journal. Raises DiskFullError after cutting the file back to its size before the call.
        """

    def trim(self) -> None:
        """Cut off the padding. Durable with the next flush; nothing is lost without one."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place: the zeros of a journal, or in recovery the same bytes once more."""

    def read(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes from `position`; shorter only at the end of the file."""

    def fileno(self) -> int:
        """The descriptor for sendfile, or -1 where there is none (memory disk)."""

    def truncate(self, size: int) -> None:
        """Cut the file, or fill it up with zeros. Padding is cut off."""

    def flush(self) -> None:
        """Make contents and size durable before returning. Blocks: for rare, ordered steps only.

        Raises also the error of a `Disk.flush` that was not answered yet: that may be the error of this file.
        """

    def start_writeback(self) -> None:
        """A flush of what was appended comes soon: the disk may begin to write. Makes nothing durable.

        Raises DiskFailedError if the disk reports an error.
        """

    def drop_cached(self) -> None:
        """A hint: hardly anybody reads more than the end of this file, and the page cache need not keep the rest.
        Called after each append; takes less than a millisecond."""

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

        The flush happens beside the loop. If the caller `may_block`, it may happen at once instead, if that is
        expected to be quicker: then `meanwhile` is called before the flush, and `done` before this returns.
        `meanwhile` writes nothing. It prepares what `done` needs, while the disk is at work already
        (`File.start_writeback`).

        What was written when `flush` was called is durable afterwards. The order holds: file n is durable before the
        flush of file n+1 begins. `done(error)` means that none of it may be believed. Files may not be closed before
        `done`.
        """

    def exists(self, path: str) -> bool:
        """False only if there surely is nothing of that name. DiskFailedError if that cannot be known."""

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted. MissingPathError where there is no such folder."""

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Create a folder; one that exists is fine. MissingPathError where its parent is missing: whoever works in a
        folder that was renamed must not bring its old name back."""

    def rename(self, old: str, new: str) -> None:
        """Rename atomically. Durable only after `flush_directory`."""

    def unlink(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder with its contents at once. For small folders and recovery."""

    def remove_later(self, path: str) -> None:
        """Remove a file or folder, which was renamed before, in the background. Large files shrink step by step, so
        that flushes do not stall behind them (performance.md section 1)."""

    def flush_directory(self, path: str) -> None: ...
    def flush_together(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        """Make all of these durable before returning, in any order. Blocks, but about as long as for one of them: a
        disk serves requests that come together at the same time."""

    def free_bytes(self) -> int: ...

    def total_bytes(self) -> int:
        """The size of the volume."""

    def lock(self) -> None:
        """Take the directory for this process, or raise DirectoryLockedError."""

    def close(self) -> None:
        """Finish background work and release the lock."""


class DirectoryLockedError(DiskError):
    """Another process holds the data directory."""
