"""`varve demo divergence` with its own brokers: the four divergences of coordinated-compaction.md, section 6. What a
replica that was away still needs, the others keep; and without coordination they do not, so the demonstration shows
something.

The variants that need no more than processes are played here. Random faults meet the others in the simulator, and
schedules of tests/simulator/mutations play them on purpose:

- B is isolated: every seed with partitions; `a_removal_is_appended_and_lost` (removal_bounds_stories.py).
- B is a throttled learner: `a_member_is_added_and_not_cleaned_yet`.
- The bounds of a stale leader arrive late: tests/simulation/test_scenarios_compaction.py,
  `test_messages_of_old_leaders_come_again_and_in_any_order`.
- A change of members is lost before it is committed: `a_removal_is_appended_and_lost`,
  `an_addition_is_appended_and_not_committed`, `a_leader_starts_again_with_a_removal_that_is_not_committed`.
- An idle follower has missed that the bounds rose: `a_follower_misses_that_the_bounds_rise`, `a_report_is_lost`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.cli.divergence.variants import VARIANTS
from tests.cli.conftest import environment

#: What the replica that was away answers when nobody has waited for it.
DAMAGE = {1: "k=V", 2: "poison and good", 3: "g=OLD", 4: "stops at 0 of"}
RIGHT = {1: "no k", 2: "good", 3: "no g", 4: "reads to the end"}
AWAY = "2"
LIMIT_S = 400.0


class Demo:
    """One run of the command, with its folder inside of that of the test."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "broker.cli", "demo", "divergence", "--format", "json", *options],
            cwd=folder,
            env={**environment(), "TMPDIR": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self) -> dict[str, Any]:
        said, talk = self.process.communicate(timeout=LIMIT_S)
        assert said, talk
        report: dict[str, Any] = json.loads(said)
        assert self.process.returncode == (0 if report["as_promised"] else 1)
        return report

    def processes_left(self) -> list[str]:
        """Command lines of processes that know the folder."""
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines.append(path.read_text(encoding="utf-8", errors="replace"))
            except OSError:
                continue
        return [line for line in lines if str(self._folder) in line]

    def close(self) -> None:
        """A test has failed meanwhile, perhaps."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=LIMIT_S)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Any]:
    demos: list[Demo] = []

    def start(*options: str) -> Demo:
        demos.append(Demo(tmp_path, *options))
        return demos[-1]

    yield start
    for demo in demos:
        demo.close()


def answers(report: dict[str, Any], *, coordinated: bool) -> dict[int, dict[str, str]]:
    """Scenario -> node -> what it says."""
    return {
        outcome["scenario"]: {node: answer["text"] for node, answer in outcome["answers"].items()}
        for outcome in report["outcomes"]
        if outcome["coordinated"] is coordinated
    }


def check(report: dict[str, Any]) -> None:
    assert report["as_promised"], report
    right = {number: dict.fromkeys("123", text) for number, text in RIGHT.items()}
    assert answers(report, coordinated=True) == right
    off = answers(report, coordinated=False)
    for number, text in DAMAGE.items():
        assert off[number].pop(AWAY).startswith(text)
        assert off[number] == {"1": RIGHT[number], "3": RIGHT[number]}
    assert [outcome["damaged"] for outcome in report["outcomes"]] == [True] * 4 + [False] * 4


def test_each_scenario_damages_without_coordination_and_none_with_it(play: Any, tmp_path: Path) -> None:
    demo = play("--keep")
    check(demo.result())
    assert demo.processes_left() == []
    (folder,) = tmp_path.glob("varve-demo-*")
    logs = {mode: [log.read_text() for log in folder.glob(f"{mode}/node-*/log")] for mode in ("off", "on")}
    assert [len(of) for of in logs.values()] == [3, 3]
    assert all("COMPACTION IS NOT COORDINATED" in log.splitlines()[0] for log in logs["off"])
    assert not any("NOT COORDINATED" in log for log in logs["on"])
    assert not any("Traceback" in log for of in logs.values() for log in of)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(play: Any, tmp_path: Path, number: signal.Signals) -> None:
    demo = play("--without-coordination", "--scenario", "1")
    assert demo.process.stderr is not None
    for line in demo.process.stderr:
        if "goes away" in line:
            break
    assert demo.processes_left()
    demo.process.send_signal(number)
    assert demo.process.wait(LIMIT_S) == 130
    assert demo.processes_left() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("run", [1, 2, 3])
def test_three_times_in_a_row(play: Any, run: int) -> None:
    del run
    check(play().result())


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant(play: Any, variant: str) -> None:
    report = play("--variant", variant).result()
    assert report["as_promised"], report
    assert len(report["outcomes"]) == 8


def consumed(commands: list[str], folder: Path) -> list[str]:
    """What the first command prints, a record in each line."""
    consume = next(command.split()[1:] for command in commands if " consume " in command)
    done = subprocess.run(
        [sys.executable, "-m", "broker.cli", *consume],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_steps_name_commands_that_work(play: Any, tmp_path: Path) -> None:
    demo = play("--step", "--without-coordination", "--scenario", "1")
    seen = []
    commands: list[str] = []
    for line in demo.process.stderr:
        if line.startswith("  varve "):
            commands.append(line)
        if len(commands) == 2:  # the prompt behind them has no end of line
            seen.append("k=V" in consumed(commands, tmp_path))
            commands.clear()
            demo.process.stdin.write("\n")
            demo.process.stdin.flush()
    # Written; deleted, and still there below the deletion; compacted; B is back; B leads.
    assert seen == [True, True, False, False, True]
    assert demo.result()["as_promised"]
