"""What the storage tests share: batches, logs on a real directory, and a disk that stops at a chosen call."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from protocol.records.batch import BatchHeader, iter_batches, parse_header
from protocol.records.builder import NewRecord, build_batch, build_filler
from storage.disk import Buffer, Disk, DiskError, File
from storage.file_disk import FileDisk
from storage.log import Log
from storage.log_creation import create_log
from storage.log_reader import Lookup, TimestampedOffset
from storage.log_recovery import open_log
from storage.log_types import FlushedEnd, GroupKey, LogConfig
from storage.producer_snapshot import ensure_snapshot
from storage.segment_files import LOG_SUFFIX
from tests.simulator.disk import MemoryDisk

GROUP = GroupKey(UUID(int=7), 0)
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)
#: Of a topic with the longest name that is allowed.
LONGEST_FOLDER_NAME = "x" * 249 + "-49999"
ROW_KIND = 1
#: raft.types.FOUNDING_TERM, which storage does not know.
FOUNDING_TERM = -1
SECTOR_BYTES = 512


class InlineDisk(FileDisk):
    """A FileDisk whose flush completes when the test says so, on the test's thread."""

    def __init__(self, root: str) -> None:
        super().__init__(root, lambda callback: callback(), remove_delay_s=0.0)
        self.submitted: list[tuple[Sequence[File], Callable[[DiskError | None], None]]] = []

    def flush(
        self,
        files: Sequence[File],
        done: Callable[[DiskError | None], None],
        *,
        may_block: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        self.submitted.append((list(files), done))

    def complete(self, error: DiskError | None = None) -> None:
        """Finish the oldest submitted flush."""
        files, done = self.submitted.pop(0)
        for file in files:
            file.flush()
        done(error)


@contextmanager
def fresh_disk() -> Iterator[InlineDisk]:
    """A directory for one example of a property test: the fixture `disk` is shared by all of them."""
    with TemporaryDirectory() as root:
        disk = InlineDisk(root)
        try:
            yield disk
        finally:
            disk.close()


def tear(path: Path, flushed_bytes: int, rng: random.Random, loss_rate: float) -> bytearray:
    """What a loss of power leaves of a file of which so many bytes were flushed: of the rest any subset of sectors,
    zeros in place of the others. The caller writes it, perhaps cut short."""
    data = bytearray(path.read_bytes())
    for sector in range(flushed_bytes // SECTOR_BYTES, len(data) // SECTOR_BYTES + 1):
        if rng.random() < loss_rate:
            low = max(flushed_bytes, sector * SECTOR_BYTES)
            high = min(len(data), (sector + 1) * SECTOR_BYTES)
            data[low:high] = bytes(max(high - low, 0))
    return data


def flip_a_bit(path: Path, below: int, rng: random.Random) -> int:
    """Corruption somewhere in the first `below` bytes; returns where."""
    data = bytearray(path.read_bytes())
    at = rng.randrange(below)
    data[at] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return at


def batch_at(
    offset: int, epoch: int, *, count: int = 3, value_bytes: int = 40, timestamp_ms: int = 1000, **fields: Any
) -> bytearray:
    records = [NewRecord(b"k", b"v" * value_bytes, timestamp_ms + i) for i in range(count)]
    return build_batch(records, base_offset=offset, leader_epoch=epoch, **fields)


def append(log: Log, *, count: int = 3, **fields: Any) -> BatchHeader:
    """Append one batch at the end, in the current term."""
    batch = batch_at(log.end_offset, log.lineage.last_term, count=count, **fields)
    header = parse_header(batch)
    log.append_batches([batch], [header])
    return header


def append_filler(log: Log, count: int) -> BatchHeader:
    """As a range of a compacted log holds it: for so many offsets from the end on."""
    batch = build_filler(log.end_offset, log.end_offset + count, log.lineage.last_term)
    header = parse_header(batch)
    log.append_batches([batch], [header])
    return header


def replace_by_filler(segment: Buffer, first: int, end: int) -> bytes:
    """The bytes of a segment, without padding, whose batches below `first` and from `end` on stay."""
    kept = bytearray()
    for position, header in iter_batches(segment):
        if header.base_offset == first:
            kept += build_filler(first, end, header.leader_epoch)
        if not first <= header.base_offset < end:
            kept += memoryview(segment)[position : position + header.size_bytes]
    return bytes(kept)


def new_log(
    disk: Disk,
    config: LogConfig = SMALL,
    *,
    term: int | None = 1,
    founding_term: int = FOUNDING_TERM,
    folder: str = "topic-0",
) -> Log:
    """A log with its configuration row and the row of a first leader (None: nobody has led), durable."""
    log = create_log(disk, f"{disk.root}/{folder}", GROUP, config)
    log.append_row(founding_term, 0, b"configuration")
    if term is not None:
        log.append_row(term, ROW_KIND, b"")
    log.flush()
    return log


def reopen(
    disk: Disk,
    config: LogConfig = SMALL,
    *,
    recorded: FlushedEnd | None = None,
    log_start: int = 0,
    is_clean: bool = False,
    folder: str = "topic-0",
) -> Log:
    return open_log(
        disk,
        f"{disk.root}/{folder}",
        GROUP,
        config,
        recorded=recorded,
        log_start=log_start,
        is_clean=is_clean,
    )


def delete_below(log: Log, start: int, high_watermark: int) -> None:
    """As a replica does when its journal tells of the log start."""
    log.set_start_offset(start)
    end_offset = log.whole_segments_end(start)
    if end_offset > log.first_stored_offset:
        ensure_snapshot(log, end_offset, high_watermark)
        log.delete_segments(end_offset)


def stored_headers(log: Log) -> list[BatchHeader]:
    return [batch.header for batch in log.batches(log.start_offset)]


def segment_bases(log: Log) -> list[int]:
    """Where its segments begin, by the names of their files."""
    names = log.disk.list(log.directory)
    return [int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX)]


def log_files(root: str | Path) -> list[Path]:
    return sorted(Path(root, "topic-0").glob("*.log"))


def fill(log: Log, rng: random.Random, batches: int) -> None:
    for _ in range(batches):
        append(log, count=rng.randint(1, 5), value_bytes=rng.randint(0, 120))


class StopError(Exception):
    """The simulated death of the process."""


class Stopping:
    """Mixed into a disk: it dies at the n-th call that changes anything. That call, and all after it, do
    nothing but raise."""

    calls_left: int | None = None

    def step(self) -> None:
        if self.calls_left is None:
            return
        if self.calls_left == 0:
            raise StopError
        self.calls_left -= 1


class StoppingDisk(Stopping, InlineDisk):
    """A real directory that is left as it is at some step."""

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self.step()
        return StoppingFile(super().open(path, create=create), self)

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.step()
        super().unlink(path)

    def make_directory(self, path: str) -> None:
        self.step()
        super().make_directory(path)

    def remove_tree(self, path: str) -> None:
        for name in self.list(path):
            self.unlink(f"{path}/{name}")
        self.step()
        super().remove_tree(path)

    def flush_directory(self, path: str) -> None:
        self.step()
        super().flush_directory(path)


class StoppingMemoryDisk(Stopping, MemoryDisk):
    """A disk that loses power at some step, and with it any subset of what was not flushed."""

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self.step()
        return StoppingFile(super().open(path, create=create), self)

    def flush(
        self,
        files: Sequence[File],
        done: Callable[[DiskError | None], None],
        *,
        may_block: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        self.step()
        inner = [file.inner if isinstance(file, StoppingFile) else file for file in files]
        super().flush(inner, done, may_block=may_block, meanwhile=meanwhile)

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.step()
        super().unlink(path)

    def make_directory(self, path: str) -> None:
        self.step()
        super().make_directory(path)

    def flush_directory(self, path: str) -> None:
        self.step()
        super().flush_directory(path)


class StoppingFile:
    """A file of a disk that stops."""

    def __init__(self, inner: File, disk: Stopping) -> None:
        self.inner = inner
        self._disk = disk

    @property
    def path(self) -> str:
        return self.inner.path

    @property
    def size(self) -> int:
        return self.inner.size

    def append(self, buffers: Sequence[Buffer], *, is_padded: bool = False) -> None:
        self._disk.step()
        self.inner.append(buffers, is_padded=is_padded)

    def write_at(self, position: int, data: Buffer) -> None:
        self._disk.step()
        self.inner.write_at(position, data)

    def read(self, position: int, size: int) -> memoryview:
        return self.inner.read(position, size)

    def fileno(self) -> int:
        return self.inner.fileno()

    def truncate(self, size: int) -> None:
        self._disk.step()
        self.inner.truncate(size)

    def trim(self) -> None:
        self._disk.step()
        self.inner.trim()

    def flush(self) -> None:
        self._disk.step()
        self.inner.flush()

    def start_writeback(self) -> None:
        self.inner.start_writeback()

    def drop_cached(self) -> None:
        self.inner.drop_cached()

    def close(self) -> None:
        self.inner.close()


def looked_up(lookup: Lookup) -> TimestampedOffset | None:
    """Take all its steps."""
    while True:
        try:
            next(lookup)
        except StopIteration as end:
            found: TimestampedOffset | None = end.value
            return found
