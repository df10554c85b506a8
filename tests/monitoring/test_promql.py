"""Names are found in queries."""

from __future__ import annotations

import pytest

from tests.monitoring.promql import names_in


@pytest.mark.parametrize(
    ("query", "metrics", "grouping"),
    [
        ("a > 0", {"a": set()}, set()),
        ('sum by (x, y) (rate(a_total{b="c", d=~"e|f"}[5m])) / 2', {"a_total": {"b", "d"}}, {"x", "y"}),
        ("histogram_quantile(0.99, rate(a_bucket[5m])) > 1e3", {"a_bucket": set()}, set()),
        (
            'max by (t) (a{i="1"}) - on (t) group_right (r) b unless c offset 5m',
            {"a": {"i"}, "b": set(), "c": set()},
            {"t", "r"},
        ),
        ("time() - a and b == 0", {"a": set(), "b": set()}, set()),
        ('a{b="c{d}"} or a{e!="f"}', {"a": {"b", "e"}}, set()),
    ],
)
def test_metrics_and_labels(query: str, metrics: dict[str, set[str]], grouping: set[str]) -> None:
    names = names_in(query)
    assert names.metrics == metrics
    assert names.grouping == grouping
