"""The two tables of README.md: the worlds with every rule on, and each rule off."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.model.checker import Result, explore
from tests.model.fences import Fence
from tests.model.properties import divergence, false_claim, high_bound, stagnation
from tests.model.rules import ALL_ON
from tests.model.words import tell_story
from tests.model.world import World

README = Path(__file__).parent / "README.md"
_WORLDS_HEAD = ("world", "what may happen", "terms", "states", "steps to the furthest", "violations")
_FENCES_HEAD = (
    "switch",
    "rule",
    "what is violated",
    "steps",
    "shortest schedule",
    "row of the simulator",
    "states until found",
)


def explore_all_on(world: World) -> Result:
    """With every rule on, and every property looked at."""
    properties = (divergence, high_bound, false_claim, *((stagnation,) if world.is_live else ()))
    return explore(world, ALL_ON, properties, may_fall=False)


def world_row(world: World, result: Result) -> str:
    return _row(
        world.name,
        world.about,
        str(world.max_term),
        f"{result.states:,}",
        str(result.depth),
        result.violation or "none",
    )


def fence_row(fence: Fence, result: Result) -> str:
    rule = f"{fence.rule} ({fence.note})" if fence.note else fence.rule
    row = f"`{fence.row}`" if fence.row else "none"
    if result.start is None:
        return _row(f"`{fence.name}`", rule, "nothing", "", "", row, f"{result.states:,} (all)")
    story = tell_story(result.start, result.trace)
    steps = str(len(result.trace))
    return _row(f"`{fence.name}`", rule, result.violation or "", steps, story, row, f"{result.states:,}")


def worlds_table(rows: Iterable[str]) -> str:
    return _table(_WORLDS_HEAD, rows)


def fences_table(rows: Iterable[str]) -> str:
    return _table(_FENCES_HEAD, rows)


def written(name: str) -> str:
    """The table of this name in README.md, as it stands there."""
    found = _section(name).search(README.read_text(encoding="utf-8"))
    assert found is not None, f"README.md has no table {name}"
    return found[2]


def write(name: str, table: str) -> None:
    text = README.read_text(encoding="utf-8")
    README.write_text(_section(name).sub(lambda found: found[1] + table + found[3], text), encoding="utf-8")


def _section(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _table(head: tuple[str, ...], rows: Iterable[str]) -> str:
    return "\n".join((_row(*head), _row(*["---"] * len(head)), *rows)) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
