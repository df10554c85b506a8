"""Processes in the background. Only processes that we started are signalled."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from broker.cli.processes import (
    Process,
    find_process,
    is_running,
    spawn_process,
    stop_processes,
    wait_until_ended,
)
from tests.integration.harness import eventually

pytestmark = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")

SLEEPER = "import time; print('ready', flush=True); time.sleep(60)"
#: Its first thread ends, another one goes on.
HEADLESS = """
import ctypes, threading, time
thread = threading.Thread(target=lambda: time.sleep(60), daemon=True)
thread.start()
print('ready', flush=True)
ctypes.PyDLL(None).pthread_exit(None)
"""
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPER}"


def start(code: str, output: Path) -> Process:
    process = spawn_process([sys.executable, "-c", code], output)
    deadline = time.monotonic() + 20
    while "ready" not in output.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_a_process_stops_on_sigterm_and_one_that_does_not_is_killed(tmp_path: Path) -> None:
    gentle = start(SLEEPER, tmp_path / "gentle")
    stubborn = start(STUBBORN, tmp_path / "stubborn")
    assert is_running(gentle)
    assert is_running(stubborn)
    assert stop_processes([gentle, stubborn], grace_s=0.5) == [stubborn]
    assert not is_running(gentle)
    assert not is_running(stubborn)


def test_another_process_with_the_same_pid_is_left_alone(tmp_path: Path) -> None:
    process = start(SLEEPER, tmp_path / "output")
    former = Process(process.pid, "an earlier boot/1")
    assert not is_running(former)
    assert stop_processes([former], grace_s=5) == []
    assert is_running(process)
    stop_processes([process], grace_s=20)


def test_a_process_that_is_stopped_by_a_signal_counts_as_running(tmp_path: Path) -> None:
    process = start(SLEEPER, tmp_path / "output")
    os.kill(process.pid, signal.SIGSTOP)
    assert is_running(process)
    stop_processes([process], grace_s=0.1)
    assert not is_running(process)


def test_a_child_that_ended_and_was_not_collected_does_not_count_as_running(tmp_path: Path) -> None:
    process = spawn_process([sys.executable, "-c", ""], tmp_path / "output")
    assert wait_until_ended([process], timeout_s=20) == []
    assert Path(f"/proc/{process.pid}").exists() or sys.platform != "linux", (
        "this process has not waited for it"
    )
    assert find_process(process.pid) is None


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of threads")
def test_a_process_runs_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    """The system shows it as a zombie then, and it still has its files and ports."""
    process = start(HEADLESS, tmp_path / "output")
    stat = Path(f"/proc/{process.pid}/stat")
    eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "the end of the first thread")
    assert is_running(process)
    os.kill(process.pid, signal.SIGKILL)
    assert not wait_until_ended([process], timeout_s=20)
