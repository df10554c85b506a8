"""The command `lab`, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from rich.console import Console

from pipeline.lab.command import print_findings
from pipeline.lab.registry import EXPERIMENTS
from pipeline.report.findings import TableOf
from pipeline.report.sweep import Sweep, parse_sweep
from tests.pipeline.producer.conftest import Node


def _lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", "lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_without_a_name_it_says_which_experiments_there_are() -> None:
    told = _lab()
    assert told.returncode == 0
    assert [line.split()[0] for line in told.stdout.splitlines()] == list(EXPERIMENTS)


def test_an_experiment_leaves_a_table_a_sweep_and_a_page(node: Node, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = _lab("acks", "--quick", "--bootstrap-server", node.bootstrap, "--out", str(run))
    assert done.returncode == 0, done.stderr
    assert "What a rung costs" in done.stdout and str(run / "report.html") in done.stdout
    found = parse_sweep(json.loads((run / "sweep.json").read_text()), "sweep.json")
    assert [len(table.rows) for table in found.tables] == [3, 6]
    assert found.text in " ".join(done.stdout.split())
    assert "Ladder of acknowledgements" in (run / "report.html").read_text()


def test_what_cannot_be_is_said_in_a_line(tmp_path: Path) -> None:
    unknown = _lab("tacks")
    assert unknown.returncode == 2 and "'tacks' is not one of 'acks'" in unknown.stderr
    pid = _lab("acks", "--node-pid", "one")
    assert pid.returncode == 2 and "NODE=PID" in pid.stderr
    nobody = _lab("idempotence", "--bootstrap-server", "localhost:1", "--out", str(tmp_path / "run"))
    assert nobody.returncode == 2 and "no broker answers at localhost:1" in nobody.stderr
    assert "Traceback" not in nobody.stderr


def test_a_table_of_ten_columns_fits_on_a_terminal_with_every_figure_whole() -> None:
    table = TableOf(
        "Wide",
        [("queue.buffering.max.kbytes", "KiB"), *((f"waiting {number}", "ms") for number in range(9))],
        "Figures of all sizes.",
    )
    table.add(65_536, 0.123, 9.87, 99.999, 371.13, 999.99, 1_264.7, 12_345.6, True, None)
    console = Console(width=80, record=True)
    print_findings(console, Sweep("Wide", "As seen.", [table.table()], []))
    told = console.export_text()
    [figures] = [line.split() for line in told.splitlines() if "65,536" in line]
    assert figures == "65,536 0.12 9.87 100.00 371.13 999.99 1,265 12,346 yes -".split()
    assert "…" not in told
