"""Counterexamples of the model are damage in the simulator, too: the same steps, with the rule off and on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.fences import FENCES, Fence
from tests.model.replay import PLAYABLE, story_of
from tests.model.state import Step
from tests.simulator.mutation_table import run_seed
from tests.simulator.mutations import MUTATIONS

#: Their traces end with a divergence, and all of their steps are orders that a node can be given.
PLAYED = (
    "guard-below-bound",
    "silent-member-blocks",
    "begun-under-its-row",
    "begun-without-bound",
    "copy-before-vote",
)


def _fences() -> list[Fence]:
    return [fence for fence in FENCES if fence.name in PLAYED]


@pytest.mark.parametrize("fence", _fences(), ids=lambda fence: fence.name)
def test_a_counterexample_does_damage_in_the_simulator_only_while_the_rule_is_off(fence: Fence) -> None:
    assert fence.world in PLAYABLE
    result = fence.search()
    refused: list[Step] = []
    played = replace(MUTATIONS[fence.row], story=story_of(fence, result, refused), mix=())
    verdict, _ = run_seed(played, 1, is_off=True)
    assert verdict is not None and verdict.counts, verdict
    assert refused == []
    verdict, _ = run_seed(played, 1, is_off=False)
    assert verdict is None, f"{verdict}: {verdict.message}"
    assert refused, "the rule prevents none of the steps"
