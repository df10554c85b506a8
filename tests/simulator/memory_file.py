"""`storage.disk.File` in memory, on a disk that forgets, tears and fails (tests/simulator/disk.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from storage.disk import Buffer, DiskFullError, padding_after
from tests.simulator.inode import FileNode
from tests.simulator.process import NodeProcess, require_alive

if TYPE_CHECKING:
    from tests.simulator.disk import MemoryDisk


class MemoryFile:
    """An open file. Unlinking or renaming it does not disturb it."""

    def __init__(self, disk: MemoryDisk, path: str, node: FileNode, owner: NodeProcess | None) -> None:
        self.node = node
        self._disk = disk
        self._path = path
        self._owner = owner
        self._mount = disk.mount
        self._is_closed = False
        #: Without the padding behind it.
        self._size = len(node.seen)

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer], *, is_padded: bool = False) -> None:
        self._require_usable()
        data = b"".join(buffers)
        size, end, allocated = self._size, self._size + len(data), len(self.node.seen)
        if is_padded and end > allocated:
            data += bytes(padding_after(end, len(data)))
        self._disk.before_write(self.node, size, data, self._path)
        room = allocated - size + self._disk.free_bytes()
        if len(data) > room:
            # What fits is written, then cut off again: a crash may show either.
            self.node.write(size, data[:room])
            self.node.truncate(size)
            self._disk.count_bytes(self.node, size - allocated)
            raise DiskFullError(f"{self._path}: no space left on device")
        self.node.write(size, data)
        self._disk.count_bytes(self.node, len(self.node.seen) - allocated)
        self._size = end

    def trim(self) -> None:
        if len(self.node.seen) > self._size:
            self.truncate(self._size)

    def write_at(self, position: int, data: Buffer) -> None:
        self._require_usable()
        assert position + len(data) <= self.size, "write_at overwrites, append extends"
        self._disk.before_write(self.node, position, bytes(data), self._path)
        self.node.write(position, bytes(data))

    def read(self, position: int, size: int) -> memoryview:
        self._require_usable()
        end = min(position + max(size, 0), self._size)
        if self._disk.is_read_by_harness():
            return memoryview(bytes(self.node.seen[position:end]))
        self._disk.fail_sometimes(self._disk.faults.read_error_rate, f"{self._path}: read")
        return memoryview(self.node.read(position, end))

    def fileno(self) -> int:
        return -1

    def truncate(self, size: int) -> None:
        self._require_usable()
        self._disk.before_operation()
        self._disk.count_bytes(self.node, size - len(self.node.seen))
        self.node.truncate(size)
        self._size = size

    def flush(self) -> None:
        self._require_usable()
        self._disk.before_operation()
        self._disk.raise_untold(self._owner)
        self._disk.flush_node(self.node, self.node.operation_count, self._path)

    def start_writeback(self) -> None:
        self._require_usable()
        self._disk.start_writeback(self.node, self._path)

    def drop_cached(self) -> None:
        self._require_usable()

    def close(self) -> None:
        self._is_closed = True

    def _require_usable(self) -> None:
        require_alive(self._owner)
        assert self._mount == self._disk.mount, f"{self._path} was opened before the crash"
        assert not self._is_closed, f"{self._path} is closed"
