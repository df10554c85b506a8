"""`scripts/simulate`: what it says of a failure is true, and its exit code is."""

from __future__ import annotations

import random
import re
import shlex
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from tests.simulator.campaign import run_seed, shrink_failure
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.faults import FAULTS
from tests.simulator.plan import plan_of
from tests.simulator.run import Variant
from tests.simulator.shrink import shrink

ROOT = Path(__file__).parents[2]
MUTATION = "flush-before-acknowledgement"


def _simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What scripts/simulate starts, without the making of its virtual environment."""
    command = [sys.executable, "-m", "tests.simulator", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def _failing() -> int:
    """A seed that fails with the mutation. There is one among the first few, whatever the plans are."""
    return next(seed for seed in range(1, 50) if run_seed(seed, Variant(mutation=MUTATION)).verdict)


def _line_after(text: str, start: str) -> str:
    return next(line for line in reversed(text.splitlines()) if line.startswith(start)).removeprefix(start)


# -- the shrinker --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("culprits", [(), (0,), (39,), (3, 17), (0, 1, 2, 3), tuple(range(40))])
def test_shrinking_leaves_exactly_what_the_failure_needs(culprits: tuple[int, ...]) -> None:
    shrunk = shrink(range(40), lambda kept: set(culprits) <= set(kept), lambda: False)
    assert shrunk.kept == culprits
    assert shrunk.is_minimal


def test_shrinking_needs_few_runs_where_few_faults_matter() -> None:
    assert shrink(range(40), lambda kept: 17 in kept, lambda: False).tried < 20


def test_what_is_left_when_time_is_up_still_fails() -> None:
    tries = 0

    def is_over() -> bool:
        nonlocal tries
        tries += 1
        return tries > 3

    shrunk = shrink(range(40), lambda kept: 17 in kept, is_over)
    assert 17 in shrunk.kept
    assert 1 < len(shrunk.kept) < 40
    assert not shrunk.is_minimal


def test_a_plan_is_shrunk_to_what_breaks_the_same_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug that needs two faults of a kind. Another failure than the one that is shrunk does not count."""
    seen: list[SimulatedCluster] = []

    def second_one_breaks(cluster: SimulatedCluster, rng: random.Random) -> None:
        seen.append(cluster)
        assert seen.count(cluster) < 2, "planted"

    def breaks_alone(cluster: SimulatedCluster, rng: random.Random) -> None:
        assert cluster in seen, "something else"

    monkeypatch.setitem(FAULTS, "planted", second_one_breaks)
    monkeypatch.setitem(FAULTS, "something else", breaks_alone)
    variant = Variant(mix=("reset", "planted", "something else"))
    outcome = next(
        outcome
        for seed in count(1)
        if len((outcome := run_seed(seed, variant)).faults) > 4
        and "AssertionError: planted" in outcome.report
    )
    shrunk, smaller = shrink_failure(outcome, variant, limit_s=30.0)
    names = [plan_of(outcome.seed, mix=variant.mix).faults[position].name for position in shrunk.kept]
    assert (names, shrunk.is_minimal) == (["planted", "planted"], True)
    assert "AssertionError: planted" in run_seed(outcome.seed, smaller).report


# -- the command line ----------------------------------------------------------------------------------------


def test_a_passing_range_is_a_line_each_a_sum_and_exit_code_0() -> None:
    done = _simulate("--seeds", "2001..2003", "--jobs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"commit \S+, seeds 2001\.\.2003", lines[0])
    assert [line.split(":")[0] for line in lines[1:4]] == ["seed 2001", "seed 2002", "seed 2003"]
    assert lines[4].startswith("3 seeds, 0 failed; ")


def test_the_command_that_a_failure_prints_repeats_it() -> None:
    failed = _simulate("--seed", str(_failing()), "--mutate", MUTATION)
    assert failed.returncode == 1, failed.stdout + failed.stderr
    violated, digest = _line_after(failed.stdout, "violated: "), _line_after(failed.stdout, "digest: ")
    commands = [line for line in failed.stdout.splitlines() if line.startswith("repeat it: ")]
    assert commands
    for command in commands:
        program, *arguments = shlex.split(command.removeprefix("repeat it: "))
        assert program == "scripts/simulate"
        again = _simulate(*arguments, "--shrink-s", "0")
        assert again.returncode == 1
        assert _line_after(again.stdout, "violated: ") == violated
        if command == commands[0]:
            assert _line_after(again.stdout, "digest: ") == digest


def test_fresh_seeds_are_others_each_time() -> None:
    ranges = {_simulate("--fresh", "1", "--quiet").stdout.splitlines()[0] for _ in range(2)}
    assert len(ranges) == 2


@pytest.mark.parametrize(("seeds", "code"), [(["--forever"], 0), (["--seeds", "2001..99999"], 2)])
def test_ctrl_c_ends_with_the_sum(seeds: list[str], code: int) -> None:
    """To end what has no end is no failure; to run less than was asked for is no success."""
    command = [sys.executable, "-m", "tests.simulator", *seeds, "--jobs", "2", "--shrink-s", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("seed "):
            pass
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    found = re.search(r"^interrupted\n\d+ seeds, (\d+) failed; ", rest, re.MULTILINE)
    assert found, rest
    assert process.returncode == (1 if int(found[1]) else code)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--seeds", "3..1"],
        ["--seeds", "1..9", "--keep", "0"],
        ["--seed", "1", "--mix", "rain"],
        ["--seed", "1", "--mutate", "everything"],
    ],
)
def test_what_makes_no_sense_is_refused_with_exit_code_2(arguments: list[str]) -> None:
    assert _simulate(*arguments).returncode == 2
