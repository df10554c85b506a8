"""Nodes that are forked from this process, which has imported what a node imports.

That saves each node the time of its imports, which is most of what a start takes. On systems other than Linux nodes are
started as programs: a process of macOS that was forked must not use some libraries of the system.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from ctypes import c_int
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from broker.cli.local_cluster import Spawn
from broker.cli.processes import Process, find_process, spawn_process
from storage import libc

#: Linux (sys/prctl.h): the signal that this process gets when its parent dies.
_PR_SET_PDEATHSIG = 1
#: What `varve start` imports when it runs.
_MODULES = ("broker.cli.root", "broker.cli.start", "broker.config.sources", "broker.main", "uvloop")


def new_spawn() -> Spawn:
    """How nodes are started here. Takes as long as the imports of a node."""
    if sys.platform != "linux":
        return spawn_process
    for module in _MODULES:
        import_module(module)
    return fork_node


def fork_node(command: Sequence[str], output: Path, environment: Mapping[str, str]) -> Process:
    """The same as `spawn_process` for a command of `isolated_command("broker.cli", ...)`. The node dies with this
    process. Other threads of this process have ended when it forks."""
    own_pid = os.getpid()
    # Those that `find_broker` starts, which end soon.
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    pid = os.fork()
    if pid == 0:
        _become_node(command, output, environment, own_pid)
    # If it has ended already, it is a child that was not collected, so nobody else has its id.
    return find_process(pid) or Process(pid, "ended")


def _become_node(
    command: Sequence[str], output: Path, environment: Mapping[str, str], parent_pid: int
) -> NoReturn:
    """In the child. It never returns to the code of its parent."""
    code = 70
    try:
        prctl = libc.function("prctl", c_int, c_int)
        assert prctl is not None
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(code)  # the parent died before that
        os.setsid()
        _take_over(command, output, environment)
        from broker.cli.root import varve

        varve(args=list(command[command.index("broker.cli") + 1 :]), prog_name="varve")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _take_over(command: Sequence[str], output: Path, environment: Mapping[str, str]) -> None:
    """Files, signals, variables and arguments, as the command would have them."""
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # The pipes of the owner, and locks that end with the parent.
    os.closerange(3, max(log, null, *map(int, os.listdir("/proc/self/fd"))) + 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    # A node that starts anew runs its command again (broker/main.py).
    sys.orig_argv = list(command)
    sys.argv = list(command[command.index("broker.cli") :])
