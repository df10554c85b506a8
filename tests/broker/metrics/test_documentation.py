"""docs/monitoring.md says what there is."""

from __future__ import annotations

from tests.broker.metrics.documentation import BEGIN, END, PAGE, with_table


def test_the_page_lists_every_metric_as_it_is_defined() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert BEGIN in page
    assert END in page
    assert page == with_table(page), "python -m tests.broker.metrics.documentation writes the table"
