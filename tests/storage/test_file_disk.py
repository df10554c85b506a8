from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
import platform
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from storage import writeback
from storage.directory import (
    MetaProperties,
    delete_partition,
    format_directory,
    is_formatted,
    list_partitions,
    read_meta,
    renew_identity,
    set_aside_partition,
    take_clean_marker,
    write_clean_marker,
)
from storage.disk import Buffer, DirectoryLockedError, DiskError, DiskFailedError, DiskFullError
from storage.errors import DirectoryFormatError
from storage.file_disk import AT_ONCE_S, VOLUME_FROM, FileDisk
from storage.log_creation import create_log
from storage.posix_file import AT_ONCE_BYTES, CACHED_TAIL_BYTES, DROP_BYTES, PosixFile
from storage.remover import SHRINK_STEP_BYTES
from storage.volume import Volume
from tests.storage.helpers import GROUP, LONGEST_FOLDER_NAME, ROW_KIND, SMALL, InlineDisk, append, new_log


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FileDisk]:
    disk = FileDisk(str(tmp_path), lambda callback: callback(), remove_delay_s=0.0)
    yield disk
    disk.close()


def test_appends_many_buffers_and_survives_partial_writes(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(1)
    real = os.pwritev

    def partial(fd: int, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)
        return real(fd, [data[: rng.randint(1, len(data))]], position)

    file = disk.open(f"{disk.root}/a", create=True)
    parts = [rng.randbytes(rng.randint(0, 30)) for _ in range(2500)]
    file.append(parts)
    monkeypatch.setattr("os.pwritev", partial)
    file.append(parts[:50])
    assert bytes(file.read(0, 1 << 20)) == b"".join(parts + parts[:50])
    assert file.size == os.stat(file.path).st_size


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_cuts_the_file_back(disk: FileDisk, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    file = disk.open(f"{disk.root}/a", create=True)
    file.append([b"whole"])
    real = os.pwritev

    def half(fd: int, buffers: Sequence[Buffer], position: int) -> int:
        if position > 5:
            raise OSError(code, "full")
        return real(fd, [bytes(buffers[0])[:3]], position)

    monkeypatch.setattr("os.pwritev", half)
    with pytest.raises(DiskFullError):
        file.append([b"abcdef", b"ghi"])
    assert os.stat(file.path).st_size == file.size == 5


def test_any_other_error_is_fatal(disk: FileDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open(f"{disk.root}/a", create=True)

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.pwrite", broken)
    with pytest.raises(DiskFailedError):
        file.append([b"x"])
    monkeypatch.setattr("os.fdatasync", broken)
    with pytest.raises(DiskFailedError):
        file.flush()


def test_a_small_flush_is_over_at_once_while_the_disk_is_quick(tmp_path: Path) -> None:
    posted: list[Callable[[], None]] = []
    answered = threading.Event()

    def post(callback: Callable[[], None]) -> None:
        posted.append(callback)
        answered.set()

    disk = FileDisk(str(tmp_path), post)
    file = disk.open(f"{disk.root}/a", create=True)
    results: list[DiskError | None] = []
    #: Of each call of `meanwhile`: how many flushes were over.
    results_before: list[int] = []

    def flush(*sizes_bytes: int, mean_s: float, may_block: bool = True) -> bool:
        """Whether it is over at once. If it is not, wait for it."""
        disk._flusher.mean_s = mean_s
        for size_bytes in sizes_bytes:
            file.append([bytes(size_bytes)])
        results.clear()
        results_before.clear()
        disk.flush(
            [file], results.append, may_block=may_block, meanwhile=lambda: results_before.append(len(results))
        )
        assert results_before == [0] * len(results), (
            "it is called before a flush that blocks, and before no other"
        )
        if results:
            return True
        assert answered.wait(timeout=30)
        answered.clear()
        posted.pop()()
        assert results == [None]
        return False

    assert flush(AT_ONCE_BYTES, mean_s=0.0)
    assert not flush(AT_ONCE_BYTES + 1, mean_s=0.0)
    assert not flush(1, mean_s=2 * AT_ONCE_S)
    assert flush(1, 1, mean_s=0.0)
    assert not flush(1, mean_s=0.0, may_block=False)
    assert flush(1, mean_s=0.0)
    disk.close()


async def test_flushes_report_on_the_loop_in_order_and_with_errors(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    disk = FileDisk(str(tmp_path), loop.call_soon_threadsafe)
    file = disk.open(f"{disk.root}/a", create=True)
    results: list[tuple[int, DiskError | None]] = []
    finished = loop.create_future()

    def done(number: int, error: DiskError | None) -> None:
        assert threading.current_thread() is threading.main_thread()
        results.append((number, error))
        if number == 20:
            finished.set_result(None)

    for number in range(20):
        file.append([b"x"])
        disk.flush([file], lambda error, number=number: done(number, error))  # type: ignore[misc]
    closed = disk.open(f"{disk.root}/b", create=True)
    closed.close()
    disk.flush([file, closed], lambda error: done(20, error))
    await finished
    assert [number for number, _ in results] == list(range(21))
    assert [error for _, error in results[:20]] == [None] * 20
    assert isinstance(results[20][1], DiskFailedError)
    disk.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_what_cannot_be_looked_at_is_not_missing(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path, real = f"{disk.root}/a", os.stat
    disk.open(path, create=True).close()
    assert disk.exists(path) and not disk.is_directory(path)
    assert disk.exists(disk.root) and disk.is_directory(disk.root)
    for missing in (f"{disk.root}/b", f"{path}/b"):
        assert not disk.exists(missing) and not disk.is_directory(missing)

    def stat(name: object, *args: Any, **kwargs: Any) -> os.stat_result:
        if name == path:
            raise OSError(code, os.strerror(code))
        return real(path, *args, **kwargs)

    monkeypatch.setattr("os.stat", stat)
    for look in (disk.exists, disk.is_directory):
        with pytest.raises(DiskFailedError, match=os.strerror(code)):
            look(path)


async def test_the_loop_is_told_of_an_error_that_the_kernel_told_the_flusher_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux tells of a write that failed once per open file: the flush of a roll beside a round succeeds."""
    disk = FileDisk(str(tmp_path), asyncio.get_running_loop().call_soon_threadsafe)
    log = new_log(disk)
    append(log, value_bytes=AT_ONCE_BYTES)
    loop_thread, real, is_told = threading.get_ident(), os.fdatasync, threading.Event()

    def fdatasync(fd: int) -> None:
        if threading.get_ident() == loop_thread:
            assert is_told.wait(5)
            real(fd)
        else:
            is_told.set()
            raise OSError(errno.EIO, "io")

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    answered: asyncio.Future[DiskError | None] = asyncio.get_running_loop().create_future()
    disk.flush(log.begin_flush().files, answered.set_result)
    for act in (log.roll, log.flush, lambda: disk.flush_together([log._segments[-1].file])):
        with pytest.raises(DiskFailedError):
            act()
    assert isinstance(await answered, DiskFailedError)
    disk.close()


def test_removed_files_shrink_in_steps_and_go(disk: FileDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(disk.root, "big.deleted")
    with path.open("wb") as file:
        file.truncate(3 * SHRINK_STEP_BYTES + 5)
    folder = Path(disk.root, "t-0.x-delete", "inner")
    folder.mkdir(parents=True)
    (folder / "f").write_bytes(b"x")
    sizes: list[int] = []
    gone = threading.Event()
    real_truncate, real_rmdir = os.truncate, os.rmdir

    def truncate(at: str, size: int) -> None:
        sizes.append(size)
        real_truncate(at, size)

    def rmdir(at: str) -> None:
        real_rmdir(at)
        if at.endswith("-delete"):
            gone.set()

    monkeypatch.setattr("os.truncate", truncate)
    monkeypatch.setattr("os.rmdir", rmdir)
    disk.remove_later(str(path))
    disk.remove_later(str(folder.parent))
    assert gone.wait(10)
    assert not path.exists() and not folder.parent.exists()
    assert sizes == [2 * SHRINK_STEP_BYTES + 5, SHRINK_STEP_BYTES + 5, 5]


def test_a_second_process_is_told_that_the_directory_is_taken(disk: FileDisk) -> None:
    disk.lock()
    code = (
        "import sys; from storage.file_disk import FileDisk; from storage.disk import DirectoryLockedError\n"
        "try: FileDisk(sys.argv[1], print).lock()\n"
        "except DirectoryLockedError: sys.exit(7)"
    )
    finished = subprocess.run([sys.executable, "-c", code, disk.root], check=False)
    assert finished.returncode == 7
    other = FileDisk(disk.root, print)
    with pytest.raises(DirectoryLockedError):
        other.lock()
    other.close()


def test_identity_is_written_in_kafkas_form_and_only_a_cluster_is_added_to_it(disk: FileDisk) -> None:
    with pytest.raises(DirectoryFormatError):
        read_meta(disk)
    meta = MetaProperties(None, 3, UUID(int=2**100 + 5))
    format_directory(disk, meta)
    assert is_formatted(disk)
    assert read_meta(disk) == meta
    meta = meta._replace(cluster_id="MkU3OEVBNTcwNTJENDM2Qk")
    format_directory(disk, meta)
    assert read_meta(disk) == meta
    assert "directory.id=" in Path(disk.root, "meta.properties").read_text()
    for other in (meta._replace(cluster_id=None), meta._replace(directory_id=UUID(int=7))):
        with pytest.raises(AssertionError):
            format_directory(disk, other)
    renew_identity(disk, UUID(int=7))
    assert read_meta(disk) == meta._replace(directory_id=UUID(int=7))


def test_the_clean_marker_is_taken_once(disk: FileDisk) -> None:
    assert not take_clean_marker(disk)
    write_clean_marker(disk)
    assert take_clean_marker(disk)
    assert not take_clean_marker(disk)


def test_partitions_are_listed_deleted_and_set_aside(tmp_path: Path) -> None:
    disk = InlineDisk(str(tmp_path))
    new_log(disk).close(is_clean=True)
    Path(disk.root, "half-made-12").mkdir()
    Path(disk.root, "no partition").mkdir()
    folders = list_partitions(disk)
    assert [(f.topic, f.partition, f.topic_id) for f in folders] == [
        ("half-made", 12, None),
        ("topic", 0, GROUP.topic_id),
    ]
    stray = set_aside_partition(disk, "topic", 0, GROUP.topic_id)
    assert stray.endswith("-stray") and Path(stray).is_dir()
    new_log(disk).close(is_clean=True)
    delete_partition(disk, "topic", 0, GROUP.topic_id)
    assert [f.topic for f in list_partitions(disk)] == ["half-made"]
    disk.close()


def test_folders_with_the_longest_name_are_deleted_and_set_aside(tmp_path: Path) -> None:
    disk = InlineDisk(str(tmp_path))
    topic, _, number = LONGEST_FOLDER_NAME.rpartition("-")
    partition, aside = int(number), set()
    for topic_id in (GROUP.topic_id, GROUP.topic_id, None):
        new_log(disk, folder=LONGEST_FOLDER_NAME).close(is_clean=True)
        aside.add(set_aside_partition(disk, topic, partition, topic_id))
    new_log(disk, folder=LONGEST_FOLDER_NAME).close(is_clean=True)
    delete_partition(disk, topic, partition, GROUP.topic_id)
    disk.close()
    assert aside == {f"{disk.root}/{name}" for name in os.listdir(disk.root) if name.endswith("-stray")}
    assert len(aside) == 3 and LONGEST_FOLDER_NAME not in os.listdir(disk.root)


@pytest.mark.parametrize("what", ["nothing", "row", "batch"])
def test_only_an_empty_folder_is_an_unfinished_log(tmp_path: Path, what: str) -> None:
    """Data and rows come after partition.metadata: a log that has some has lost it."""
    disk = InlineDisk(str(tmp_path))
    log = create_log(disk, f"{disk.root}/topic-0", GROUP, SMALL)
    if what != "nothing":
        log.append_row(1, ROW_KIND, b"")
    if what == "batch":
        append(log)
        log.flush()
        os.truncate(f"{log.directory}/lineage", 0)
    log.close(is_clean=False)
    os.unlink(f"{log.directory}/partition.metadata")
    (folder,) = list_partitions(disk)
    assert (folder.topic_id, folder.is_unfinished) == (None, what == "nothing")
    names = {set_aside_partition(disk, "topic", 0, None)}
    Path(disk.root, "topic-0").mkdir()
    names.add(set_aside_partition(disk, "topic", 0, None))
    assert names == {f"{disk.root}/topic-0-stray", f"{disk.root}/topic-0.1-stray"}
    assert list_partitions(disk) == []
    disk.close()


@pytest.mark.parametrize("mean_s", [0.0, 1.0])
def test_many_flushes_are_waited_for_together_where_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mean_s: float
) -> None:
    """On threads then; either way all are over when it returns, and none fails unseen."""
    monkeypatch.setattr("storage.volume.MAX_DIRTY_BYTES", -1)
    disk = FileDisk(str(tmp_path), lambda callback: None)
    files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(20)]
    lock, synced, threads = threading.Lock(), list[int](), set[int]()

    def sync(fd: int) -> None:
        with lock:
            synced.append(fd)
            threads.add(threading.get_ident())
        if fd == failing:
            raise OSError(errno.EIO, "corrupt")

    failing = -1
    monkeypatch.setattr("os.fdatasync", sync)
    disk._flusher.mean_s = mean_s
    disk.flush_together(files, [str(tmp_path)])
    assert sorted(synced) == sorted(file.fileno() for file in files)
    assert (threads == {threading.get_ident()}) is (mean_s == 0.0)

    failing = files[7].fileno()
    with pytest.raises(DiskFailedError, match="corrupt"):
        disk.flush_together(files)
    disk.close()


def test_many_flushes_are_one_of_the_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it means for what is lost with the power: tests/integration/faults/test_power.py."""
    monkeypatch.setattr("storage.volume.MAX_DIRTY_BYTES", 1 << 60)
    if platform.system() != "Linux":
        pytest.skip("no syncfs")
    disk = FileDisk(str(tmp_path), lambda callback: None)
    files = [disk.open(f"{tmp_path}/{number}", create=True) for number in range(VOLUME_FROM)]
    synced: list[int] = []
    monkeypatch.setattr("os.fdatasync", synced.append)
    disk.flush_together(files[1:])
    assert len(synced) == len(files) - 1, "few are flushed one by one"
    synced.clear()
    disk.flush_together(files)
    assert synced == []
    disk.close()


def test_a_volume_that_cannot_write_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FileDisk(str(tmp_path), lambda callback: None)
    numbers = [errno.ENOSPC, errno.EIO]

    def fail(fd: int) -> int:
        ctypes.set_errno(numbers.pop(0))
        return -1

    monkeypatch.setattr("storage.volume.MAX_DIRTY_BYTES", 1 << 60)
    monkeypatch.setattr(disk._volume, "_syncfs", fail)
    flushed: list[str] = []
    monkeypatch.setattr(disk, "flush_directory", flushed.append)
    disk.flush_together((), [str(tmp_path)] * VOLUME_FROM)
    assert len(flushed) == VOLUME_FROM, "another's quota is not our failure: each is flushed by itself"
    with pytest.raises(DiskFailedError, match="Input/output error"):
        disk.flush_together((), [str(tmp_path)] * VOLUME_FROM)
    disk.close()


@pytest.mark.parametrize("release", ["4.19.0-27-amd64", "5.7.19"])
def test_a_kernel_that_hides_errors_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr("storage.volume.MAX_DIRTY_BYTES", 1 << 60)
    monkeypatch.setattr("platform.release", lambda: release)
    volume = Volume(str(tmp_path))
    assert not volume.flush()
    volume.close()


def _cached(file: PosixFile) -> list[bool]:
    """Whether each page of the file is in the page cache (mincore(2))."""
    library = ctypes.CDLL(None, use_errno=True)
    size = file.size
    with mmap.mmap(file.fileno(), size) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        pages = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
        failed = library.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages)
        del first
    assert not failed, os.strerror(ctypes.get_errno())
    return [bool(page & 1) for page in pages]


def _dropped_unwritten_bytes(file: PosixFile) -> int:
    """Cut the file to nothing; returns how much of it nobody had begun to write."""
    before = _cancelled_bytes()
    file.truncate(0)
    return _cancelled_bytes() - before


def _cancelled_bytes() -> int:
    with open("/proc/thread-self/io") as counters:
        return next(int(line.split()[1]) for line in counters if line.startswith("cancelled_write_bytes"))


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its page cache")
def test_the_disk_begins_to_write_before_the_flush(disk: FileDisk) -> None:
    file = disk.open(f"{disk.root}/a", create=True)
    assert isinstance(file, PosixFile)
    file.append([b"x" * 8192])
    if not _dropped_unwritten_bytes(file):
        pytest.skip("this file system keeps everything in memory")
    file.flush()
    file.append([b"x" * 8192])
    file.start_writeback()
    assert not _dropped_unwritten_bytes(file)


def test_what_the_disk_could_not_begin_to_write_is_fatal_and_a_system_that_cannot_begin_is_not(
    disk: FileDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open(f"{disk.root}/a", create=True)
    file.append([b"x" * 100])
    for code in (errno.EIO, errno.ENOSPC, errno.ENOSYS):

        def refuse(fd: int, position: int, size: int, flags: int, code: int = code) -> int:
            assert (position, size) == (0, 100)
            ctypes.set_errno(code)
            return -1

        monkeypatch.setattr(writeback, "_sync_file_range", refuse)
        if code == errno.ENOSYS:
            file.start_writeback()
        else:
            with pytest.raises(DiskFailedError, match=os.strerror(code)):
                file.start_writeback()


def _is_kept_in_memory(disk: FileDisk) -> bool:
    """Whether the file system keeps what it is told to drop, as tmpfs does."""
    file = disk.open(f"{disk.root}/probe", create=True)
    assert isinstance(file, PosixFile)
    file.append([b"x" * (1 << 20)])
    file.flush()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return all(_cached(file))


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its page cache")
def test_all_but_the_end_of_a_file_that_nobody_reads_leaves_the_page_cache(disk: FileDisk) -> None:
    if _is_kept_in_memory(disk):
        pytest.skip("this file system keeps everything in memory")
    file = disk.open(f"{disk.root}/a", create=True)
    assert isinstance(file, PosixFile)
    block = b"x" * (1 << 20)
    blocks = (CACHED_TAIL_BYTES + 4 * DROP_BYTES) >> 20
    for _ in range(blocks):
        file.append([block])
    file.flush()
    for _ in range(10):
        file.drop_cached()
    pages = _cached(file)
    tail = CACHED_TAIL_BYTES // mmap.PAGESIZE
    assert all(pages[-tail:])
    dropped = 4 * DROP_BYTES // mmap.PAGESIZE
    assert sum(pages[:dropped]) < dropped // 10
    assert file.read(0, 1 << 20) == block

    file.truncate(CACHED_TAIL_BYTES)
    file.append([block])
    file.drop_cached()
    assert file.read(CACHED_TAIL_BYTES, 1 << 20) == block
