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
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent / "undo_log.c"
_HEADER = struct.Struct("<IIQQQ")
_WRITE, _SYNC, _CREATE, _RENAME, _UNLINK = 1, 2, 3, 4, 5


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


def build(folder: Path) -> Path | None:
    """Compile the library into the folder; None where there is no C compiler, or this is not Linux."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not Path("/proc/self/fd").exists():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "undo_log.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl", "-pthread"]
    subprocess.run(command, check=True)
    return library


class UndoLog:
    """For one data directory and the processes that use it, one after the other."""

    def __init__(self, library: Path, root: Path, log: Path) -> None:
        """`log` lies outside of `root`: a full disk must not stop it.

        Beside `root` a folder for unlinked files is made.
        """
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
        paths = {
            os.lstat(path).st_ino: path
            for folder, _, files in os.walk(self._root)
            for name in files
            for path in [os.path.join(folder, name)]
        }
        lost = 0
        for entry in reversed(doomed):
            lost += self._take_back(entry, paths)
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

    def _take_back(self, entry: _Entry, paths: dict[int, str]) -> int:
        """Undo one change; how many bytes of its file vanish."""
        if entry.kind == _WRITE:
            return _restore(entry, paths.get(entry.inode))
        first, *rest = entry.names
        if entry.kind == _CREATE:
            _remove(first)
        elif entry.kind == _RENAME:
            if os.path.exists(rest[0]):
                os.rename(rest[0], first)
            if rest[1]:
                os.rename(rest[1], rest[0])
        elif rest[0] and not os.path.exists(first):
            os.rename(rest[0], first)
        return 0


def _restore(entry: _Entry, path: str | None) -> int:
    if path is None:  # the file is gone for good
        return 0
    with open(path, "r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if entry.data:
            os.pwrite(file.fileno(), entry.data, entry.offset)
        if size != entry.old_size:
            file.truncate(entry.old_size)
    return max(0, size - entry.old_size)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _not_durable(entries: list[_Entry]) -> list[_Entry]:
    """Changes of files that no sync of the file covered, and of names that no sync of their folder covered."""
    files: dict[int, int] = {}
    folders: dict[str, int] = {}
    for entry in entries:
        if entry.kind == _SYNC:
            files[entry.inode] = max(entry.offset, files.get(entry.inode, 0))
            path = entry.names[0]
            folders[path] = max(entry.offset, folders.get(path, 0))

    def is_durable(entry: _Entry) -> bool:
        if entry.kind == _WRITE:
            return entry.position < files.get(entry.inode, 0)
        return entry.position < folders.get(os.path.dirname(_name_of(entry)), 0)

    return [entry for entry in entries if entry.kind != _SYNC and not is_durable(entry)]


def _name_of(entry: _Entry) -> str:
    """That which the change made or took away; of a rename the new one, in whose folder it becomes durable."""
    return entry.names[1] if entry.kind == _RENAME else entry.names[0]


def _newest_of_each(doomed: list[_Entry], rng: random.Random) -> list[_Entry]:
    groups: dict[object, list[_Entry]] = defaultdict(list)
    for entry in doomed:
        groups[entry.inode if entry.kind == _WRITE else os.path.dirname(_name_of(entry))].append(entry)
    kept_back = [group[rng.randrange(len(group)) if rng.random() < 0.5 else 0 :] for group in groups.values()]
    return sorted((entry for group in kept_back for entry in group), key=lambda entry: entry.position)
