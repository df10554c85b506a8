"""A disk raises a DiskError and never an OSError: event loops take an OSError for a connection's own, and lose it."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from storage.disk import DiskError, DiskFailedError, DiskFullError, File, MissingPathError
from storage.file_disk import FileDisk

CODES = (
    errno.ENOENT,
    errno.EEXIST,
    errno.EACCES,
    errno.EAGAIN,
    errno.EIO,
    errno.EINTR,
    errno.EISDIR,
    errno.EMFILE,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
    errno.EROFS,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EPIPE,
)
OS_CALLS = (
    "close",
    "fdatasync",
    "fstat",
    "fsync",
    "ftruncate",
    "listdir",
    "makedirs",
    "mkdir",
    "open",
    "posix_fadvise",
    "pread",
    "pwrite",
    "pwritev",
    "rename",
    "stat",
    "statvfs",
    "unlink",
)

Operation = Callable[[FileDisk, File], object]

OPERATIONS: dict[str, Operation] = {
    "open": lambda disk, file: disk.open(f"{disk.root}/a"),
    "create": lambda disk, file: disk.open(f"{disk.root}/b", create=True),
    "flush_together": lambda disk, file: disk.flush_together([file], [disk.root]),
    "exists": lambda disk, file: disk.exists(f"{disk.root}/a"),
    "is_directory": lambda disk, file: disk.is_directory(f"{disk.root}/a"),
    "list": lambda disk, file: disk.list(disk.root),
    "make_directory": lambda disk, file: disk.make_directory(f"{disk.root}/d/e"),
    "rename": lambda disk, file: disk.rename(f"{disk.root}/a", f"{disk.root}/c"),
    "unlink": lambda disk, file: disk.unlink(f"{disk.root}/a"),
    "remove_tree": lambda disk, file: disk.remove_tree(f"{disk.root}/d"),
    "remove_later": lambda disk, file: disk.remove_later(f"{disk.root}/a"),
    "flush_directory": lambda disk, file: disk.flush_directory(disk.root),
    "free_bytes": lambda disk, file: disk.free_bytes(),
    "total_bytes": lambda disk, file: disk.total_bytes(),
    "lock": lambda disk, file: disk.lock(),
    "close": lambda disk, file: disk.close(),
    "file.append": lambda disk, file: file.append([b"x"]),
    "file.append of two": lambda disk, file: file.append([b"x", b"y"], is_padded=True),
    "file.write_at": lambda disk, file: file.write_at(0, b"y"),
    "file.read": lambda disk, file: file.read(0, 1),
    "file.truncate": lambda disk, file: file.truncate(1),
    "file.trim": lambda disk, file: file.trim(),
    "file.flush": lambda disk, file: file.flush(),
    "file.start_writeback": lambda disk, file: file.start_writeback(),
    "file.drop_cached": lambda disk, file: file.drop_cached(),
    "file.close": lambda disk, file: file.close(),
    "another disk": lambda disk, file: FileDisk(disk.root, lambda callback: None),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FileDisk]:
    disk = FileDisk(str(tmp_path / "data"), lambda callback: None)
    yield disk
    disk.close()


def fail_every_call(patch: pytest.MonkeyPatch, code: int) -> None:
    def fail(*_: object, **__: object) -> object:
        raise OSError(code, os.strerror(code))

    for name in OS_CALLS:
        patch.setattr(os, name, fail)
    patch.setattr(fcntl, "flock", fail)
    patch.setattr(shutil, "rmtree", fail)


@contextmanager
def without_collector() -> Iterator[None]:
    """What other tests left is not closed meanwhile."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_raises_an_os_error(tmp_path: Path, name: str) -> None:
    for number, code in enumerate(CODES):
        disk = FileDisk(f"{tmp_path}/{number}", lambda callback: None)
        disk.make_directory(f"{disk.root}/d")
        file = disk.open(f"{disk.root}/a", create=True)
        file.append([b"padded"], is_padded=True)
        raised: Exception | None = None
        with without_collector(), pytest.MonkeyPatch.context() as patch:
            patch.setattr("storage.posix_file.CACHED_TAIL_BYTES", 0)
            patch.setattr("storage.posix_file.DROP_BYTES", 1)
            fail_every_call(patch, code)
            try:
                OPERATIONS[name](disk, file)
            except Exception as error:
                raised = error
        assert raised is None or (isinstance(raised, DiskError) and not isinstance(raised, OSError)), raised
        assert raised is None or os.strerror(code) in str(raised) or code == errno.EAGAIN
        if name != "close":
            disk.close()


def test_what_is_missing_is_told_from_a_disk_that_failed(disk: FileDisk) -> None:
    missing = f"{disk.root}/folder/file"
    for look in (
        lambda: disk.open(missing),
        lambda: disk.open(missing, create=True),
        lambda: disk.list(missing),
        lambda: disk.make_directory(missing),
        lambda: disk.rename(missing, f"{disk.root}/a"),
        lambda: disk.unlink(missing),
        lambda: disk.remove_tree(missing),
    ):
        with pytest.raises(MissingPathError, match="folder/file: No such file"):
            look()
    disk.open(f"{disk.root}/file", create=True).close()
    with pytest.raises(DiskFailedError):
        disk.make_directory(f"{disk.root}/file")


def test_a_data_directory_that_is_gone_is_missing(disk: FileDisk) -> None:
    shutil.rmtree(disk.root)
    for look in (disk.free_bytes, disk.total_bytes, lambda: disk.list(disk.root)):
        with pytest.raises(MissingPathError):
            look()


def test_a_folder_that_may_not_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskFailedError, match="file"):
        FileDisk(str(tmp_path / "file"), lambda callback: None)
    assert not issubclass(DiskFullError, OSError)
