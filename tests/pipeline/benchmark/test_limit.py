"""The search for the rate that saturates a cluster."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pipeline.benchmark.limit import Point, findings, limit, search, summary
from pipeline.report.findings import to_json
from pipeline.report.sweep import parse_sweep


def a_cluster(takes_per_s: float) -> list[Point]:
    def measure(rate_per_s: float) -> Point:
        is_too_much = rate_per_s > takes_per_s
        return Point(rate_per_s, min(rate_per_s, takes_per_s), 2.0, 5000.0 if is_too_much else 9.0)

    return search(1000.0, measure)


@pytest.mark.parametrize("takes_per_s", [90, 300, 1000, 1100, 5000, 44_000])
def test_the_limit_is_found_within_its_margin(takes_per_s: float) -> None:
    found = limit(a_cluster(takes_per_s))
    assert found is not None
    assert takes_per_s / 1.15 <= found.asked_per_s <= takes_per_s


def test_a_cluster_that_everything_saturates_has_no_limit() -> None:
    points = a_cluster(30)
    assert limit(points) is None
    assert summary("smoke", points) == "smoke: even 62 records/s saturate the cluster."


def test_a_long_wait_is_saturation_even_if_all_is_acknowledged() -> None:
    assert Point(1000, 1000, 900, 1001).is_saturated
    assert Point(1000, 949, 1, 2).is_saturated
    assert not Point(1000, 951, 1, 2).is_saturated


def test_the_findings_can_be_shown() -> None:
    points = a_cluster(5000)
    written = to_json(findings("smoke", summary("smoke", points), points))
    read = parse_sweep(json.loads(json.dumps(written)), "sweep.json")
    assert len(read.tables[0].rows) == len(points)
    assert "the cluster held" in read.text
