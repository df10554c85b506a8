"""What a memory disk is made of: files and folders, each with what is seen and what is durable.

Seen is the page cache, which every process reads. Durable is what surely survives a loss of power. In
between lie the operations since the last flush, of which a crash keeps any subset (within the limits named
below), because a kernel writes back whenever and in whatever order it likes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

#: What a device writes all or nothing.
SECTOR_BYTES = 512


class FileOperation(NamedTuple):
    """A write of `data` at `position`, or (data None) a truncation to `position`."""

    position: int
    data: bytes | None
    size_after: int


class FileNode:
    """The contents of a file.

    Invariant: `seen` is `durable` with all of `pending` applied, unless a failed flush or a lying disk has
    dropped operations (which is their fault to make).
    """

    def __init__(self, contents: bytes = b"") -> None:
        self.seen = bytearray(contents)
        self.durable = bytearray(contents)
        self.pending: list[FileOperation] = []
        #: Operations that left `pending`, ever: a flush names its end by count, as more may come meanwhile.
        self.completed_count = 0
        #: Operations that an early write-back gave to the device, ever. A crash may keep all of them, or any subset.
        self.written_back_count = 0
        #: An early write-back has failed and nobody was told: the next flush reports it, once.
        self.has_untold_error = False
        #: Whether a folder names it: an unlinked file takes no space of the disk's.
        self.is_linked = False
        #: Position -> bits that a read finds inverted.
        self.inverted_bits: dict[int, int] = {}

    @property
    def operation_count(self) -> int:
        return self.completed_count + len(self.pending)

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        assert position <= len(self.seen), "files have no holes"
        self.seen[position:end] = data
        self._heal(position, end)
        self.pending.append(FileOperation(position, data, len(self.seen)))

    def truncate(self, size: int) -> None:
        if size < len(self.seen):
            self._heal(size, len(self.seen))
            del self.seen[size:]
        else:
            self.seen.extend(bytes(size - len(self.seen)))
        self.pending.append(FileOperation(size, None, size))

    def read(self, start: int, end: int) -> bytes:
        """What a process is given: corruption included."""
        data = self.seen[start:end]
        for position, mask in self.inverted_bits.items():
            if start <= position < start + len(data):
                data[position - start] ^= mask
        return bytes(data)

    def invert(self, position: int, mask: int) -> None:
        self.inverted_bits[position] = self.inverted_bits.get(position, 0) ^ mask
        if not self.inverted_bits[position]:
            del self.inverted_bits[position]

    def _heal(self, start: int, end: int) -> None:
        """Written anew, or cut off."""
        if self.inverted_bits:
            self.inverted_bits = {
                at: mask for at, mask in self.inverted_bits.items() if not start <= at < end
            }

    def complete_pending(self, up_to_count: int, *, durably: bool) -> None:
        """The operations before `up_to_count` become durable, or (a failed flush) their data are forgotten by the
        kernel though it still shows them. Sizes are the file system's own journal's: a cut is not forgotten."""
        count = up_to_count - self.completed_count
        if count <= 0:
            return
        kept: list[FileOperation] = []
        for operation in self.pending[:count]:
            if durably:
                _apply(self.durable, operation)
            elif operation.data is None:
                kept.append(operation)
        self.pending[:count] = kept
        self.completed_count += count - len(kept)

    def after_crash(self, rng: random.Random) -> bytes:
        """Contents that a loss of power may leave: the file size as after any pending operation, and each
        sector as after any pending operation, chosen apart from each other. Where a write-back has begun, the device
        may be done with it."""
        if self.written_back_count > self.completed_count and rng.random() < 0.5:
            self.complete_pending(self.written_back_count, durably=True)
        if not self.pending:
            return bytes(self.durable)
        style = rng.random()
        if style < 0.2:
            return bytes(self.durable)
        if style < 0.4:
            return bytes(self.seen)
        kept = rng.randint(0, len(self.pending))
        if style < 0.6:
            image = bytearray(self.durable)
            for operation in self.pending[:kept]:
                _apply(image, operation)
            return bytes(image)
        size = self.pending[kept - 1].size_after if kept else len(self.durable)
        return self._mixed_sectors(size, rng)

    def _mixed_sectors(self, size: int, rng: random.Random) -> bytes:
        image = bytearray(size)
        for start in range(0, size, SECTOR_BYTES):
            end = min(start + SECTOR_BYTES, size)
            touching = [operation for operation in self.pending if _touches(operation, start, end)]
            kept = rng.randint(0, len(touching))
            sector = bytearray(self.durable[start:end].ljust(end - start, b"\0"))
            for operation in touching[:kept]:
                _overlay(sector, start, operation)
            image[start:end] = sector
        return bytes(image)


def _apply(image: bytearray, operation: FileOperation) -> None:
    position = operation.position
    if operation.data is None and position < len(image):
        del image[position:]
        return
    image.extend(bytes(max(0, position - len(image))))
    if operation.data is not None:
        image[position : position + len(operation.data)] = operation.data


def _touches(operation: FileOperation, start: int, end: int) -> bool:
    if operation.data is None:
        return operation.position < end
    return operation.position < end and start < operation.position + len(operation.data)


def _overlay(sector: bytearray, start: int, operation: FileOperation) -> None:
    """Apply the part of an operation that falls into a sector."""
    if operation.data is None:
        first = max(operation.position - start, 0)
        sector[first:] = bytes(len(sector) - first)
        return
    first = max(operation.position, start)
    last = min(operation.position + len(operation.data), start + len(sector))
    sector[first - start : last - start] = operation.data[
        first - operation.position : last - operation.position
    ]


@dataclass(eq=False)
class FolderNode:
    """A folder. `durable` is what surely is in it after a crash."""

    seen: dict[str, FileNode | FolderNode] = field(default_factory=dict)
    durable: dict[str, FileNode | FolderNode] = field(default_factory=dict)


Node = FileNode | FolderNode


class FolderOperation(NamedTuple):
    """Entries that change together: one for a create or an unlink, two for a rename. None removes."""

    changes: tuple[tuple[FolderNode, str, Node | None], ...]

    def apply_durably(self) -> None:
        for folder, name, node in self.changes:
            if node is None:
                folder.durable.pop(name, None)
            else:
                folder.durable[name] = node

    def touches(self, folder: FolderNode) -> bool:
        return any(changed is folder for changed, _, _ in self.changes)

    def shares_entry(self, other: FolderOperation) -> bool:
        return any(
            folder is other_folder and name == other_name
            for folder, name, _ in self.changes
            for other_folder, other_name, _ in other.changes
        )


def flush_folder(pending: list[FolderOperation], folder: FolderNode) -> list[FolderOperation]:
    """Make the operations on a folder durable, with the earlier ones on which they rest; returns the others."""
    completed: list[FolderOperation] = []
    others: list[FolderOperation] = []
    for operation in reversed(pending):
        if operation.touches(folder) or any(operation.shares_entry(later) for later in completed):
            completed.append(operation)
        else:
            others.append(operation)
    for operation in reversed(completed):
        operation.apply_durably()
    others.reverse()
    return others


def tree_after_crash(root: FolderNode, pending: list[FolderOperation], rng: random.Random) -> FolderNode:
    """The tree that a loss of power may leave: any subset of the pending folder operations, each whole."""
    style = rng.random()
    for operation in pending:
        if style < 0.2:
            break
        if style < 0.4 or rng.random() < 0.5:
            operation.apply_durably()
    return _rebuilt(root, rng)


def size_of(node: Node) -> int:
    """Bytes of all files in a tree."""
    if isinstance(node, FileNode):
        return len(node.seen)
    return sum(map(size_of, node.seen.values()))


def _rebuilt(folder: FolderNode, rng: random.Random) -> FolderNode:
    """New nodes, so that handles of the old life reach nothing of the new one."""
    fresh = FolderNode()
    for name, node in sorted(folder.durable.items()):
        if isinstance(node, FolderNode):
            fresh.seen[name] = _rebuilt(node, rng)
        else:
            file = FileNode(node.after_crash(rng))
            file.is_linked = True
            file.inverted_bits = {at: mask for at, mask in node.inverted_bits.items() if at < len(file.seen)}
            fresh.seen[name] = file
    fresh.durable = dict(fresh.seen)
    return fresh
