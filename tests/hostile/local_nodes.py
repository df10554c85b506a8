"""Nodes that run on this machine, under this user: their memory, their processor time, their logs. From /proc, so on
Linux only."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_TROUBLE = re.compile(r"Traceback|\[critical|node stops")
#: TCP_LISTEN in /proc/net/tcp.
_LISTEN = "0A"


class LocalNode:
    """A node whose process runs on this machine, under this user."""

    def __init__(self, node_id: int, pid: int) -> None:
        self.node_id = node_id
        self.pid = pid
        log = Path(f"/proc/{pid}/fd/2").resolve()
        #: Where the process writes its log, if that is a file.
        self._log = log if log.is_file() else None
        self._log_position = log.stat().st_size if log.is_file() else 0

    @property
    def is_alive(self) -> bool:
        return self.memory_mb is not None

    @property
    def memory_mb(self) -> int | None:
        """Resident. None: the process is gone."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        except OSError:
            return None
        found = re.search(r"VmRSS:\s+(\d+)", status)
        return int(found[1]) // 1024 if found else None

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def new_trouble(self) -> list[str]:
        """Lines of the log since the last call that tell of a defect."""
        if self._log is None:
            return []
        with self._log.open(encoding="utf-8", errors="replace") as log:
            log.seek(self._log_position)
            lines = log.read().splitlines()
            self._log_position = log.tell()
        return [line for line in lines if _TROUBLE.search(line)]


def pid_that_listens(port: int) -> int | None:
    """The process that listens on a TCP port of this machine. None: no process of this user does."""
    inodes = {f"socket:[{inode}]" for table in ("tcp", "tcp6") for inode in _listening(table, port)}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(each) in inodes for each in (folder / "fd").iterdir()):
                return int(folder.name)
        except OSError:
            continue  # another user's, or gone
    return None


def _listening(table: str, port: int) -> Iterator[str]:
    """The inodes of the listening sockets of a port."""
    try:
        lines = Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return
    for fields in map(str.split, lines):
        if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]
