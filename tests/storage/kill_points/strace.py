"""A process under strace: which system calls it makes between two marks, and its death at one of them.

strace counts the calls of each name by itself, from the start of the process. So a point is a name and a number, and
all points of all names are all calls. The signal arrives before the call is carried out. Each killed run is traced,
too: where it died is compared with where it should have.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.integration.harness import ROOT
from tests.storage.kill_points.victim import BEGIN_MARK, END_MARK

#: Calls that touch no file. A process that dies at one of them leaves what it leaves at the next call that does.
IN_MEMORY = frozenset(
    "arch_prctl brk clock_gettime clock_nanosleep clone clone3 exit exit_group futex getpid getrandom gettid"
    " gettimeofday madvise membarrier mmap mprotect mremap munmap prctl rseq rt_sigaction rt_sigprocmask"
    " rt_sigreturn sched_getaffinity sched_yield set_robust_list set_tid_address sigaltstack".split()
)
_CALL = re.compile(r"^(\w+)\(")
_TIMEOUT_S = 60


class KilledElsewhereError(Exception):
    """The process did not die at the call at which it should."""


class Point(NamedTuple):
    """Before this call."""

    position: int
    """Among all calls between the marks, from 0 on."""
    name: str
    number: int
    """Among the calls of this name, since the process began, from 1 on."""
    arguments: str


def why_not() -> str | None:
    """Why processes cannot be traced here."""
    if sys.platform != "linux":
        return "strace exists for Linux only"
    if shutil.which("strace") is None:
        return "no strace here (apt-get install strace)"
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    return f"strace may not trace here: {tried.stderr.strip()}" if tried.returncode else None


def traced_points(module: str, arguments: Sequence[str], trace: Path) -> list[Point]:
    """All points of a run that comes to its end."""
    finished = _run([], module, arguments, trace)
    assert finished.returncode == 0, finished.stderr
    return _points(trace)


def run_killed(module: str, arguments: Sequence[str], trace: Path, point: Point) -> None:
    """Have the process die at this point. Raises KilledElsewhereError."""
    # Not with --seccomp-bpf: strace 6.1 injects nothing then.
    injection = ["-e", f"inject={point.name}:signal=KILL:when={point.number}"]
    finished = _run(injection, module, arguments, trace)
    points = _points(trace)
    if finished.returncode != -signal.SIGKILL or not points or points[-1][:3] != point[:3]:
        raise KilledElsewhereError(f"{point}: {finished.returncode}, {points[-1:]}, {finished.stderr}")


def _run(
    options: Sequence[str], module: str, arguments: Sequence[str], trace: Path
) -> subprocess.CompletedProcess[str]:
    """Only the first thread is traced. The others touch no file while it works."""
    return subprocess.run(
        ["strace", "-o", str(trace), *options, sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )


def _points(trace: Path) -> list[Point]:
    counts: Counter[str] = Counter()
    points: list[Point] = []
    is_between = False
    for line in trace.read_text(errors="replace").splitlines():
        found = _CALL.match(line)
        if found is None:
            continue
        name = found.group(1)
        counts[name] += 1
        if END_MARK in line:
            is_between = False
        if is_between and name not in IN_MEMORY:
            points.append(Point(len(points), name, counts[name], line[found.end() :]))
        if BEGIN_MARK in line:
            is_between = True
    return points
