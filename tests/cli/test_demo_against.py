"""`varve demo divergence --against` with a cluster that somebody else has started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.divergence.brokers import NODE_SETTINGS, UNCOORDINATED
from tests.cli.conftest import Varve, environment

pytestmark = pytest.mark.slow
LIMIT_S = 300
#: `BASE/node-N/pid` is a list of the process id and something else.
STOP = "kill -9 $(sed 's/[^0-9]*\\([0-9]*\\).*/\\1/' .varve/node-{node}/pid)"
START = f"{sys.executable} -m broker.cli cluster up"


@pytest.fixture(params=[True, False], ids=["coordinated", "uncoordinated"])
def is_coordinated(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def address(varve: Varve, ports: list[int], is_coordinated: bool) -> Iterator[str]:
    settings = NODE_SETTINGS if is_coordinated else {**NODE_SETTINGS, **UNCOORDINATED}
    options = [part for key, value in settings.items() for part in ("--config", f"{key}={value}")]
    assert varve("cluster", "up", "--ports", ",".join(map(str, ports)), *options).returncode == 0
    yield f"localhost:{ports[0]}"
    varve("cluster", "down", "--delete-data", "--yes")


def test_it_shows_what_the_cluster_does_and_leaves_it_as_it_was(
    varve: Varve, address: str, is_coordinated: bool, tmp_path: Path
) -> None:
    command = ["demo", "divergence", "--against", address, "--stop-node", STOP, "--start-node", START]
    played = subprocess.run(
        [sys.executable, "-m", "broker.cli", *command, "--format", "json"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    report = json.loads(played.stdout)
    assert [outcome["damaged"] for outcome in report["outcomes"]] == [not is_coordinated] * 4, played.stderr
    assert played.returncode == (0 if is_coordinated else 1)
    assert varve("topic", "list", "--exclude-internal").stdout == ""
    status = json.loads(varve("cluster", "status", "--format", "json").stdout)
    assert [node["state"] for node in status["nodes"]] == ["up"] * 3
