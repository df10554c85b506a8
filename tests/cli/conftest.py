"""Runs the command as its users do: in a process and a directory of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports

ROOT = Path(__file__).parent.parent.parent
Varve = Callable[..., subprocess.CompletedProcess[str]]


def environment() -> dict[str, str]:
    """The environment of the test without settings of the machine. The packages come from the checkout."""
    settings = ("KAFKA_", "CLUSTER_ID", "VARVE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    return {**kept, "PYTHONPATH": str(ROOT)}


#: What a command says is read by the test.
PIPED: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def start(command: list[str], folder: Path, **files: Any) -> subprocess.Popen[bytes]:
    """The command in the background. `files`: its standard input, output and error."""
    return subprocess.Popen(
        [sys.executable, "-m", "broker.cli", *command], cwd=folder, env=environment(), **files
    )


@pytest.fixture
def varve(tmp_path: Path) -> Varve:
    """`varve("topic", "list")` runs in an empty directory. `stdin=` is its input, other keywords are variables."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "broker.cli", *arguments],
            cwd=tmp_path,
            env={**environment(), **variables},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    return run


@pytest.fixture
def ports() -> list[int]:
    """Three client ports that are free, each together with the next one."""
    return free_ports(3)


@pytest.fixture
def node(varve: Varve, ports: list[int]) -> Iterator[str]:
    """A cluster of one node. Its address."""
    started = varve("cluster", "up", "--ports", str(ports[0]))
    try:
        assert started.returncode == 0, started.stderr
        yield f"localhost:{ports[0]}"
    finally:
        varve("cluster", "down", "--grace", "10")


@pytest.fixture
def cluster(varve: Varve, ports: list[int]) -> Iterator[dict[str, Any]]:
    """A cluster of three nodes, as `varve cluster up --format json` describes it."""
    started = varve("cluster", "up", "--ports", ",".join(map(str, ports)), "--format", "json")
    try:
        assert started.returncode == 0, started.stderr
        yield json.loads(started.stdout)
    finally:
        varve("cluster", "down", "--grace", "10")
