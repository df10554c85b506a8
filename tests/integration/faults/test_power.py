"""The library that makes kill -9 a loss of power: what was flushed stays, what was not is gone."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.integration.faults.power import Lost, UndoLog, build, is_possible


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not is_possible():
        pytest.skip("needs Linux and a C compiler")
    return build(tmp_path_factory.mktemp("library"))


@pytest.fixture
def disk(library: Path, tmp_path: Path) -> UndoLog:
    (tmp_path / "data").mkdir()
    return UndoLog(library, tmp_path / "data", tmp_path / "undo")


def live(disk: UndoLog, data: Path, program: str) -> None:
    """Run a program that kills itself at its end, in the data folder's name `d`."""
    text = "import os, signal\n" + f"d = {str(data)!r}\n" + textwrap.dedent(program)
    text += "\nos.kill(os.getpid(), signal.SIGKILL)\n"
    done = subprocess.run([sys.executable, "-c", text], env={**os.environ, **disk.environment}, check=False)
    assert done.returncode == -9


def test_what_was_flushed_stays_and_what_was_not_is_gone(disk: UndoLog, tmp_path: Path) -> None:
    data = tmp_path / "data"
    program = """
        f = os.open(d + "/f", os.O_RDWR | os.O_CREAT)
        os.fsync(os.open(d, os.O_RDONLY))
        os.pwrite(f, b"durable", 0)
        os.fdatasync(f)
        os.pwrite(f, b"D", 0)
        os.pwritev(f, [b" and", b" more"], 7)
        os.ftruncate(f, 3)
        os.write(f, b"XY")
    """
    live(disk, data, program)
    assert (data / "f").read_bytes() == b"XYr"
    assert disk.lose_power() == Lost(bytes=9, changes=4)
    assert (data / "f").read_bytes() == b"durable"
    assert disk.lose_power() == Lost(0, 0)


def test_names_need_their_folder_flushed(disk: UndoLog, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("kept", "replaced", "removed", "flushed-away"):
        (data / name).write_text(name)
    program = """
        os.unlink(d + "/flushed-away")
        os.fsync(os.open(d, os.O_RDONLY))
        f = os.open(d + "/new", os.O_RDWR | os.O_CREAT)
        os.write(f, b"its bytes are durable, its name is not")
        os.fsync(f)
        os.rename(d + "/new", d + "/replaced")
        os.unlink(d + "/removed")
        os.mkdir(d + "/folder")
    """
    live(disk, data, program)
    assert {path.name for path in data.iterdir()} == {"kept", "replaced", "folder"}
    disk.lose_power()
    assert {path.name: path.read_text() for path in data.iterdir()} == {
        name: name for name in ("kept", "replaced", "removed")
    }


def test_a_flush_of_the_whole_volume_covers_files_and_names(disk: UndoLog, tmp_path: Path) -> None:
    data = tmp_path / "data"
    program = """
        import ctypes
        os.mkdir(d + "/folder")
        f = os.open(d + "/folder/f", os.O_RDWR | os.O_CREAT)
        os.write(f, b"durable")
        assert ctypes.CDLL(None).syncfs(os.open(d, os.O_RDONLY)) == 0
        os.write(f, b", not durable")
        os.rename(d + "/folder/f", d + "/f")
    """
    live(disk, data, program)
    disk.lose_power()
    assert (data / "folder" / "f").read_bytes() == b"durable"
    assert not (data / "f").exists()


def test_what_a_killed_process_left_unflushed_is_lost_with_its_successor(
    disk: UndoLog, tmp_path: Path
) -> None:
    """The page cache outlives a kill: whoever counts on what it finds after a start must flush it first."""
    data = tmp_path / "data"
    (data / "f").write_bytes(b"")
    live(disk, data, 'os.pwrite(os.open(d + "/f", os.O_RDWR), b"first", 0)')
    live(disk, data, 'os.pwrite(os.open(d + "/f", os.O_RDWR), b"second", 5)')
    assert (data / "f").read_bytes() == b"firstsecond"
    disk.lose_power()
    assert (data / "f").read_bytes() == b""


def test_a_random_loss_keeps_a_prefix_of_the_writes(disk: UndoLog, tmp_path: Path) -> None:
    data = tmp_path / "data"
    found = set()
    for seed in range(12):
        (data / "f").write_bytes(b"")
        live(disk, data, 'f = os.open(d + "/f", os.O_RDWR)\nfor i in range(6): os.pwrite(f, b"%d" % i, i)')
        disk.lose_power(random.Random(seed))
        found.add((data / "f").read_bytes())
    assert found <= {b"012345"[:length] for length in range(6)}
    assert b"" in found
    assert len(found) > 2


def test_the_number_of_a_removed_file_may_come_back(disk: UndoLog, tmp_path: Path) -> None:
    data = tmp_path / "data"
    program = """
        import shutil
        folder = os.open(d, os.O_RDONLY)
        for name in ("first", "second"):
            os.mkdir(d + "/" + name)
            f = os.open(d + "/" + name + "/f", os.O_RDWR | os.O_CREAT)
            os.write(f, name.encode())
            if name == "first":
                os.close(f)
                shutil.rmtree(d + "/first")
        for fd in (f, os.open(d + "/second", os.O_RDONLY), folder):
            os.fsync(fd)
    """
    live(disk, data, program)
    disk.lose_power()
    assert (data / "second" / "f").read_bytes() == b"second"


def test_a_lying_disk_keeps_nothing(library: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "f").write_bytes(b"old")
    disk = UndoLog(library, data, tmp_path / "undo", is_lying=True)
    live(disk, data, 'f = os.open(d + "/f", os.O_RDWR); os.pwrite(f, b"new", 0); os.fsync(f)')
    disk.lose_power()
    assert (data / "f").read_bytes() == b"old"


def test_a_database_of_somebody_else_survives(disk: UndoLog, tmp_path: Path) -> None:
    """SQLite keeps committed rows. (With synchronous=full it does not, as it documents.)"""
    data = tmp_path / "data"
    for number in range(5):
        program = f"""
            import sqlite3
            db = sqlite3.connect(d + "/db", isolation_level=None)
            db.execute("pragma synchronous=extra")
            db.execute("create table if not exists t (n integer)")
            db.execute("insert into t values ({number})")
            db.execute("begin")
            db.execute("insert into t values (-1)")
        """
        live(disk, data, program)
        disk.lose_power(random.Random(number))
        read = "import sqlite3, sys; print([n for n, in sqlite3.connect(sys.argv[1]).execute('select n from t')])"
        shown = subprocess.run(
            [sys.executable, "-c", read, str(data / "db")], capture_output=True, text=True, check=True
        )
        assert shown.stdout.strip() == str(list(range(number + 1)))
