"""The table of all metrics in docs/monitoring.md. `python -m tests.broker.metrics.documentation` writes it."""

from __future__ import annotations

from pathlib import Path

from broker.metrics.catalogue import CATALOGUE, Kind

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"
BEGIN = "<!-- metrics: written by tests/broker/metrics/documentation.py -->\n"
END = "<!-- end of metrics -->\n"


def table() -> str:
    lines = ["| metric | kind | labels | meaning | Kafka's name |", "|---|---|---|---|---|"]
    for each in CATALOGUE.values():
        labels = ", ".join(f"`{label}`" for label in each.labels)
        kind = "histogram, s" if each.kind is Kind.HISTOGRAM else each.kind.value
        kafka = f"`{each.kafka_name}`" if each.kafka_name else ""
        lines.append(f"| `{each.name}` | {kind} | {labels} | {each.meaning} | {kafka} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + "\n" + table() + "\n" + END + after


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
