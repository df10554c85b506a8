"""Each rule that can be switched off is missed by somebody when it is off, and by nobody when it is on."""

from __future__ import annotations

import pytest

from storage.log import Log
from tests.simulator.disk import MemoryDisk
from tests.simulator.mutation_table import search
from tests.simulator.mutations import MUTATIONS
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.switch import left_out, replaced
from tests.simulator.run import simulate

SEEDS_WITH_THE_RULE_ON = 3


def _all() -> list[object]:
    return [
        pytest.param(mutation, id=name, marks=[pytest.mark.slow] if mutation.is_slow else [])
        for name, mutation in MUTATIONS.items()
    ]


@pytest.mark.parametrize("mutation", _all())
def test_a_rule_that_is_off_is_missed(mutation: Mutation) -> None:
    found = search(mutation, 1, mutation.bound)
    assert found.verdict is not None, f"{found.seeds} seeds: {found.messages}"


@pytest.mark.parametrize("mutation", _all())
def test_nothing_is_found_while_the_rule_is_on(mutation: Mutation) -> None:
    for seed in range(1, 1 + SEEDS_WITH_THE_RULE_ON):
        result = simulate(seed, mutation=mutation, is_off=False)
        if result.failure is not None:
            pytest.fail(f"{result.report()}\n{result.failure!r}")


def test_a_switch_for_something_that_is_gone_says_so() -> None:
    with (
        pytest.raises(AssertionError, match=r"Log\.renamed is gone"),
        replaced(Log, "renamed", lambda _: None),
    ):
        pass
    truncate = Log.truncate
    with (
        pytest.raises(AssertionError, match="does not call exists"),
        left_out(MemoryDisk, "exists", Log, "dirty"),
    ):
        log = object.__new__(Log)
        with pytest.raises(AttributeError):
            log.dirty()
    assert Log.truncate is truncate
