"""A short slice of what scripts/nemesis does for half an hour, with the faults that need no root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.history.findings import Kind
from tests.integration.faults import power
from tests.integration.faults.campaign import run_campaign


@pytest.mark.slow
def test_nothing_is_lost_under_kills_pauses_and_power_losses(tmp_path: Path) -> None:
    faults = ["kill", "pause", *(["power"] if power.is_possible() else [])]
    outcome = run_campaign(tmp_path / "run", 1, 45, faults, print)
    assert outcome.passed, (outcome.problems, json.dumps(outcome.checked, indent=1))
    assert outcome.checked is not None
    assert outcome.checked["sends"]["ok"] > 1000
    assert outcome.checked["transactions"]["ok"] > 50
    assert outcome.faults.total() > 3


@pytest.mark.slow
def test_disks_that_lie_are_noticed(tmp_path: Path) -> None:
    """Without this, a verdict without findings might only say that nothing is ever found."""
    if not power.is_possible():
        pytest.skip("needs Linux and a C compiler")
    outcome = run_campaign(tmp_path / "run", 3, 30, ["power"], print, recovery_s=5, has_lying_disks=True)
    assert not outcome.passed
    assert outcome.problems or (outcome.checked is not None and outcome.checked["counts"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("readers of committed data get nothing else", Kind.ABORTED_READ),
        ("offsets of aborted transactions are dropped", Kind.UNCONSUMED),
    ],
)
def test_a_broken_rule_of_transactions_is_noticed(tmp_path: Path, rule: str, kind: Kind) -> None:
    outcome = run_campaign(tmp_path / "run", 3, 20, [], print, broken_rule=rule)
    assert outcome.checked is not None
    assert outcome.checked["counts"].get(kind), (outcome.problems, outcome.checked["counts"])
