"""The retry storm: what counts as recovered, and a small storm on a cluster of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.lab import retry_storm
from pipeline.lab.bench import own_bench
from pipeline.lab.retry_storm import recovered_after_s


def test_a_cluster_has_recovered_when_all_further_seconds_are_well() -> None:
    assert recovered_after_s([1, 1, 1], restored_s=1.5) == 0
    assert recovered_after_s([1, 0, 0, 1, 1], restored_s=1.5) == 1.5
    assert recovered_after_s([1, 0, 1, 0.5, 1], restored_s=1.5) == 2.5
    # Well before it was restored: another node had taken over.
    assert recovered_after_s([1, 0, 1, 1, 1], restored_s=3.5) == 0
    assert recovered_after_s([1, 1, 0.5], restored_s=1.5) is None


@pytest.mark.slow
def test_immediate_retries_make_a_storm_and_a_breaker_does_not(tmp_path: Path) -> None:
    policies = ("immediate", "jitter and breaker")
    with own_bench(tmp_path / "nodes", tmp_path, print, is_quick=True) as bench:
        findings = retry_storm.run(bench, policies)
    (table,) = findings.tables
    ratios: dict[object, float] = {}
    for policy, _, _, ratio, _, acknowledged, _ in table.rows:
        assert isinstance(ratio, float) and isinstance(acknowledged, float) and acknowledged > 0
        ratios[policy] = ratio
    assert ratios["immediate"] >= 3
    assert ratios["jitter and breaker"] <= 1.5
    assert [series.name for series in findings.plots[0].series] == list(policies)
    assert "With immediate the load rose to" in findings.text
