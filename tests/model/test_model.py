"""With all rules on the model finds nothing; with each off it finds the schedule that README.md tells."""

from __future__ import annotations

import pytest

from tests.model import table
from tests.model.fences import FENCES, Fence
from tests.model.world import World
from tests.model.worlds import WIDE_WORLDS, WORLDS
from tests.simulator.mutations import MUTATIONS


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_nothing_is_violated_while_all_rules_are_on(world: World) -> None:
    result = table.explore_all_on(world)
    assert result.violation is None, result
    assert table.world_row(world, result) in table.written("worlds").splitlines(), "scripts/model --write"


@pytest.mark.slow
@pytest.mark.parametrize("world", WIDE_WORLDS, ids=lambda world: world.name)
def test_nothing_is_violated_within_wider_limits(world: World) -> None:
    result = table.explore_all_on(world)
    assert result.violation is None, result


def _fence(fence: Fence) -> object:
    """Where nothing is found, all states of a world are looked at, as with all rules on."""
    return pytest.param(fence, id=fence.name, marks=pytest.mark.slow if fence.is_covered else ())


@pytest.mark.parametrize("fence", [_fence(fence) for fence in FENCES])
def test_a_rule_that_is_off_is_missed(fence: Fence) -> None:
    result = fence.search()
    assert (result.violation is None) == fence.is_covered, result
    assert table.fence_row(fence, result) in table.written("fences").splitlines(), "scripts/model --write"


def test_the_tables_name_what_there_is() -> None:
    """A world or a switch that is gone leaves no row behind, and each row of the simulator exists."""
    assert table.written("worlds").count("\n") == len(WORLDS) + 2
    assert table.written("fences").count("\n") == len(FENCES) + 2
    assert [fence.row for fence in FENCES if fence.row and fence.row not in MUTATIONS] == []
