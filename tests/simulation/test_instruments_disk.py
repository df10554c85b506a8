"""The memory disk: flushed data always survive, everything else may or may not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.disk import (
    DirectoryLockedError,
    Disk,
    DiskError,
    DiskFailedError,
    DiskFullError,
    MissingPathError,
)
from tests.simulator.disk import DiskFaults, InjectedError, MemoryDisk, VanishedError
from tests.simulator.inode import SECTOR_BYTES
from tests.simulator.loop import SimulatedLoop, new_loop
from tests.simulator.process import NodeKilledError


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = new_loop()
    yield loop
    loop.close()


def new_disk(loop: SimulatedLoop, seed: int = 0, **faults: float) -> MemoryDisk:
    return MemoryDisk("/data", loop, random.Random(seed), DiskFaults(**faults))  # type: ignore[arg-type]


def durable_file(disk: Disk, path: str, contents: bytes) -> None:
    file = disk.open(path, create=True)
    file.append([contents])
    file.flush()
    disk.flush_directory(path.rpartition("/")[0])
    file.close()


def contents(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    return bytes(file.read(0, file.size))


def after_crash_of(seeds: int, story: str) -> Iterator[MemoryDisk]:
    """`seeds` worlds in which one of the stories below was told up to the loss of power."""
    for seed in range(seeds):
        loop = new_loop()
        disk = new_disk(loop, seed)
        _STORIES[story](disk)
        disk.crash()
        yield disk
        loop.close()


def _append_twice(disk: Disk) -> None:
    durable_file(disk, "/data/a", b"")
    file = disk.open("/data/a")
    file.append([b"x" * 600])
    file.append([b"y" * 600])


def _replace_by_rename(disk: Disk) -> None:
    durable_file(disk, "/data/a", b"old")
    durable_file(disk, "/data/a.tmp", b"new")
    disk.rename("/data/a.tmp", "/data/a")


def _create_and_flush_the_file_only(disk: Disk) -> None:
    file = disk.open("/data/a", create=True)
    file.append([b"new"])
    file.flush()


def _unlink(disk: Disk) -> None:
    durable_file(disk, "/data/a", b"old")
    disk.unlink("/data/a")


def _make_a_folder_and_flush_what_is_in_it(disk: Disk) -> None:
    disk.make_directory("/data/t-0")
    durable_file(disk, "/data/t-0/a", b"new")


def _overwrite_in_place(disk: Disk) -> None:
    durable_file(disk, "/data/a", b"0" * 4 * SECTOR_BYTES)
    disk.open("/data/a").write_at(0, b"1" * 4 * SECTOR_BYTES)


def _truncate(disk: Disk) -> None:
    durable_file(disk, "/data/a", b"0" * 1000)
    disk.open("/data/a").truncate(100)


_STORIES = {
    function.__name__: function
    for function in (
        _append_twice,
        _replace_by_rename,
        _create_and_flush_the_file_only,
        _unlink,
        _make_a_folder_and_flush_what_is_in_it,
        _overwrite_in_place,
        _truncate,
    )
}


# -- the loss of power


def test_appends_survive_in_any_subset_of_sectors_and_sizes() -> None:
    left = {contents(disk, "/data/a") for disk in after_crash_of(400, "_append_twice")}
    whole = b"x" * 600 + b"y" * 600
    assert b"" in left and whole in left and b"x" * 600 in left
    assert any(len(data) == 1200 and data.startswith(bytes(SECTOR_BYTES)) for data in left), "a hole"
    # The sector in which the first append ends is written back with or without the second one's part.
    assert b"x" * 600 + bytes(600) in left
    for data in left:
        for start in range(0, len(data), SECTOR_BYTES):
            sector = data[start : start + SECTOR_BYTES]
            full = whole[start : start + len(sector)]
            assert sector in (full, bytes(len(sector)), full.replace(b"y", b"\0"))


def test_an_overwrite_is_torn_at_sectors_only() -> None:
    left = {contents(disk, "/data/a") for disk in after_crash_of(300, "_overwrite_in_place")}
    assert len(left) == 16, "every mix of four old and new sectors"
    for data in left:
        for start in range(0, len(data), SECTOR_BYTES):
            assert len(set(data[start : start + SECTOR_BYTES])) == 1


def test_a_truncation_may_be_forgotten() -> None:
    left = {contents(disk, "/data/a") for disk in after_crash_of(100, "_truncate")}
    assert {b"0" * 100, b"0" * 1000} <= left


def test_a_rename_without_a_flush_of_the_folder_is_kept_or_forgotten_as_a_whole() -> None:
    left = {
        (contents(disk, "/data/a"), disk.exists("/data/a.tmp"))
        for disk in after_crash_of(50, "_replace_by_rename")
    }
    assert left == {(b"old", True), (b"new", False)}


def test_a_new_file_is_forgotten_though_it_was_flushed_if_its_folder_was_not() -> None:
    left = {disk.exists("/data/a") for disk in after_crash_of(50, "_create_and_flush_the_file_only")}
    assert left == {True, False}


def test_an_unlink_without_a_flush_of_the_folder_may_come_back() -> None:
    left = {disk.exists("/data/a") for disk in after_crash_of(50, "_unlink")}
    assert left == {True, False}


def test_a_folder_is_forgotten_with_all_that_is_in_it_if_its_parent_was_not_flushed() -> None:
    left = {
        disk.exists("/data/t-0/a") for disk in after_crash_of(50, "_make_a_folder_and_flush_what_is_in_it")
    }
    assert left == {True, False}


def test_a_flushed_rename_carries_the_unflushed_create_under_it() -> None:
    """The later operation rests on the earlier one: a crash cannot bring the replaced file back."""
    for seed in range(50):
        loop = new_loop()
        disk = new_disk(loop, seed)
        disk.make_directory("/data/from")
        disk.make_directory("/data/to")
        disk.flush_directory("/data")
        disk.open("/data/to/x", create=True).append([b"first"])
        durable_file(disk, "/data/from/y", b"second")
        disk.rename("/data/from/y", "/data/to/x")
        disk.flush_directory("/data/from")
        disk.crash()
        assert contents(disk, "/data/to/x") == b"second"
        assert not disk.exists("/data/from/y")
        loop.close()


class _Model:
    """A file system driven at random, with what must be there after a crash."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.loop = new_loop()
        self.disk = new_disk(self.loop, seed)
        self.disk.make_directory("/data/d")
        self.disk.flush_directory("/data")
        #: Contents as written; as they were when the last flush of the file was asked for and confirmed.
        self.written: dict[str, bytes] = {}
        self.flushed: dict[str, bytes] = {}
        self.named: set[str] = set()

    def step(self) -> None:
        name = f"/data/d/{self.rng.randrange(4)}"
        kind = self.rng.randrange(5)
        file = self.disk.open(name, create=True)
        data = self.rng.randbytes(self.rng.randrange(1, 1500))
        if kind <= 1:
            file.append([data[:3], memoryview(data)[3:]])
            self.written[name] = self.written.get(name, b"") + data
        elif kind == 2:
            expected = self.written.get(name, b"")
            self.disk.flush([file], lambda error: self._confirmed(name, expected, error))
            if self.rng.random() < 0.5:
                self.loop.run_for(0.01)
        elif kind == 3:
            self.disk.flush_directory("/data/d")
            self.named = set(self.disk.list("/data/d"))
        else:
            file.flush()
            self.flushed[name] = self.written.get(name, b"")
        assert bytes(file.read(0, file.size)) == self.written.get(name, b"")

    def _confirmed(self, name: str, expected: bytes, error: DiskError | None) -> None:
        assert error is None
        if len(expected) >= len(self.flushed.get(name, b"")):
            self.flushed[name] = expected


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40))
def test_what_was_flushed_always_survives(seed: int, steps: int) -> None:
    model = _Model(seed)
    for _ in range(steps):
        model.step()
    model.disk.crash()
    for short in sorted(model.named):
        name = f"/data/d/{short}"
        flushed = model.flushed.get(name, b"")
        assert contents(model.disk, name).startswith(flushed)
        assert len(contents(model.disk, name)) <= len(model.written.get(name, b""))
    model.loop.close()


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40))
def test_a_second_crash_at_once_changes_nothing(seed: int, steps: int) -> None:
    model = _Model(seed)
    for _ in range(steps):
        model.step()
    model.disk.crash()
    state = {name: contents(model.disk, f"/data/d/{name}") for name in model.disk.list("/data/d")}
    model.disk.crash()
    assert state == {name: contents(model.disk, f"/data/d/{name}") for name in model.disk.list("/data/d")}
    model.loop.close()


def test_a_killed_process_loses_nothing_that_it_wrote(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    node = loop.start_process("n1")
    node.call(disk.lock)
    file = node.call(lambda: disk.open("/data/a", create=True))
    node.call(file.append, [b"written"])
    loop.kill(node)
    assert contents(disk, "/data/a") == b"written"
    with pytest.raises(NodeKilledError):
        file.append([b"by the dead"])


# -- flushes


def test_a_flush_takes_time_and_covers_what_was_written_when_it_was_asked_for(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    durable_file(disk, "/data/a", b"")
    file = disk.open("/data/a")
    answers: list[DiskError | None] = []
    file.append([b"before"])
    disk.flush([file], answers.append)
    file.append([b"after"])
    assert answers == [] and disk.durable_contents("/data/a") == b""
    loop.run_until(lambda: bool(answers), limit_s=1)
    assert answers == [None] and disk.durable_contents("/data/a") == b"before"


def test_files_become_durable_in_the_order_given_and_rounds_do_not_overtake(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    files = []
    for name in "abc":
        durable_file(disk, f"/data/{name}", b"")
        files.append(disk.open(f"/data/{name}"))
        files[-1].append([b"data"])
    done: list[str] = []
    disk.flush(files[:2], lambda _: done.append("first"))
    disk.flush(files[2:], lambda _: done.append("second"))
    seen: list[str] = []

    def watch() -> None:
        durable = "".join(name for name in "abc" if disk.durable_contents(f"/data/{name}"))
        if not seen or seen[-1] != durable:
            seen.append(durable)

    loop.after_callback.append(watch)
    loop.run_for(1)
    assert seen == ["a", "ab", "abc"] and done == ["first", "second"]


def test_a_failed_flush_says_so_once_and_the_kernel_then_forgets_that_pages_were_dirty(
    loop: SimulatedLoop,
) -> None:
    """fsyncgate: a retry succeeds and nothing is durable, which is why a failed flush ends the process."""
    disk = new_disk(loop)
    durable_file(disk, "/data/a", b"")
    file = disk.open("/data/a")
    file.append([b"data"])
    disk.faults.flush_error_rate = 1.0
    answers: list[DiskError | None] = []
    disk.flush([file], answers.append)
    loop.run_for(1)
    assert isinstance(answers[0], DiskFailedError)
    disk.faults.flush_error_rate = 0.0
    file.flush()
    assert contents(disk, "/data/a") == b"data" and disk.durable_contents("/data/a") == b""


def test_an_early_write_back_makes_nothing_durable_and_survives_a_crash_more_often() -> None:
    survived = {True: 0, False: 0}
    for is_early in survived:
        for seed in range(200):
            loop = new_loop()
            disk = new_disk(loop, seed)
            durable_file(disk, "/data/a", b"")
            file = disk.open("/data/a")
            file.append([b"x" * 4 * SECTOR_BYTES])
            if is_early:
                file.start_writeback()
            assert disk.durable_contents("/data/a") == b""
            disk.crash()
            survived[is_early] += contents(disk, "/data/a") == b"x" * 4 * SECTOR_BYTES
            loop.close()
    assert survived[False] < 120 < survived[True] < 200, survived


def test_an_early_write_back_that_fails_is_told_once_and_its_data_are_lost() -> None:
    """To whoever began it, or to the next flush, and to nobody after that. What was written later is not affected."""
    told_by: set[str] = set()
    for seed in range(10):
        loop = new_loop()
        disk = new_disk(loop, seed, writeback_error_rate=1.0)
        durable_file(disk, "/data/a", b"")
        file = disk.open("/data/a")
        file.append([b"lost"])
        try:
            file.start_writeback()
        except InjectedError:
            told_by.add("the write-back")
        else:
            told_by.add("the flush")
            with pytest.raises(InjectedError):
                file.flush()
        file.flush()
        assert contents(disk, "/data/a") == b"lost" and disk.durable_contents("/data/a") == b""
        disk.mend()
        file.append([b"kept"])
        file.start_writeback()
        file.flush()
        assert disk.durable_contents("/data/a") == bytes(4) + b"kept"
        loop.close()
    assert told_by == {"the write-back", "the flush"}


def test_a_lying_disk_and_an_early_answer_are_what_they_say(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    durable_file(disk, "/data/a", b"")
    file = disk.open("/data/a")
    file.append([b"data"])
    answers: list[DiskError | None] = []
    disk.faults.lying_flush = True
    disk.flush([file], answers.append)
    file.flush()
    loop.run_for(1)
    assert answers == [None] and disk.durable_contents("/data/a") == b""
    disk.faults.lying_flush = False
    disk.faults.done_before_durable = True
    disk.flush([file], answers.append)
    loop.run_for(0)
    assert len(answers) == 2 and disk.durable_contents("/data/a") == b""
    loop.run_for(1)
    assert len(answers) == 2 and disk.durable_contents("/data/a") == b"data"


def test_a_slow_disk_is_slow(loop: SimulatedLoop) -> None:
    disk = new_disk(loop, slow_factor=1000.0)
    file = disk.open("/data/a", create=True)
    answers: list[DiskError | None] = []
    disk.flush([file], answers.append)
    loop.run_for(0.09)
    assert answers == []
    loop.run_for(60)
    assert answers == [None]


def test_the_answer_to_a_dead_process_is_dropped_and_its_rounds_are_not_begun(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    for name in "ab":
        durable_file(disk, f"/data/{name}", b"")
    node = loop.start_process("n1")
    answers: list[DiskError | None] = []

    def write_and_flush() -> None:
        for name in "ab":
            file = disk.open(f"/data/{name}")
            file.append([b"data"])
            disk.flush([file], answers.append)

    node.call(write_and_flush)
    loop.kill(node)
    loop.run_for(1)
    assert answers == []
    assert disk.durable_contents("/data/a") == b"data" and disk.durable_contents("/data/b") == b""
    file = disk.open("/data/b")
    disk.flush([file], answers.append)
    loop.run_for(1)
    assert answers == [None]


def test_close_finishes_what_was_submitted(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    durable_file(disk, "/data/a", b"")
    file = disk.open("/data/a")
    file.append([b"data"])
    answers: list[DiskError | None] = []
    disk.flush([file], answers.append)
    disk.close()
    assert disk.durable_contents("/data/a") == b"data"
    loop.run_for(0)
    assert answers == [None]


# -- the rest of the interface


def test_a_full_disk_leaves_the_file_as_it_was_and_serves_again_when_there_is_room(
    loop: SimulatedLoop,
) -> None:
    disk = new_disk(loop, capacity_bytes=1000)
    durable_file(disk, "/data/a", b"a" * 600)
    durable_file(disk, "/data/b", b"b" * 300)
    file = disk.open("/data/b")
    with pytest.raises(DiskFullError):
        file.append([b"c" * 101])
    assert contents(disk, "/data/b") == b"b" * 300 and disk.free_bytes() == 100
    disk.unlink("/data/a")
    assert disk.free_bytes() == 700
    file.append([b"c" * 101])
    file.truncate(300)
    assert disk.free_bytes() == 700
    disk.rename("/data/b", "/data/c")
    disk.unlink("/data/c")
    assert disk.free_bytes() == 1000


def test_missing_things_raise_as_on_a_real_disk(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    for action in (
        lambda: disk.open("/data/a"),
        lambda: disk.open("/data/d/a", create=True),
        lambda: disk.list("/data/d"),
        lambda: disk.make_directory("/data/d/e"),
        lambda: disk.unlink("/data/a"),
        lambda: disk.rename("/data/a", "/data/b"),
        lambda: disk.remove_tree("/data/d"),
    ):
        with pytest.raises(MissingPathError):
            action()


def test_folders_are_listed_sorted_renamed_and_removed_with_their_contents(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    disk.make_directory("/data/t-0")
    disk.make_directory("/data/t-0/sub")
    disk.make_directory("/data/t-0")
    for name in "cab":
        durable_file(disk, f"/data/t-0/{name}", b"x")
    assert disk.list("/data/t-0") == ["a", "b", "c", "sub"]
    assert disk.is_directory("/data/t-0/sub") and not disk.is_directory("/data/t-0/a")
    disk.rename("/data/t-0", "/data/t-0-delete")
    assert not disk.exists("/data/t-0") and contents(disk, "/data/t-0-delete/a") == b"x"
    disk.remove_tree("/data/t-0-delete")
    assert disk.list("/data") == []


def test_remove_later_removes_later_and_never_after_the_process_died(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    durable_file(disk, "/data/a.deleted", b"x")
    reader = disk.open("/data/a.deleted")
    disk.remove_later("/data/a.deleted")
    assert disk.exists("/data/a.deleted")
    loop.run_for(disk.faults.remove_delay_s)
    assert not disk.exists("/data/a.deleted")
    assert bytes(reader.read(0, 1)) == b"x", "an open file outlives its name"
    durable_file(disk, "/data/b.deleted", b"x")
    node = loop.start_process("n1")
    node.call(disk.remove_later, "/data/b.deleted")
    loop.kill(node)
    loop.run_for(60)
    assert disk.exists("/data/b.deleted")


def test_the_lock_keeps_a_second_process_out_until_the_first_one_is_dead(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    first, second = loop.start_process("n1"), loop.start_process("n2")
    first.call(disk.lock)
    with pytest.raises(DirectoryLockedError, match="n1"):
        second.call(disk.lock)
    loop.kill(first)
    second.call(disk.lock)
    second.call(disk.close)
    disk.lock()


def test_a_folder_that_vanishes_is_missing_for_the_process_and_not_for_the_harness(
    loop: SimulatedLoop,
) -> None:
    disk = new_disk(loop)
    told: list[DiskError] = []
    disk.on_failure = lambda process, error: told.append(error)
    node = loop.start_process("n1")
    node.call(disk.lock)
    disk.make_directory("/data/t-0")
    disk.flush_directory("/data")
    durable_file(disk, "/data/t-0/a", b"x")
    open_file, used_bytes = node.call(disk.open, "/data/t-0/a"), disk.used_bytes
    disk.vanish("/data/t-0")
    assert disk.has_lost_folders and disk.used_bytes == used_bytes - 1
    node.call(open_file.append, [b"y"])
    assert bytes(node.call(open_file.read, 0, 2)) == b"xy", "an unlinked file works on"
    assert not node.call(disk.exists, "/data/t-0/a")
    for use, arguments in (
        (disk.open, ("/data/t-0/a",)),
        (disk.list, ("/data/t-0",)),
        (disk.rename, ("/data/t-0/a", "/data/t-0/b")),
        (disk.unlink, ("/data/t-0/a",)),
    ):
        with pytest.raises(VanishedError):
            node.call(use, *arguments)
        assert isinstance(told.pop(), VanishedError) and not told
    with pytest.raises(InjectedError):
        node.call(disk.flush_directory, "/data/t-0")
    with pytest.raises(MissingPathError) as elsewhere:
        node.call(disk.open, "/data/u-0/a")
    assert not isinstance(elsewhere.value, VanishedError) and not told
    harness_file = disk.open("/data/t-0/a")
    assert bytes(harness_file.read(0, 2)) == b"xy", "the harness still sees it"
    loop.kill(node)
    disk.crash()
    assert not disk.exists("/data/t-0"), "it is gone durably"
    next_life = loop.start_process("n1")
    next_life.call(disk.lock)
    assert not disk.has_lost_folders
    with pytest.raises(MissingPathError) as missing:
        next_life.call(disk.open, "/data/t-0/a")
    assert not isinstance(missing.value, VanishedError), "a process that started without it has to know"


def test_a_folder_that_is_made_anew_has_not_vanished(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    makers: list[Callable[[], None]] = [
        lambda: disk.make_directory("/data/t-0"),
        lambda: disk.rename("/data/t-0-install", "/data/t-0"),
    ]
    for make in makers:
        disk.make_directory("/data/t-0-install")
        disk.make_directory("/data/t-0")
        disk.vanish("/data/t-0")
        make()
        assert not disk.has_lost_folders
        disk.open("/data/t-0/new", create=True).close()
        assert disk.list("/data/t-0") == ["new"]
        disk.remove_tree("/data/t-0")


def test_rot_changes_a_bit_on_the_medium_and_in_the_cache(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    durable_file(disk, "/data/a", bytes(100))
    disk.flip_bits("/data/a", 40, 10)
    seen = contents(disk, "/data/a")
    assert seen == disk.durable_contents("/data/a")
    assert sum(byte.bit_count() for byte in seen) == 1 and any(seen[40:50])


def test_a_read_may_fail(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    durable_file(disk, "/data/a", b"x")
    disk.faults.read_error_rate = 1.0
    with pytest.raises(InjectedError):
        loop.start_process("n1").call(contents, disk, "/data/a")
    assert contents(disk, "/data/a") == b"x", "who looks on from outside is not disturbed"


def test_rot_is_what_processes_read_until_it_is_written_over(loop: SimulatedLoop) -> None:
    """... and the harness reads what was written: otherwise it could not say what was."""
    disk = new_disk(loop)
    process = loop.start_process("n1")
    durable_file(disk, "/data/a", bytes(100))
    disk.corrupt("/data/a", 40, b"\x01\x00\x80")
    loop.kill(process)
    disk.crash()  # it is on the medium
    process = loop.start_process("n1")
    assert process.call(contents, disk, "/data/a")[39:44] == b"\x00\x01\x00\x80\x00"
    assert contents(disk, "/data/a") == bytes(100) == disk.durable_contents("/data/a")
    assert disk.corrupt_files() == ["/data/a"] and disk.corrupt_positions("/data/a") == [40, 42]
    disk.open("/data/a").write_at(40, b"new")
    assert process.call(contents, disk, "/data/a")[40:43] == b"new"
    assert not disk.corrupt_files()


def test_rot_that_is_cut_off_is_gone(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    durable_file(disk, "/data/a", bytes(100))
    disk.corrupt("/data/a", 40, b"\x01")
    disk.open("/data/a").truncate(40)
    assert not disk.corrupt_files()


def test_a_failed_flush_forgets_data_and_not_a_cut(loop: SimulatedLoop) -> None:
    """Sizes are in the file system's own journal; the next flush of a cut file is no lie."""
    disk = new_disk(loop)
    durable_file(disk, "/data/a", b"a" * 100)
    file = disk.open("/data/a")
    file.truncate(50)
    file.append([b"b" * 10])
    disk.faults.flush_error_rate = 1.0
    with pytest.raises(InjectedError):
        file.flush()
    disk.faults.flush_error_rate = 0.0
    file.flush()
    assert disk.durable_contents("/data/a") == b"a" * 50


def test_a_write_that_fails_leaves_a_part_and_says_so(loop: SimulatedLoop) -> None:
    lengths = set()
    for seed in range(20):
        disk = new_disk(loop, seed, write_error_rate=1.0)
        file = disk.open("/data/a", create=True)
        with pytest.raises(InjectedError):
            file.append([b"x" * 100])
        lengths.add(disk.open("/data/a").size)
    assert len(lengths) > 5 and max(lengths) <= 100


def test_a_process_dies_in_the_middle_of_its_operations(loop: SimulatedLoop) -> None:
    """Each count is another moment: what came before is done, what comes after is not, and a write may be half done."""
    found = set()
    for operations in range(6):
        disk = new_disk(loop)
        process = loop.start_process("n1")
        disk.die_after(operations, lambda process=process: loop.kill(process))  # type: ignore[misc]

        def work(disk: MemoryDisk = disk) -> None:
            file = disk.open("/data/a", create=True)
            file.append([b"x" * 10])
            file.flush()
            disk.rename("/data/a", "/data/b")
            disk.flush_directory("/data")

        if operations < 5:
            with pytest.raises(NodeKilledError):
                process.call(work)
            assert not process.alive
        else:
            process.call(work)
            loop.kill(process)
        found.add((tuple(disk.list("/data")), disk.durable_contents("/data/b") is not None))
    assert found == {((), False), (("a",), False), (("b",), False), (("b",), True)}


def test_a_hanging_disk_answers_no_flush_until_it_goes_on(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    answers: list[DiskError | None] = []
    file = disk.open("/data/a", create=True)
    file.append([b"x"])
    disk.faults.hangs_until_s = loop.time() + 3
    disk.flush([file], answers.append)
    loop.run_for(2.9)
    assert not answers
    loop.run_for(0.2)
    assert answers == [None]


def test_a_mended_disk_answers_the_flush_that_hung(loop: SimulatedLoop) -> None:
    disk = new_disk(loop)
    answers: list[DiskError | None] = []
    file = disk.open("/data/a", create=True)
    file.append([b"x"])
    disk.faults.hangs_until_s = loop.time() + 30
    disk.flush([file], answers.append)
    loop.run_for(1)
    disk.mend()
    loop.run_for(0.1)
    assert answers == [None]
    loop.run_for(60)
    assert answers == [None]
