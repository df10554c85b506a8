"""The experiment on requests in flight, in its small size, on a real node."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.lab import in_flight
from pipeline.lab.bench import Bench
from tests.pipeline.producer.conftest import Node


@pytest.mark.slow
def test_more_in_flight_carry_more_over_a_long_way_and_delays_add_up(node: Node, tmp_path: Path) -> None:
    findings = in_flight.run(Bench(node.bootstrap, tmp_path, print, is_quick=True))
    throughput, latency, follower = findings.tables
    measured: dict[tuple[object, ...], float] = {}
    for added_ms, is_idempotent, allowed, _, megabytes_per_s, _ in throughput.rows:
        assert isinstance(megabytes_per_s, float)
        measured[added_ms, is_idempotent, allowed] = megabytes_per_s
    assert measured[50, False, 5] > 2 * measured[50, False, 1]
    for added_ms, median_ms, _ in latency.rows:
        assert isinstance(median_ms, float) and isinstance(added_ms, int) and median_ms >= added_ms
    # A single node has no follower.
    assert [row[0] for row in follower.rows] == ["not tried: needs a replica whose --node-pid is known"]
    assert "A slow follower was not tried" in findings.text
    assert len(findings.plots[0].series) == 7
