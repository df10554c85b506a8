"""The commands of docs/start.md, as a reader types them, in the order of the page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import ROOT, Varve, environment
from tests.documents.markdown import blocks

PAGE = ROOT / "docs" / "start.md"


def test_the_first_hour(varve: Varve, tmp_path: Path, ports: list[int]) -> None:
    """Each block in a shell of its own, in the directory of the reader."""
    command = tmp_path / "bin" / "varve"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m broker.cli "$@"\n')
    command.chmod(0o755)
    variables = environment()
    variables["PATH"] = f"{command.parent}:{variables['PATH']}"
    up = f"varve cluster up --ports {','.join(map(str, ports))}"
    seen: list[str] = []
    try:
        for block in blocks(PAGE):
            if block.language != "sh":
                continue
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text.replace("varve cluster up", up)],
                cwd=tmp_path,
                env=variables,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, f"{PAGE}:{block.line}\n{done.stdout}{done.stderr}"
            seen.append(done.stdout)
    finally:
        varve("cluster", "down", "--grace", "10", "--delete-data")
    start, records, group, death, setting, stop = seen
    assert start.count("  up\n") == 3
    assert sorted(line for line in records.splitlines() if ":" in line[:4]) == [
        "ann:book",
        "ann:pen",
        "bob:lamp",
    ]
    assert "Isr: " in records
    # The new record is what the group has not read, and then it has.
    described = [
        words for line in group.splitlines() if len(words := line.split()) == 9 and words[0] == "shop"
    ]
    assert sum(int(words[5]) for words in described) == 1
    assert "cup" in group.splitlines()
    assert "  down\n" in death and "node 2" in death
    assert "retention.ms=3600000" in setting
    assert stop.count("stopped") == 3
