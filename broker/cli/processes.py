"""Processes that outlive the command that started them.

A process id does not identify a process: when the process has ended, another one may get the same id. The id together
with the start time does. So a process that somebody else started is never signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

POLL_S = 0.02


class Process(NamedTuple):
    pid: int
    #: When it started, in the format of the system. Only compared.
    started: str


def find_process(pid: int) -> Process | None:
    """The running process with this id. A process that has ended and was not collected does not count."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _find_by_ps(pid)
    # proc(5): the command is in parentheses and may contain anything. Field 3 is the state, field 20 the number of
    # threads, field 22 the start time. A process has its files and ports until its last thread has ended; its first one
    # is a zombie before that.
    fields = stat.rpartition(")")[2].split()
    has_ended = fields[0] in "ZX" and int(fields[17]) <= 1
    return None if has_ended else Process(pid, f"{boot}/{fields[19]}")


def _find_by_ps(pid: int) -> Process | None:
    """For systems without /proc (macOS)."""
    done = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = done.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else Process(pid, started.strip())


def is_running(process: Process) -> bool:
    return find_process(process.pid) == process


def spawn_process(
    command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
) -> Process:
    """Start a process in the background, in a session of its own. Ctrl-C in this terminal does not reach it. Its
    environment is this process's, unless another one is given."""
    with output.open("ab") as log:
        child = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    process = find_process(child.pid)
    # If it has ended already, it is a child that was not collected, so nobody else has its id.
    return process or Process(child.pid, "ended")


def stop_processes(processes: Sequence[Process], grace_s: float) -> list[Process]:
    """Send SIGTERM to all, and SIGKILL to those that still run after `grace_s`. Returns the ones that were killed."""
    signal_processes(processes, signal.SIGTERM)
    left = wait_until_ended(processes, grace_s)
    signal_processes(left, signal.SIGKILL)
    wait_until_ended(left, grace_s)
    return left


def wait_until_ended(processes: Sequence[Process], timeout_s: float) -> list[Process]:
    """Wait until all have ended. Returns those that still run after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    left = [process for process in processes if is_running(process)]
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [process for process in left if is_running(process)]
    return left


def signal_processes(processes: Sequence[Process], number: signal.Signals) -> None:
    """Those that have ended are passed over."""
    for process in processes:
        if is_running(process):
            with contextlib.suppress(ProcessLookupError):  # It ended between the two lines.
                os.kill(process.pid, number)
