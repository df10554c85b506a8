"""Both flushers, the thread in C and the one in Python, on real files and a real loop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from storage.disk import DiskError, DiskFailedError, File
from storage.flusher import LIBRARY_PATH, Flusher, NativeFlusher, ThreadFlusher, start_flusher
from storage.posix_file import PosixFile

pytestmark = pytest.mark.asyncio

KINDS = [
    "thread",
    pytest.param("native", marks=pytest.mark.skipif(not LIBRARY_PATH.exists(), reason="not built")),
]


def watch(fd: int, call: Callable[[], None] | None) -> None:
    loop = asyncio.get_running_loop()
    if call is None:
        loop.remove_reader(fd)
    else:
        loop.add_reader(fd, call)


def new_flusher(kind: str) -> Flusher:
    post = asyncio.get_running_loop().call_soon_threadsafe
    return NativeFlusher(watch) if kind == "native" else ThreadFlusher(post)


def new_file(flusher: Flusher, path: Path) -> PosixFile:
    return PosixFile(str(path), os.open(path, os.O_RDWR | os.O_CREAT), flusher)


def submit(flusher: Flusher, files: Sequence[File]) -> asyncio.Future[DiskError | None]:
    answer: asyncio.Future[DiskError | None] = asyncio.get_running_loop().create_future()
    flusher.submit(files, answer.set_result)
    assert not answer.done(), "never before submit returns"
    return answer


def _note(order: list[int], number: int, _: object) -> None:
    order.append(number)


@pytest.mark.parametrize("kind", KINDS)
async def test_answers_come_in_the_order_of_submission(kind: str, tmp_path: Path) -> None:
    flusher = new_flusher(kind)
    files = [new_file(flusher, tmp_path / str(number)) for number in range(3)]
    order: list[int] = []
    answers: list[asyncio.Future[DiskError | None]] = []
    for number in range(20):
        files[number % 3].append([b"x" * 100])
        answers.append(submit(flusher, files[: number % 3 + 1]))
        answers[-1].add_done_callback(partial(_note, order, number))
    assert not flusher.is_idle
    assert await asyncio.gather(*answers) == [None] * 20
    await asyncio.sleep(0)
    assert order == list(range(20))
    assert flusher.is_idle
    assert 0 < flusher.mean_s < 1
    flusher.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failed_flush_names_its_file_and_the_next_one_is_answered(kind: str, tmp_path: Path) -> None:
    flusher = new_flusher(kind)
    good = new_file(flusher, tmp_path / "good")
    reader, writer = os.pipe()
    bad = PosixFile("/somewhere/bad", writer, flusher)  # fdatasync of a pipe is EINVAL
    error = await submit(flusher, [good, bad])
    assert isinstance(error, DiskFailedError)
    assert str(error) == f"/somewhere/bad: flush: {os.strerror(22)}"
    assert await submit(flusher, [good]) is None
    flusher.close()
    os.close(reader)


@pytest.mark.parametrize("kind", KINDS)
async def test_who_flushes_beside_it_is_told_what_it_met(kind: str, tmp_path: Path) -> None:
    """Before the loop is: the kernel may have told the thread alone."""
    flusher = new_flusher(kind)
    good = new_file(flusher, tmp_path / "good")
    reader, writer = os.pipe()
    bad = PosixFile("/somewhere/bad", writer, flusher)
    good.flush()
    answer = submit(flusher, [good])
    good.flush()
    assert not answer.done()
    assert await answer is None
    answer = submit(flusher, [good, bad])
    for _ in range(2):
        with pytest.raises(DiskFailedError, match="bad: flush: "):
            good.flush()
    assert isinstance(await answer, DiskFailedError)
    good.flush()
    flusher.close()
    os.close(reader)


@pytest.mark.parametrize("kind", KINDS)
async def test_close_finishes_what_was_submitted(kind: str, tmp_path: Path) -> None:
    flusher = new_flusher(kind)
    file = new_file(flusher, tmp_path / "file")
    for _ in range(5):
        file.append([b"x" * 10_000])
        flusher.submit([file], lambda error: None)
    flusher.close()
    if isinstance(flusher, NativeFlusher):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(flusher._event_fd)
    else:
        assert isinstance(flusher, ThreadFlusher)
        assert not flusher._thread.is_alive()


@pytest.mark.skipif(not LIBRARY_PATH.exists(), reason="not built")
async def test_the_native_one_does_not_wait_for_the_interpreter(tmp_path: Path) -> None:
    """It is done, and says so, while Python code runs and gives nobody the lock."""
    flusher = NativeFlusher(watch)
    file = new_file(flusher, tmp_path / "file")
    switch_interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        answer = submit(flusher, [file])
        while flusher._library.flusher_taken_ns(flusher._handle) == 0:
            pass
    finally:
        sys.setswitchinterval(switch_interval_s)
    assert await answer is None
    flusher.close()


async def test_what_was_built_is_used(tmp_path: Path) -> None:
    post = asyncio.get_running_loop().call_soon_threadsafe
    flusher = start_flusher(post, watch)
    assert isinstance(flusher, NativeFlusher if LIBRARY_PATH.exists() else ThreadFlusher)
    flusher.close()
    without_a_watch = start_flusher(post, None)
    assert isinstance(without_a_watch, ThreadFlusher)
    without_a_watch.close()
