"""CPU time and memory of other processes, read from Linux's /proc.

CPU comes from /proc/PID/task/*/schedstat: nanoseconds on a core, all threads, user and kernel together. A
thread that ends between two samples takes its time since the first one with it; brokers keep their threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class CpuSample:
    """Nanoseconds used so far, by node and then by (process, thread)."""

    thread_ns_by_node: Mapping[str, Mapping[tuple[int, int], int]]

    def used_ms_until(self, later: CpuSample) -> dict[str, float]:
        """Milliseconds of CPU between this sample and a later one, by node."""
        return {
            node: sum(
                ns - self.thread_ns_by_node.get(node, {}).get(thread, 0) for thread, ns in threads.items()
            )
            / 1e6
            for node, threads in later.thread_ns_by_node.items()
        }


def is_alive(pid: int) -> bool:
    """True for a running process; a zombie is not one."""
    return _state_and_parent(pid)[0] not in ("", "Z", "X")


def process_tree(pid: int) -> list[int]:
    """`pid` and its descendants: a broker's helper processes are part of what it costs."""
    parents = {int(entry.name): _state_and_parent(int(entry.name))[1] for entry in PROC.glob("[0-9]*")}
    tree = [pid]
    for member in tree:
        tree.extend(child for child, parent in parents.items() if parent == member)
    return tree


def sample_cpu(pid_by_node: Mapping[str, int]) -> CpuSample:
    """What each node has used up to now. A node that is gone has used nothing."""
    return CpuSample(
        {
            node: {thread: ns for member in process_tree(pid) for thread, ns in _thread_ns(member).items()}
            for node, pid in pid_by_node.items()
        }
    )


def resident_mb(pid_by_node: Mapping[str, int]) -> dict[str, float]:
    """Resident memory (VmRSS) of each node, in MB of 1,000,000 bytes; pages of libraries count in every node."""
    return {
        node: sum(_resident_kib(member) for member in process_tree(pid)) * 1024 / 1e6
        for node, pid in pid_by_node.items()
    }


def _state_and_parent(pid: int) -> tuple[str, int]:
    try:
        # The command name stands in parentheses and may hold anything, parentheses too.
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    return fields[0], int(fields[1])


def _thread_ns(pid: int) -> dict[tuple[int, int], int]:
    used: dict[tuple[int, int], int] = {}
    for task in (PROC / str(pid) / "task").glob("*"):
        try:
            used[pid, int(task.name)] = int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended between the listing and the reading
    return used


def _resident_kib(pid: int) -> int:
    try:
        status = (PROC / str(pid) / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")), 0)
