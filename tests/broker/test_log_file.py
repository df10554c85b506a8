"""The log of a node in a file: a full one is put aside, and a few older ones are kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from broker.log_file import KEPT, MAX_BYTES, keep_older

WRITER = """
import os, sys
from pathlib import Path
from broker.log_file import LogFile, MAX_BYTES
log = LogFile(Path(sys.argv[1]))
line = b"x" * 1023 + b"\\n"
for number in range(int(sys.argv[2])):
    log.note_written(os.write(1, line))
os.write(2, b"the end\\n")
"""


def write(path: Path, kilobytes: int) -> None:
    subprocess.run([sys.executable, "-c", WRITER, str(path), str(kilobytes)], check=True)


def test_a_full_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, 2 * (MAX_BYTES >> 10) + 1)
    assert path.read_bytes() == b"x" * 1023 + b"\nthe end\n", "standard error comes to the new file, too"
    assert [file.stat().st_size for file in sorted(tmp_path.glob("log.*"))] == [MAX_BYTES, MAX_BYTES]


def test_what_is_there_counts(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"y" * (MAX_BYTES - 1024))
    write(path, 2)
    assert path.stat().st_size == 1024 + len(b"the end\n")
    assert (tmp_path / "log.1").stat().st_size == MAX_BYTES


def test_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for number in range(KEPT + 3):
        path.write_text(str(number))
        keep_older(path)
    kept = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert kept == {f"log.{age}": str(KEPT + 3 - age) for age in range(1, KEPT + 1)}
    keep_older(path)  # There is no newest one now.


def test_a_node_writes_on_where_no_file_can_be_begun(tmp_path: Path) -> None:
    """Folders have the names of the older files."""
    path = tmp_path / "log"
    for age in range(1, KEPT + 1):
        (tmp_path / f"log.{age}" / "in the way").mkdir(parents=True)
    write(path, (MAX_BYTES >> 10) + 1)
    assert path.stat().st_size == MAX_BYTES + 1024 + len(b"the end\n")
