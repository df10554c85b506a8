"""Each rule that can be switched off is missed by somebody when it is off, and by nobody when it is on."""

from __future__ import annotations

import pytest

from storage.log import Log
from tests.simulator.disk import MemoryDisk
from tests.simulator.mutation_table import run_seed, search
from tests.simulator.mutations import MUTATIONS
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.switch import left_out, replaced

SEEDS_WITH_THE_RULE_ON = 1


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
        verdict, _ = run_seed(mutation, seed, is_off=False)
        assert verdict is None, f"seed {seed}: {verdict}: {verdict.message}"


def test_a_switch_for_something_that_is_gone_says_so() -> None:
    with (
        pytest.raises(AssertionError, match=r"Log\.renamed is gone"),
        replaced(Log, "renamed", lambda _: None),
    ):
        pass
    with (
        pytest.raises(AssertionError, match="dirty does not call exists"),
        left_out(MemoryDisk, "exists", Log, "dirty"),
    ):
        pass


def test_everything_is_put_back() -> None:
    truncate = Log.truncate
    with pytest.raises(ZeroDivisionError), replaced(Log, "truncate", lambda _: lambda log: None):
        assert Log.truncate is not truncate
        raise ZeroDivisionError
    assert Log.truncate is truncate
