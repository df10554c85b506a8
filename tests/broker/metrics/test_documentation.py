"""docs/monitoring.md says what there is."""

from __future__ import annotations

from tests.broker.metrics.documentation import PAGE, with_tables


def test_the_page_lists_every_metric_and_every_alert_as_it_is_defined() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "python -m tests.broker.metrics.documentation writes the tables"
