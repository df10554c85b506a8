"""A node that cannot start with its data directory says why and what to do, and changes nothing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker.start_hints import explain
from storage.disk import DiskError
from storage.posix_file import disk_error

_META = "version=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\ndirectory.id=jlEYDdIHIVBTXTOBFKEBfQ\nnode.id=1\n"
_TOPIC_ID = "version: 0\ntopic_id: 2BDCkNmyQUu1vwPGbvCCfA"


def _start(log_dir: Path | str) -> str:
    """What `varve start` says when it refuses. It ends by itself, so a node that starts all the same fails the test."""
    finished = subprocess.run(
        [sys.executable, "-m", "broker.cli", "start", "--log-dirs", str(log_dir)],
        capture_output=True,
        timeout=60,
        text=True,
        check=False,
    )
    assert finished.returncode == 1, finished
    assert "Traceback" not in finished.stderr + finished.stdout
    return finished.stderr


def _content(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")
    }


@pytest.mark.parametrize(
    "marks",
    [
        ("bootstrap.checkpoint",),
        ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
        ("topic-0/leader-epoch-checkpoint",),
        ("__cluster_metadata-0/quorum-state",),
        ("__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",),
    ],
)
@pytest.mark.parametrize("has_meta", [True, False])
def test_a_data_directory_of_apache_kafka_is_refused_and_left_as_it_is(
    tmp_path: Path, marks: tuple[str, ...], has_meta: bool
) -> None:
    """It was taken for a directory that had lost its journal: its topics were renamed to `-stray`."""
    for topic in ("topic-0", "__cluster_metadata-0"):
        (tmp_path / topic).mkdir()
        (tmp_path / topic / "partition.metadata").write_text(_TOPIC_ID)
        (tmp_path / topic / "00000000000000000000.log").write_bytes(bytes(100))
    if has_meta:
        (tmp_path / "meta.properties").write_text(_META)
    for mark in marks:
        (tmp_path / mark).write_text("0\n0\n")
    before = _content(tmp_path)
    said = _start(tmp_path)
    assert "is a data directory of Apache Kafka" in said
    assert "Give it a directory of its own" in said
    assert _content(tmp_path) == before


def test_partitions_of_no_cluster_are_left_as_they_are(tmp_path: Path) -> None:
    """The metadata log was removed before the topic beside it was seen."""
    for topic in ("__cluster_metadata-0", "topic-0"):
        (tmp_path / topic).mkdir()
        (tmp_path / topic / "partition.metadata").write_text(_TOPIC_ID)
    before = _content(tmp_path)
    assert "is of no cluster" in _start(tmp_path)
    assert before.items() <= _content(tmp_path).items()


def test_a_directory_that_cannot_be_made_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert f"{file} is a file, not a directory. Choose another one (log.dirs, --log-dirs)" in _start(file)
    assert f"{file} is a file, not a directory" in _start(file / "below")
    if Path("/proc/self").exists():
        assert "the data directory /proc/x cannot be made: No such file or directory. Choose" in _start(
            "/proc/x"
        )


def _error(code: int, path: Path) -> DiskError:
    """As storage raises it."""
    cause = OSError(code, os.strerror(code))
    try:
        raise disk_error(cause, str(path)) from cause
    except DiskError as error:
        return error


def test_each_error_of_the_system_says_what_helps(tmp_path: Path) -> None:
    assert "mounted read-only" in explain(str(tmp_path), _error(errno.EROFS, tmp_path))
    assert f"chown -R {os.geteuid()} {tmp_path}" in explain(
        str(tmp_path), _error(errno.EACCES, tmp_path / ".lock")
    )
    assert "cannot be made: Permission denied" in explain(
        str(tmp_path / "new"), _error(errno.EACCES, tmp_path / "new")
    )
    assert "has no room" in explain(str(tmp_path), _error(errno.ENOSPC, tmp_path / "journal"))
    assert "ulimit -n" in explain(str(tmp_path), _error(errno.EMFILE, tmp_path / "journal"))
    assert explain(str(tmp_path), _error(errno.EIO, tmp_path / "journal")).startswith("disk: ")
