"""The end of the process that owns a cluster, in every way, is the end of the nodes. What it imports stays its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import varve
from broker.cli.processes import Process, find_process
from tests.python_package.helpers import assert_ended, node_processes, produce, read
from varve import packages

START = """
import json, sys, varve
cluster = varve.Cluster(1)
cluster.start()
print(json.dumps([cluster.directory, cluster.bootstrap_servers]), flush=True)
"""


@contextmanager
def owner(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has a cluster; it runs where somebody else's modules have the names of ours."""
    for name in ("broker", "protocol", "raft", "storage", "click"):
        (folder / f"{name}.py").write_text("MINE = True\n", encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_modules_with_names_of_ours_are_the_users(tmp_path: Path) -> None:
    """They are imported before and after, work, and nodes run and compact beside them."""
    program = f"""
import broker, protocol
{START}
import storage, raft, click
assert broker.MINE and protocol.MINE and storage.MINE and raft.MINE and click.MINE
cluster.create_topic("compacted", settings={{"cleanup.policy": "compact"}})
print(json.dumps("ready"), flush=True)
input()
cluster.stop()
"""
    with owner(program, tmp_path) as process:
        _, servers = said(process)
        assert said(process) == "ready"
        produce(servers, "compacted", "a")
        assert read(servers, "compacted", 1) == ["a"]
        process.communicate("\n", timeout=60)
        assert process.returncode == 0


FORK = """
import os
if os.fork() == 0:
    input()
    os._exit(0)
"""


def kill_owner(process: subprocess.Popen[str], _: Process) -> None:
    process.kill()


def end_owner(process: subprocess.Popen[str], _: Process) -> None:
    process.communicate("\n", timeout=60)


def kill_supervisor(_: subprocess.Popen[str], supervisor: Process) -> None:
    os.kill(supervisor.pid, signal.SIGKILL)


def terminate_supervisor(_: subprocess.Popen[str], supervisor: Process) -> None:
    os.kill(supervisor.pid, signal.SIGTERM)


@pytest.mark.parametrize("end", [kill_owner, end_owner, kill_supervisor, terminate_supervisor])
@pytest.mark.parametrize("before", ["", "cluster.pause(1)", FORK], ids=["running", "paused", "forked"])
def test_no_node_outlives_its_owner(
    end: Callable[[subprocess.Popen[str], Process], None], before: str, tmp_path: Path
) -> None:
    """Neither one that is paused, nor where a process that the owner has forked holds the pipe open."""
    if end is kill_supervisor and sys.platform != "linux":
        pytest.skip("nodes notice the end of the supervisor on Linux")
    program = f"{START}{before}\nprint(json.dumps(True), flush=True)\ninput()\n"
    with owner(program, tmp_path) as process:
        directory, _ = said(process)
        assert said(process)
        nodes = node_processes(directory)
        supervisor = find_process(parent_of(nodes[1].pid))
        assert supervisor is not None
        end(process, supervisor)
        assert_ended({**nodes, 0: supervisor})
        if end is kill_supervisor:
            shutil.rmtree(directory)  # nobody else does
        else:
            assert not Path(directory).exists()


def parent_of(pid: int) -> int:
    done = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_supervisor_that_is_gone_is_told(tmp_path: Path) -> None:
    cluster = varve.Cluster(1)
    cluster.start()
    directory = cluster.directory
    nodes = node_processes(directory)
    os.kill(parent_of(nodes[1].pid), signal.SIGKILL)
    with pytest.raises(varve.ClusterError, match="supervisor of the nodes has ended by itself"):
        cluster.restart(1)
    with pytest.raises(varve.ClusterError, match="supervisor of the nodes has ended by itself"):
        cluster.stop()
    assert not cluster.is_started
    assert_ended(nodes)
    shutil.rmtree(directory)


def test_the_import_brings_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import varve; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    assert "varve" in imported
    assert not imported & {
        "broker",
        "protocol",
        "raft",
        "storage",
        "confluent_kafka",
        "click",
        "asyncio",
        "pytest",
    }


def test_what_varve_needs_is_not_hidden_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it was installed with --user or --target, isolated mode would not find its dependencies."""
    installed = packages.PACKAGES
    monkeypatch.setenv("PYTHONPATH", str(installed.parent))
    assert packages.isolated_command("broker.cli")[1] == "-I"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/elsewhere", str(installed)]))
    assert packages.isolated_command("broker.cli")[1:-2] == ["-P"]
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(sysconfig, "get_path", lambda name, scheme: str(installed))
    assert packages.isolated_command("broker.cli")[1:-2] == ["-E", "-P"]
