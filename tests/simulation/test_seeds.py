"""Random worlds: a slice of the seeds that `scripts/simulate` runs by the thousand."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.simulator.faults import FAULTS
from tests.simulator.plan import plan_of
from tests.simulator.run import simulate


@pytest.mark.parametrize("seed", range(2001, 2026))
def test_a_seed_keeps_every_promise_and_recovers(seed: int) -> None:
    result = simulate(seed)
    if result.failure is not None:
        pytest.fail(result.report())
    assert result.acknowledged


def _seeds_with_every_kind_of_fault() -> list[int]:
    """Few seeds from 1 on: each has a kind of fault that those before it have not."""
    seeds: list[int] = []
    missing = set(FAULTS)
    for seed in count(1):
        if not missing:
            break
        kinds = {fault.name for fault in plan_of(seed).faults}
        if kinds & missing:
            seeds.append(seed)
            missing -= kinds
    return seeds


def _digests(seeds: list[int], hash_seed: int) -> list[str]:
    code = (
        "from tests.simulator.run import simulate\n"
        f"for seed in {seeds}: result = simulate(seed); print(seed, result.digest, result.events)"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.splitlines()


def test_the_same_seed_is_the_same_cluster_whatever_the_hash_seed() -> None:
    seeds = _seeds_with_every_kind_of_fault()
    first = _digests(seeds, 1)
    assert first == _digests(seeds, 4242)
    assert len(first) == len(seeds)
    assert all(int(line.split()[2]) > 1000 for line in first), "worlds in which something happens"
