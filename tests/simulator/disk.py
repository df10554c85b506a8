"""`storage.disk.Disk` in memory: it forgets, tears, fails and lies as its faults say.

A killed process loses nothing that it wrote (the page cache is the kernel's). `crash` is the loss of power:
what was not flushed survives in any subset (tests/simulator/inode.py).
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.disk import DirectoryLockedError, DiskError, DiskFailedError, File, MissingPathError
from tests.simulator.inode import (
    FileNode,
    FolderNode,
    FolderOperation,
    Node,
    flush_folder,
    size_of,
    tree_after_crash,
)
from tests.simulator.loop import SimulatedLoop
from tests.simulator.memory_file import MemoryFile
from tests.simulator.process import NodeKilledError, NodeProcess, current_node, require_alive

UNLIMITED_BYTES = 1 << 40
#: Longer names are refused, as by Linux and macOS.
MAX_NAME_BYTES = 255


def _checked(names: list[str]) -> list[str]:
    for name in names:
        if len(name.encode()) > MAX_NAME_BYTES:
            raise DiskFailedError(f"{name}: file name too long")
    return names


class InjectedError(DiskFailedError):
    """An error that `DiskFaults` asked for: it explains the end of the process that meets it. Any other DiskFailedError
    is a mistake of whoever called."""


class VanishedError(MissingPathError):
    """A path in a folder that `MemoryDisk.vanish` took away: it explains the end of the process that meets it. Any
    other MissingPathError is a mistake of whoever called."""


@dataclass
class DiskFaults:
    """What is wrong with a disk. May be changed while it is in use."""

    #: A flush of a file takes this, plus an exponential part, times `slow_factor`.
    flush_min_s: float = 0.000_1
    flush_mean_extra_s: float = 0.000_4
    slow_factor: float = 1.0
    #: Share of rounds that are over when `Disk.flush` returns.
    at_once_rate: float = 0.3
    #: Probability that the flush of one file or folder fails. The kernel then forgets that pages were dirty.
    flush_error_rate: float = 0.0
    #: Probability that a read fails, and that a write does (after a part of it).
    read_error_rate: float = 0.0
    write_error_rate: float = 0.0
    #: Probability that an early write-back fails. The kernel reports that to the caller, or at the next flush of the
    #: file, and then takes the pages for clean.
    writeback_error_rate: float = 0.0
    #: Loop time until which the disk answers no flush.
    hangs_until_s: float = 0.0
    capacity_bytes: int = UNLIMITED_BYTES
    #: How long a file given to `remove_later` keeps its bytes, at most.
    remove_delay_s: float = 2.0
    #: Flushes return and make nothing durable ("fsync off"): the invariants have to notice.
    lying_flush: bool = False
    #: `Disk.flush` says done at once, and the data become durable when a flush would have ended.
    done_before_durable: bool = False

    def mend(self) -> None:
        """End what goes wrong now and then. What a test or a mutation says about every flush stays."""
        self.slow_factor = 1.0
        self.flush_error_rate = self.read_error_rate = 0.0
        self.write_error_rate = self.writeback_error_rate = 0.0
        self.hangs_until_s = 0.0
        self.make_room()

    def make_room(self) -> None:
        self.capacity_bytes = UNLIMITED_BYTES


class _FlushRound:
    """Files to be made durable one after the other, and what had been written when this was asked for."""

    def __init__(
        self,
        files: Sequence[File],
        done: Callable[[DiskError | None], None],
        owner: NodeProcess | None,
    ) -> None:
        self.left: deque[tuple[FileNode, int, str]] = deque()
        for file in files:
            assert isinstance(file, MemoryFile)
            self.left.append((file.node, file.node.operation_count, file.path))
        self.done = done
        self.owner = owner
        self.context = contextvars.copy_context()
        self.is_answered = False


class MemoryDisk:
    """One data directory. The object outlives the processes that use it, as a disk does."""

    def __init__(
        self, root: str, loop: SimulatedLoop, rng: random.Random, faults: DiskFaults | None = None
    ) -> None:
        assert root.startswith("/") and not root.endswith("/")
        self.faults = faults or DiskFaults()
        #: Rises at every crash: files opened before it are unusable.
        self.mount = 0
        self._root = root
        self._loop = loop
        self._rng = rng
        self._tree = FolderNode()
        #: Folder operations that are not durable, in order.
        self._pending: list[FolderOperation] = []
        #: Invariant: the sizes of all linked files.
        self._used_bytes = 0
        #: Rounds under way, in order of submission; they never overtake each other.
        self._rounds: deque[_FlushRound] = deque()
        self._flush_timer: asyncio.TimerHandle | None = None
        #: The round that failed last and whose answer waits for the loop's next turn, with its error.
        self._untold: tuple[_FlushRound, DiskError] | None = None
        self._removals: list[asyncio.TimerHandle] = []
        self._locked_by: NodeProcess | None = None
        #: Folders that were taken away from the process that uses the disk, by path: with what was in them, which the
        #: harness still sees.
        self._vanished: dict[str, FolderNode] = {}
        #: Called before an injected fault is raised in a process: by a read, a write, or in a folder. A flush of files
        #: answers instead.
        self.on_failure: Callable[[NodeProcess, DiskError], None] = lambda process, error: None
        #: Operations that the process may still do, and what happens instead of the next one (`die_after`).
        self._operations_left = 0
        self._death: Callable[[], None] | None = None

    # -- files and flushes -----------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        return self._root

    def open(self, path: str, *, create: bool = False) -> File:
        if self.is_read_by_harness() and self._is_vanished(path):
            return MemoryFile(self, path, self._vanished_file(path), current_node.get())
        folder, name = self._parent(path)
        node = folder.seen.get(name)
        if node is None:
            if not create:
                raise self._missing(path)
            node = FileNode()
            node.is_linked = True
            self._change((folder, name, node))
        if isinstance(node, FolderNode):
            raise DiskFailedError(f"{path}: is a directory")
        return MemoryFile(self, path, node, current_node.get())

    def flush(
        self,
        files: Sequence[File],
        done: Callable[[DiskError | None], None],
        *,
        may_block: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        require_alive(current_node.get())
        round_ = _FlushRound(files, done, current_node.get())
        if self.faults.done_before_durable:
            round_.is_answered = True
            self._loop.call_soon(done, None)
        elif (
            may_block
            and not (self._rounds or self._hangs_s())
            and self._rng.random() < self.faults.at_once_rate
        ):
            if meanwhile is not None:
                meanwhile()
            done(self._flush_at_once(round_))
            return
        self._rounds.append(round_)
        if self._flush_timer is None:
            self._flush_next()

    def _flush_at_once(self, round_: _FlushRound) -> DiskError | None:
        try:
            for left in round_.left:
                self.flush_node(*left)
        except DiskFailedError as failed:
            return failed
        return None

    def flush_node(self, node: FileNode, up_to_count: int, path: str) -> None:
        """Make the operations before `up_to_count` durable, as far as the faults allow."""
        if node.has_untold_error or self._strikes(self.faults.flush_error_rate):
            node.has_untold_error = False
            node.complete_pending(up_to_count, durably=False)
            raise InjectedError(f"{path}: flush: input/output error")
        if not self.faults.lying_flush:
            node.complete_pending(up_to_count, durably=True)

    def start_writeback(self, node: FileNode, path: str) -> None:
        """Early write-back: the device begins to write. It may be done before power is lost, and it may fail."""
        self.before_operation()
        if not self._strikes(self.faults.writeback_error_rate):
            node.written_back_count = node.operation_count
            return
        node.complete_pending(node.operation_count, durably=False)
        if self._rng.random() < 0.5:
            raise self._told(InjectedError(f"{path}: write-back: input/output error"))
        node.has_untold_error = True

    def raise_untold(self, owner: NodeProcess | None) -> None:
        """The kernel tells of an error once per open file. Whoever flushes while a round has failed, and was told that
        alone, asks the round, too."""
        if self._untold is not None and self._untold[0].owner is owner:
            raise self._untold[1]

    def flush_directory(self, path: str) -> None:
        folder = self._find(path)
        if not isinstance(folder, FolderNode):
            kind = InjectedError if self._is_vanished(path) else DiskFailedError
            raise kind(f"{path}: flush of the folder: no such directory")
        self.before_operation()
        self.fail_sometimes(self.faults.flush_error_rate, f"{path}: flush of the folder")
        if not self.faults.lying_flush:
            self._pending = flush_folder(self._pending, folder)

    def flush_together(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        for file in files:
            file.flush()
        for path in directories:
            self.flush_directory(path)

    # -- folders ---------------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list(self, path: str) -> list[str]:
        return sorted(self._folder(path).seen)

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), FolderNode)

    def make_directory(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, FileNode):
            raise DiskFailedError(f"{path}: is a file")
        if node is None:
            folder, name = self._parent(path)
            self._change((folder, name, FolderNode()))
            self._vanished.pop(path, None)

    def rename(self, old: str, new: str) -> None:
        old_folder, old_name = self._parent(old)
        new_folder, new_name = self._parent(new)
        node = old_folder.seen.get(old_name)
        if node is None:
            raise self._missing(old)
        if f"{new}/".startswith(f"{old}/") and new != old:
            raise DiskFailedError(f"{old}: cannot be moved into itself")
        replaced = new_folder.seen.get(new_name)
        if replaced is node:
            return
        if replaced is not None and type(replaced) is not type(node):
            raise DiskFailedError(f"{new}: one is a directory, the other is not")
        if isinstance(replaced, FolderNode) and replaced.seen:
            raise DiskFailedError(f"{new}: directory not empty")
        self._unlinked(replaced)
        self._vanished.pop(new, None)
        self._change((old_folder, old_name, None), (new_folder, new_name, node))

    def unlink(self, path: str) -> None:
        folder, name = self._parent(path)
        node = folder.seen.get(name)
        if node is None:
            raise self._missing(path)
        if isinstance(node, FolderNode):
            raise DiskFailedError(f"{path}: is a directory")
        self._unlinked(node)
        self._change((folder, name, None))

    def remove_tree(self, path: str) -> None:
        folder = self._folder(path)
        for name, node in sorted(folder.seen.items()):
            if isinstance(node, FolderNode):
                self.remove_tree(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        parent, name = self._parent(path)
        self._change((parent, name, None))

    def remove_later(self, path: str) -> None:
        """The timer dies with the process, as the remover's thread does."""
        require_alive(current_node.get())
        delay_s = self._rng.uniform(0.0, self.faults.remove_delay_s)
        self._removals = [handle for handle in self._removals if handle.when() > self._loop.time()]
        self._removals.append(self._loop.call_later(delay_s, self._remove, path))

    def free_bytes(self) -> int:
        return max(0, self.faults.capacity_bytes - self._used_bytes)

    def total_bytes(self) -> int:
        return self.faults.capacity_bytes

    def lock(self) -> None:
        owner = current_node.get() or self._loop.world
        require_alive(owner)
        if self._locked_by is not None and self._locked_by.alive:
            raise DirectoryLockedError(f"{self._root} is in use by {self._locked_by.label}")
        self.open(f"{self._root}/.lock", create=True).close()
        self._locked_by = owner
        self._vanished.clear()

    def close(self) -> None:
        require_alive(current_node.get())
        self._stop_flushing()
        while self._rounds:
            self._flush_step()
        for handle in self._removals:
            handle.cancel()
        self._removals.clear()
        self._locked_by = None

    # -- for the harness -------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Power is lost and comes back: what the next start finds. Kill the process first."""
        assert self._locked_by is None or not self._locked_by.alive, "a crash kills the process, too"
        self._loop.trace.note(self._loop.time(), self._root, "loses power")
        self._stop_flushing()
        self._rounds.clear()
        self._untold = None
        self._removals.clear()
        self._locked_by = None
        self._tree = tree_after_crash(self._tree, self._pending, self._rng)
        self._pending = []
        self._used_bytes = size_of(self._tree)
        self.mount += 1

    def flip_bits(self, path: str, position: int, size: int, *, count: int = 1) -> None:
        """Corruption: `count` random bits within a range of a file are inverted, on the medium and in the cache."""
        node = self._find(path)
        assert isinstance(node, FileNode)
        for _ in range(count):
            at = position + self._rng.randrange(size)
            bit = 1 << self._rng.randrange(8)
            for image in (node.seen, node.durable):
                if at < len(image):
                    image[at] ^= bit

    def corrupt(self, path: str, position: int, masks: bytes) -> None:
        """The node reads the bytes from `position` on with these bits inverted, until they are written anew. The
        harness still reads what was written."""
        node = self._find(path)
        assert isinstance(node, FileNode) and position + len(masks) <= len(node.seen)
        for at, mask in enumerate(masks, position):
            node.invert(at, mask)
        self._loop.trace.note(self._loop.time(), path, f"is corrupted at {position}")

    def vanish(self, path: str) -> None:
        """Somebody removes a folder of files, durably, under the process that uses it. What is open stays readable and
        writable, as an unlinked file does."""
        parent, name = self._parent(path)
        folder = parent.seen[name]
        assert isinstance(folder, FolderNode)
        for node in folder.seen.values():
            self._unlinked(node)
        self._change((parent, name, None))
        self._pending = flush_folder(self._pending, parent)
        self._vanished[path] = folder
        self._loop.trace.note(self._loop.time(), path, "vanishes")

    @property
    def has_lost_folders(self) -> bool:
        """The process that uses the disk would end if it needed a name in one of them. One that starts later finds them
        missing, and can do without."""
        return bool(self._vanished)

    def corrupt_files(self) -> Sequence[str]:
        """Files that are read otherwise than they were written, sorted."""
        found: list[str] = []
        folders: list[tuple[str, FolderNode]] = [(self._root, self._tree)]
        while folders:
            path, folder = folders.pop()
            for name, node in folder.seen.items():
                if isinstance(node, FolderNode):
                    folders.append((f"{path}/{name}", node))
                elif node.inverted_bits:
                    found.append(f"{path}/{name}")
        return sorted(found)

    def corrupt_positions(self, path: str) -> Sequence[int]:
        node = self._find(path)
        return sorted(node.inverted_bits) if isinstance(node, FileNode) else []

    def die_after(self, operations: int, death: Callable[[], None]) -> None:
        """The process that uses this disk ends after so many operations (writes, cuts, flushes, changes of a folder):
        instead of the next one, or in the middle of it, `death` is called, which kills it."""
        self._operations_left, self._death = operations, death

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def mend(self) -> None:
        """Everything that goes wrong ends, `die_after` and a flush that hangs already included."""
        self.faults.mend()
        self._death = None
        self._stop_flushing()
        self._flush_next()

    def durable_contents(self, path: str) -> bytes | None:
        """What surely survives of a file: None where a crash may lose its name."""
        node = self._durable_node(path)
        return bytes(node.durable) if isinstance(node, FileNode) else None

    def durable_names(self, path: str) -> Sequence[str]:
        """What surely survives in a folder; nothing where a crash may lose the folder's own name."""
        node = self._durable_node(path)
        return sorted(node.durable) if isinstance(node, FolderNode) else ()

    def _durable_node(self, path: str) -> Node | None:
        node: Node = self._tree
        for name in self._names(path):
            if not isinstance(node, FolderNode) or name not in node.durable:
                return None
            node = node.durable[name]
        return node

    # -- inside ----------------------------------------------------------------------------------------------

    def fail_sometimes(self, rate: float, what: str) -> None:
        if self._strikes(rate):
            raise self._told(InjectedError(f"{what}: input/output error"))

    def _strikes(self, rate: float) -> bool:
        return bool(rate) and self._rng.random() < rate

    def _told(self, error: DiskError) -> DiskError:
        """The process that runs is about to be told of a fault, by an exception."""
        process = current_node.get()
        if process is not None and process is not self._loop.world:
            self.on_failure(process, error)
        return error

    def _missing(self, path: str) -> DiskError:
        if self._is_vanished(path):
            return self._told(VanishedError(f"{path}: no such file or directory"))
        return MissingPathError(f"{path}: no such file or directory")

    def _is_vanished(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{folder}/") for folder in self._vanished)

    def _vanished_file(self, path: str) -> FileNode:
        folder, _, name = path.rpartition("/")
        node = self._vanished[folder].seen[name]
        assert isinstance(node, FileNode)
        return node

    def is_read_by_harness(self) -> bool:
        """The harness is shown what was written, corrupt or not: otherwise it could not say what was."""
        return current_node.get() in (None, self._loop.world)

    def before_operation(self) -> None:
        """Called before anything changes; raises NodeKilledError if the process was to die here."""
        if self._death is None or self.is_read_by_harness():
            return
        self._operations_left -= 1
        if self._operations_left < 0:
            death, self._death = self._death, None
            death()
            raise NodeKilledError(f"died at {self._root}")

    def before_write(self, node: FileNode, position: int, data: bytes, path: str) -> None:
        """... and before a write: a process that dies in it, or is told EIO, has written a part."""
        dies = self._death is not None and self._operations_left == 0 and not self.is_read_by_harness()
        fails = self._strikes(self.faults.write_error_rate)
        if dies or fails:
            room = len(node.seen) - position + self.free_bytes()
            part = data[: min(self._rng.randrange(len(data) + 1), room)]
            self.count_bytes(node, max(0, position + len(part) - len(node.seen)))
            node.write(position, part)
        self.before_operation()
        if fails:
            raise self._told(InjectedError(f"{path}: write: input/output error"))

    def _hangs_s(self) -> float:
        return max(0.0, self.faults.hangs_until_s - self._loop.time())

    def count_bytes(self, node: FileNode, added: int) -> None:
        if node.is_linked:
            self._used_bytes += added

    def _stop_flushing(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None

    def _flush_next(self) -> None:
        """Start on the next file. A dead process submits no more; what it had begun is finished."""
        while self._rounds and self._rounds[0].owner is not None and not self._rounds[0].owner.alive:
            self._rounds.popleft()
        if not self._rounds:
            self._flush_timer = None
            return
        faults = self.faults
        delay_s = faults.flush_min_s + self._rng.expovariate(1.0) * faults.flush_mean_extra_s
        context = self._loop.world.new_context()
        self._flush_timer = self._loop.call_later(
            delay_s * faults.slow_factor + self._hangs_s(), self._flushed_one, context=context
        )

    def _flushed_one(self) -> None:
        self._flush_step()
        self._flush_next()

    def _flush_step(self) -> None:
        """The next file of the first round is durable; after the last one, say so."""
        round_ = self._rounds[0]
        error: DiskError | None = None
        if round_.left:
            try:
                self.flush_node(*round_.left.popleft())
            except DiskFailedError as failed:
                error = failed
        if error is not None or not round_.left:
            self._rounds.popleft()
            if not round_.is_answered:
                if error is not None:
                    self._untold = round_, error
                self._loop.call_soon(self._tell, round_, error, context=round_.context)

    def _tell(self, round_: _FlushRound, error: DiskError | None) -> None:
        if self._untold is not None and self._untold[0] is round_:
            self._untold = None
        round_.done(error)

    def _remove(self, path: str) -> None:
        node = self._find(path)
        if isinstance(node, FolderNode):
            self.remove_tree(path)
        elif node is not None:
            self.unlink(path)

    def _unlinked(self, node: Node | None) -> None:
        if isinstance(node, FileNode):
            self._used_bytes -= len(node.seen)
            node.is_linked = False

    def _change(self, *changes: tuple[FolderNode, str, Node | None]) -> None:
        self.before_operation()
        for folder, name, node in changes:
            if node is None:
                folder.seen.pop(name, None)
            else:
                folder.seen[name] = node
        self._pending.append(FolderOperation(changes))

    def _names(self, path: str) -> Sequence[str]:
        """The parts of a path below the root. Every access passes here: the dead have none."""
        require_alive(current_node.get())
        if path == self._root:
            return []
        assert path.startswith(self._root + "/"), f"{path} is outside {self._root}"
        return _checked(path[len(self._root) + 1 :].split("/"))

    def _find(self, path: str) -> Node | None:
        node: Node = self._tree
        for name in self._names(path):
            if not isinstance(node, FolderNode) or name not in node.seen:
                return None
            node = node.seen[name]
        return node

    def _folder(self, path: str) -> FolderNode:
        """MissingPathError where a part is missing; a file in a folder's place is a failure (ENOTDIR)."""
        folder = self._tree
        for name in self._names(path):
            node = folder.seen.get(name)
            if node is None:
                raise self._missing(path)
            if isinstance(node, FileNode):
                raise DiskFailedError(f"{path}: not a directory")
            folder = node
        return folder

    def _parent(self, path: str) -> tuple[FolderNode, str]:
        """The folder that names `path`. MissingPathError where there is none."""
        parent, _, name = path.rpartition("/")
        return self._folder(parent), _checked([name])[0]
