"""`varve cluster secret`, and what nodes do with it: real processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.cli.conftest import Varve

OPEN = ("--listeners", "PLAINTEXT://localhost:9092,CONTROLLER://:9093")


def test_a_secret_is_printed_or_written_to_a_new_file(varve: Varve, tmp_path: Path) -> None:
    printed = varve("cluster", "secret")
    assert printed.returncode == 0
    assert len(printed.stdout.strip()) == 44
    assert varve("cluster", "secret").stdout != printed.stdout

    written = varve("cluster", "secret", "--out", "secret")
    assert written.returncode == 0
    assert written.stdout == ""
    file = tmp_path / "secret"
    text = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(text.strip()) == 44
    assert text.strip() not in written.stderr

    again = varve("cluster", "secret", "--out", "secret")
    assert again.returncode == 1
    assert again.stderr == "varve: secret is there already\n"
    assert varve("cluster", "secret", "--out", "secret", "--if-missing").returncode == 0
    assert file.read_text() == text

    file.chmod(0o644)
    assert varve("cluster", "secret", "--out", "secret", "--if-missing").returncode == 1
    assert varve("cluster", "secret", "--if-missing").returncode == 2
    assert varve("cluster", "secret", "--out", "no/such/folder/secret").returncode == 1


def test_a_node_that_others_can_reach_does_not_start_without_a_secret(varve: Varve, tmp_path: Path) -> None:
    refused = varve("start", *OPEN)
    assert refused.returncode == 2
    assert "varve cluster secret --out FILE" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert varve("start", "--check", *OPEN).returncode == 2
    assert not (tmp_path / "varve-data").exists()

    varve("cluster", "secret", "--out", "secret")
    assert varve("start", "--check", *OPEN, "--override", "varve.cluster.secret=secret").returncode == 0
    assert varve("start", "--check", *OPEN, VARVE_CLUSTER_SECRET="sixteen bytes or more").returncode == 0


def test_a_secret_that_cannot_be_used_is_one_plain_line(varve: Varve, tmp_path: Path) -> None:
    varve("cluster", "secret", "--out", "secret")
    named = ("--override", "varve.cluster.secret=secret")
    differs = varve("start", *named, VARVE_CLUSTER_SECRET="another secret, of some length")
    assert differs.returncode == 2
    assert "differ; use one of them" in differs.stderr
    (tmp_path / "secret").chmod(0o640)
    refused = varve("start", *named)
    assert refused.returncode == 2
    assert f"chmod 600 {tmp_path}/secret" in refused.stderr
    assert "less than 16 bytes" in varve("start", VARVE_CLUSTER_SECRET="short").stderr


def test_a_cluster_of_this_machine_has_a_secret_of_its_own(
    varve: Varve, cluster: dict[str, Any], tmp_path: Path
) -> None:
    """... which it keeps as long as its data, and no variable takes its place."""
    file = tmp_path / ".varve" / "secret"
    text = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    os.kill(cluster["nodes"][2]["pid"], 9)
    again = varve("cluster", "up", "--format", "json", VARVE_CLUSTER_SECRET="another secret, of some length")
    assert again.returncode == 0, again.stderr
    assert [node["state"] for node in json.loads(again.stdout)["nodes"]] == ["up"] * 3
    assert file.read_text() == text
    varve("cluster", "down", "--delete-data", "--yes")
    assert not file.exists()
