"""Loss of power for one process: what it had written and not made durable is gone.

`UndoLog` runs a process with undo_log.c preloaded; when the process has been killed, `lose_power` takes back what no
fsync had covered. Real files, real system calls, any program: nothing of the broker is switched or replaced.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent / "undo_log.c"
_HEADER = struct.Struct("<IIQQQ")
_WRITE, _SYNC, _CREATE, _RENAME, _UNLINK, _BORN, _SYNC_ALL = 1, 2, 3, 4, 5, 6, 7


class Lost(NamedTuple):
    """What a loss of power took."""

    bytes: int
    changes: int


class _Entry(NamedTuple):
    position: int
    kind: int
    inode: int
    offset: int
    old_size: int
    data: bytes

    @property
    def names(self) -> list[str]:
        return os.fsdecode(self.data).split("\0")


def is_possible() -> bool:
    """Whether there is a C compiler, and this is Linux."""
    return _compiler() is not None and Path("/proc/self/fd").exists()


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def build(folder: Path) -> Path:
    """Compile the library into the folder. Needs `is_possible`."""
    compiler = _compiler()
    assert compiler is not None
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "undo_log.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-pthread"]
    subprocess.run(command, check=True)
    return library


class UndoLog:
    """For one data directory and the processes that use it, one after the other."""

    def __init__(self, library: Path, root: Path, log: Path, *, is_lying: bool = False) -> None:
        """`log` lies outside of `root`: a full disk must not stop it.

        Beside `root` a folder for unlinked files is made.
        `is_lying`: no sync counts, so that a loss of power takes everything since the last one.
        """
        self.sync_delay_us = 0
        """Of the processes started from now on: how much longer each sync takes, so that there is something to lose."""
        self._is_lying = is_lying
        self._library = library
        self._root = root.absolute()
        self._log = log.absolute()
        self._graves = Path(f"{self._root}.graves")
        self._graves.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """For the process to be watched."""
        return {
            "LD_PRELOAD": str(self._library),
            "UNDO_ROOT": str(self._root),
            "UNDO_LOG": str(self._log),
            "UNDO_SYNC_US": str(self.sync_delay_us),
            "UNDO_LIE": str(int(self._is_lying)),
        }

    def lose_power(self, rng: random.Random | None = None) -> Lost:
        """Take back what was not durable. The process must be dead.

        Without `rng` everything; with it, of each file and folder what came after a random point: a disk may have
        written some of it by itself, in order.
        """
        entries = list(self._entries())
        doomed = _not_durable(entries)
        if rng is not None:
            doomed = _newest_of_each(doomed, rng)
        with ExitStack() as stack:
            files = self._open_files({entry.inode for entry in doomed if entry.kind == _WRITE}, stack)
            lost = sum(_take_back(entry, files) for entry in reversed(doomed))
        # What is left is what the disk holds: from here on nothing older can be lost.
        self._log.unlink(missing_ok=True)
        shutil.rmtree(self._graves)
        self._graves.mkdir()
        return Lost(lost, len(doomed))

    def _entries(self) -> Iterator[_Entry]:
        if not self._log.exists():
            return
        data = self._log.read_bytes()
        position = 0
        while position + _HEADER.size <= len(data):
            kind, length, inode, offset, old_size = _HEADER.unpack_from(data, position)
            start = position + _HEADER.size
            if start + length > len(data):
                return  # killed in the middle of noting: the change itself was not made
            yield _Entry(position, kind, inode, offset, old_size, data[start : start + length])
            position = start + length

    def _open_files(self, inodes: set[int], stack: ExitStack) -> dict[int, int]:
        """A descriptor for each that is still there, under whatever name: names change while changes are taken back."""
        files = {}
        for root in (self._root, self._graves):
            for folder, _, names in os.walk(root):
                for name in names:
                    path = os.path.join(folder, name)
                    inode = os.lstat(path).st_ino
                    if inode in inodes and inode not in files:
                        files[inode] = os.open(path, os.O_RDWR)
                        stack.callback(os.close, files[inode])
        return files


def _take_back(entry: _Entry, files: dict[int, int]) -> int:
    """Undo one change; how many bytes of its file vanish."""
    if entry.kind == _WRITE:
        # A file that is gone for good has none.
        return _restore(entry, files[entry.inode]) if entry.inode in files else 0
    first, *rest = entry.names
    if entry.kind == _CREATE:
        _remove(first)
    elif entry.kind == _RENAME:
        if os.path.exists(rest[0]):
            os.rename(rest[0], first)
        if rest[1]:
            os.rename(rest[1], rest[0])
    elif rest[0] and not os.path.exists(first) and os.path.isdir(os.path.dirname(first)):
        # Where the folder is gone as well, which is not noted, its files stay gone.
        os.rename(rest[0], first)
    return 0


def _restore(entry: _Entry, fd: int) -> int:
    size = os.fstat(fd).st_size
    if entry.data:
        os.pwrite(fd, entry.data, entry.offset)
    if size != entry.old_size:
        os.ftruncate(fd, entry.old_size)
    return max(0, size - entry.old_size)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _not_durable(entries: list[_Entry]) -> list[_Entry]:
    """Changes of files that no sync of the file covered, and of names that none of their folder did; nor one of all."""
    everything = 0
    files: dict[int, int] = {}
    folders: dict[str, int] = {}
    for entry in entries:
        if entry.kind == _BORN:  # what was noted before is about a file that had the number before
            files[entry.inode] = entry.position
        elif entry.kind == _SYNC:
            files[entry.inode] = max(entry.offset, files.get(entry.inode, 0))
            path = entry.names[0]
            folders[path] = max(entry.offset, folders.get(path, 0))
        elif entry.kind == _SYNC_ALL:
            everything = max(entry.offset, everything)

    def is_durable(entry: _Entry) -> bool:
        if entry.position < everything:
            return True
        if entry.kind == _WRITE:
            return entry.position < files.get(entry.inode, 0)
        return entry.position < folders.get(os.path.dirname(_name_of(entry)), 0)

    marks = (_SYNC, _BORN, _SYNC_ALL)
    return [entry for entry in entries if entry.kind not in marks and not is_durable(entry)]


def _name_of(entry: _Entry) -> str:
    """That which the change made or took away; of a rename the new one, in whose folder it becomes durable."""
    return entry.names[1] if entry.kind == _RENAME else entry.names[0]


def _newest_of_each(doomed: list[_Entry], rng: random.Random) -> list[_Entry]:
    groups: dict[object, list[_Entry]] = defaultdict(list)
    for entry in doomed:
        groups[entry.inode if entry.kind == _WRITE else os.path.dirname(_name_of(entry))].append(entry)
    kept_back = [group[rng.randrange(len(group)) if rng.random() < 0.5 else 0 :] for group in groups.values()]
    return sorted((entry for group in kept_back for entry in group), key=lambda entry: entry.position)
