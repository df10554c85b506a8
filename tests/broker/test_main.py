"""What the process asks of the system before the node starts."""

from __future__ import annotations

import subprocess
import sys


def test_a_node_may_open_as_many_files_as_the_system_allows() -> None:
    """In a process of its own: a limit holds for the whole process."""
    code = (
        "import resource as r; from broker.main import allow_many_files\n"
        "hard = min(r.getrlimit(r.RLIMIT_NOFILE)[1], 3000)\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (hard // 2, hard))\n"
        "assert allow_many_files() == hard\n"
        "assert r.getrlimit(r.RLIMIT_NOFILE) == (hard, hard)"
    )
    finished = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE)
    assert b"open files" in finished.stdout
