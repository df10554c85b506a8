"""The tables of docs/monitoring.md: metrics and alerts. `python -m tests.broker.metrics.documentation` writes them."""

from __future__ import annotations

from pathlib import Path

from broker.metrics.catalogue import CATALOGUE, Kind
from tests.monitoring.promql import alert_rules

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"
_WRITTEN_BY = "written by tests/broker/metrics/documentation.py"


def metrics() -> str:
    lines = ["| metric | kind | labels | meaning | Kafka's name |", "|---|---|---|---|---|"]
    for each in CATALOGUE.values():
        labels = ", ".join(f"`{label}`" for label in each.labels)
        kind = "histogram, s" if each.kind is Kind.HISTOGRAM else each.kind.value
        kafka = f"`{each.kafka_name}`" if each.kafka_name else ""
        lines.append(f"| `{each.name}` | {kind} | {labels} | {each.meaning} | {kafka} |")
    return "\n".join(lines) + "\n"


def alerts() -> str:
    lines = ["| alert | fires when | for | severity |", "|---|---|---|---|"]
    for rule in alert_rules():
        when = " ".join(rule["expr"].split()).replace("|", "\\|")
        lines.append(f"| {rule['alert']} | `{when}` | {rule['for']} | {rule['labels']['severity']} |")
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    """Raises ValueError if the page has no place for a table."""
    for name, table in (("metrics", metrics()), ("alerts", alerts())):
        begin, end = f"<!-- {name}: {_WRITTEN_BY} -->\n", f"<!-- end of {name} -->\n"
        page = page[: page.index(begin)] + begin + "\n" + table + "\n" + page[page.index(end) :]
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
