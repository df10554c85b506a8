"""The programs in examples/, as their README prints them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.integration.explaining import varve
from tests.integration.harness import ROOT, BrokerCluster

README = (ROOT / "examples" / "README.md").read_text()
PROGRAMS = re.findall(r"^python (examples/\w+\.py)$", README, re.MULTILINE)
LIMIT_S = 120.0


def run(cluster: BrokerCluster, program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, program, "--bootstrap-server", cluster.bootstrap],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_readme_names_every_program() -> None:
    programs = {path.name for path in (ROOT / "examples").glob("*.py")} - {"tables.py"}
    assert {Path(program).name for program in PROGRAMS} == programs


def test_configuration(cluster: BrokerCluster) -> None:
    expected = ['payments: {"retries": 3, "limit": 50}', 'search: {"index": "v2"}']
    assert run(cluster, "examples/config_store.py") == expected
    varve(cluster, "topic", "compact", "settings", "--wait")
    # As the README goes on.
    assert "DIRTY-RATIO" in varve(cluster, "topic", "describe", "settings", "--compaction")
    assert "the newest one: it stays" in varve(cluster, "explain", "settings", "--key", "payments")
    # Once more, over what is left.
    assert run(cluster, "examples/config_store.py") == expected


def test_sessions(cluster: BrokerCluster) -> None:
    expected = ['ann: {"device": "phone"}', "bob is logged out"]
    assert run(cluster, "examples/session_store.py") == expected
    varve(cluster, "topic", "compact", "sessions", "--wait")
    assert run(cluster, "examples/session_store.py") == expected


def test_a_changelog_is_shorter_after_compaction_and_tells_the_same(cluster: BrokerCluster) -> None:
    assert run(cluster, "examples/cdc_changelog.py") == ["10 orders from 80 records"]
    varve(cluster, "topic", "compact", "shop.orders", "--wait")
    # What the first run left (10 rows, 10 deletions), and what the second one writes.
    assert run(cluster, "examples/cdc_changelog.py") == ["10 orders from 100 records"]
