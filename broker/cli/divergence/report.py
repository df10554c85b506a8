"""What came of it, as a table and as JSON, and whether it is what was promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.cli.divergence.play import Outcome
from broker.cli.divergence.variants import Variant

_MODES = {None: "", False: "coordination off", True: "coordination on"}


def is_as_promised(outcomes: Sequence[Outcome], variant: Variant) -> bool:
    """With coordination nothing is damaged. Without, everything is, unless the variant says that nothing is. Nothing is
    promised of another cluster, but damage is no success."""
    return all(
        outcome.is_damaged == (outcome.is_coordinated is False and variant.shows_damage)
        for outcome in outcomes
    )


def as_json(outcomes: Sequence[Outcome], variant: Variant, away: int) -> dict[str, Any]:
    return {
        "variant": variant.name,
        "away": away,
        "as_promised": is_as_promised(outcomes, variant),
        "outcomes": [
            {
                "scenario": outcome.scenario.number,
                "title": outcome.scenario.title,
                "written": list(outcome.scenario.written),
                "coordinated": outcome.is_coordinated,
                "damaged": outcome.is_damaged,
                "answers": {
                    str(node_id): {"text": answer.text, "damaged": answer.is_damaged}
                    for node_id, answer in outcome.answers.items()
                },
            }
            for outcome in outcomes
        ],
    }


def as_table(outcomes: Sequence[Outcome], away: int) -> str:
    """A line for each scenario and mode. The outcomes of a scenario stand together, whatever their order."""
    nodes = sorted({node_id for outcome in outcomes for node_id in outcome.answers})
    head = ["", *(f"node {node_id}{'*' if node_id == away else ''}" for node_id in nodes), ""]
    rows: list[tuple[str, list[list[str]]]] = []
    for scenario in dict.fromkeys(outcome.scenario for outcome in outcomes):
        title = f"{scenario.number}. {scenario.title}: {' | '.join(scenario.written)}"
        rows.append((title, [_row(each, nodes) for each in outcomes if each.scenario is scenario]))
    cells = [head, *(row for _, of in rows for row in of)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]
    lines = [_line(head, widths)]
    for title, of in rows:
        lines += [title, *(_line(row, widths) for row in of)]
    lines.append("* away between the first | and the end of the line. Each node is asked when it leads.")
    return "\n".join(lines)


def _row(outcome: Outcome, nodes: Sequence[int]) -> list[str]:
    answers = [outcome.answers[node_id].text if node_id in outcome.answers else "" for node_id in nodes]
    return [_MODES[outcome.is_coordinated], *answers, "DAMAGED" if outcome.is_damaged else "right"]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "   " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
