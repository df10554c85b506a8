"""What came of it, as a table and as JSON, and whether it is what was promised."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from broker.cli.divergence.play import Outcome
from broker.cli.divergence.variants import Variant
from broker.cli.tables import aligned

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
    by_scenario = {
        scenario: [each for each in outcomes if each.scenario is scenario]
        for scenario in dict.fromkeys(outcome.scenario for outcome in outcomes)
    }
    rows = [_row(each, nodes) for of in by_scenario.values() for each in of]
    first, *rest = (f"   {line}" for line in aligned([head, *rows]))
    lines, left = [first], iter(rest)
    for scenario, of in by_scenario.items():
        lines.append(f"{scenario.number}. {scenario.title}: {' | '.join(scenario.written)}")
        lines += islice(left, len(of))
    lines.append("* away between the first | and the end of the line. Each node is asked when it leads.")
    return "\n".join(lines)


def _row(outcome: Outcome, nodes: Sequence[int]) -> list[str]:
    answers = [outcome.answers[node_id].text if node_id in outcome.answers else "" for node_id in nodes]
    return [_MODES[outcome.is_coordinated], *answers, "DAMAGED" if outcome.is_damaged else "right"]
