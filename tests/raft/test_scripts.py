"""Each script in testdata gives exactly the trace that it records. See `script.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.raft.script import run_script

SCRIPTS = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    trace = run_script(path)
    if os.environ.get("VARVE_REWRITE") == "1":
        path.write_text(trace)
    assert trace == path.read_text()
    assert "VIOLATION" not in trace
