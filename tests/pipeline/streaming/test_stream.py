"""The command as a user types it: queries on three real brokers, killed meanwhile like the driver of the queries."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pipeline.errors import PipelineError
from pipeline.streaming.judge import DOUBLED, IN_SINK
from pipeline.trials.local_cluster import LocalCluster

ROOT = Path(__file__).parents[3]
FEED = ("--duration", "30s", "--rate", "100", "--keys", "10", "--warm-up", "0")


def command(tmp_path: Path, *arguments: str) -> list[str]:
    folders = ("--base-dir", str(tmp_path / "nodes"), "--out", str(tmp_path / "run"))
    return [sys.executable, "-m", "pipeline", "stream", *arguments, *folders]


def stream(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(tmp_path, *arguments), cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )


def summary(tmp_path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tmp_path / "run" / "summary.json").read_text())
    return content


def checks(tmp_path: Path) -> dict[str, int]:
    return {check["name"]: check["actual"] for check in summary(tmp_path)["verify"]["checks"]}


def no_node_is_left(nodes: Path) -> None:
    with pytest.raises(PipelineError, match="no cluster"):
        LocalCluster(nodes).pids()


@pytest.mark.slow
def test_a_killed_broker_loses_and_doubles_nothing(tmp_path: Path) -> None:
    done = stream(tmp_path, *FEED, "--kill-every", "12s")
    assert done.returncode == 0, done.stdout + done.stderr
    told = summary(tmp_path)
    assert told["stream"]["broker_kills"] >= 1
    assert told["stream"]["arrived"] == told["stream"]["acknowledged"] == 3000
    assert checks(tmp_path)[DOUBLED] == told["stream"]["repeated"] == 0
    killed = told["fault"]["events"][0]["what"]
    assert killed.startswith("kill -9 of node")
    page = (tmp_path / "run" / "report.html").read_text()
    assert killed in page
    assert "every record that was fed came out" in page
    assert max(len(line) for line in done.stdout.splitlines() if "report.html" not in line) <= 80
    no_node_is_left(tmp_path / "nodes")


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["kafka", "varve"])
def test_a_killed_driver_goes_on_from_its_checkpoint(tmp_path: Path, sink: str) -> None:
    """At least once or exactly once, each as its sink promises."""
    done = stream(tmp_path, *FEED, "--restart-driver", "--sink", sink)
    assert done.returncode == 0, done.stdout + done.stderr
    told = summary(tmp_path)["stream"]
    assert told["driver_kills"] == 1
    assert told["arrived"] == checks(tmp_path)[IN_SINK] == 3000
    if sink == "varve":
        assert told["repeated"] == 0
    else:
        # The kill came after the first records of the batch, unless the batch ended in that very moment.
        assert told["repeated"] > 0 or not told["repeated_batches"]


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_says_so_and_no_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(tmp_path, "--duration", "1h", "--rate", "10"),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "feeding" in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(120) == 130, said
    assert "pipeline: interrupted" in said
    assert "Traceback" not in said
    assert "interrupted" in summary(tmp_path)
    no_node_is_left(tmp_path / "nodes")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--duration", "0s"), "a time above 0 is wanted"),
        (("--duration", "ten"), "a time above 0 is wanted"),
        (("--duration", "100ms", "--rate", "1"), "the stream has no records"),
        (("--record-size", "20"), "record size must be at least 160 bytes"),
        (("--kill-every", "60s", "--duration", "1m"), "nothing would be killed"),
        (("--kill-every", "60s", "--bootstrap-server", "localhost:1"), "leave out --bootstrap-server"),
    ],
)
def test_bad_input_is_said_before_anything_is_started(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    done = stream(tmp_path, *arguments)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "nodes").exists()
