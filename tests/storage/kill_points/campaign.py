"""A pass is killed at each of its system calls, and so is the start of the node after some of these deaths.

SIGKILL takes a process, not the page cache: what a loss of power leaves is tested with a disk in memory
(tests/storage/test_log_cleaning.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from storage.segment_swap import COMPACTED_NAME, COMPACTING_NAME
from tests.storage.kill_points.judge import Found, judge
from tests.storage.kill_points.prepared_log import Prepared
from tests.storage.kill_points.strace import Point, run_killed, traced_points

_VICTIM = "tests.storage.kill_points.victim"
_TRACE_NAME = "trace"
#: Before the swap counts; when it does and nothing of it is done; half-way.
START_NAMES = ("before a swap counts", "at its beginning", "in the middle of it")


class Outcome(NamedTuple):
    """What one death has left."""

    point: Point
    found: Found | None
    failure: str = ""


class PassCampaign:
    """The pass over a prepared log, killed."""

    def __init__(self, prepared: Prepared, folder: Path) -> None:
        self._prepared = prepared
        self._folder = folder
        whole = folder / "whole"
        shutil.copytree(prepared.folder, whole)
        self.points = traced_points(_VICTIM, ("pass", str(whole)), folder / _TRACE_NAME)
        #: From here on, each swap counts.
        self.swap_positions = [point.position for point in self.points if _makes_a_swap_count(point)]
        assert len(self.swap_positions) == len(prepared.states) - 1
        self.last_found = judge(whole, prepared)
        shutil.rmtree(whole)

    def run(self, points: Iterable[Point]) -> Iterator[Outcome]:
        for point in points:
            dead = self.killed_at(point, self._folder / "dead")
            yield _outcome(point, dead, self._prepared, self.swaps_before(point))

    def swaps_before(self, point: Point) -> int:
        return sum(position < point.position for position in self.swap_positions)

    def killed_at(self, point: Point, folder: Path) -> Path:
        shutil.copytree(self._prepared.folder, folder)
        run_killed(_VICTIM, ("pass", str(folder)), folder / _TRACE_NAME, point)
        (folder / _TRACE_NAME).unlink()
        return folder


class StartCampaign:
    """A node that starts after a death in the pass, killed."""

    def __init__(self, of_pass: PassCampaign, prepared: Prepared, folder: Path, death: Point) -> None:
        self._prepared = prepared
        self._folder = folder
        self._swap_count = of_pass.swaps_before(death)
        self._dead = of_pass.killed_at(death, folder / f"died-at-{death.position}")
        started = folder / "started"
        shutil.copytree(self._dead, started)
        self.points = traced_points(_VICTIM, ("start", str(started)), folder / _TRACE_NAME)
        shutil.rmtree(started)

    def run(self, points: Iterable[Point]) -> Iterator[Outcome]:
        for point in points:
            dead = self._folder / "dead"
            shutil.copytree(self._dead, dead)
            run_killed(_VICTIM, ("start", str(dead)), self._folder / _TRACE_NAME, point)
            yield _outcome(point, dead, self._prepared, self._swap_count)


def deaths_around_a_merge(campaign: PassCampaign, prepared: Prepared) -> Sequence[Point]:
    """One for each of START_NAMES, around the swap that takes the place of the most segments."""
    counts = [len(state.bases) for state in prepared.states]
    merged = [old - new for old, new in pairwise(counts)]
    number = merged.index(max(merged))
    position = campaign.swap_positions[number]
    removed = next(
        x for x in campaign.points[position:] if x.name == "rmdir" and COMPACTED_NAME in x.arguments
    )
    middle = (position + removed.position) // 2
    return [campaign.points[at] for at in (position, position + 1, middle)]


def _outcome(point: Point, dead: Path, prepared: Prepared, swap_count: int) -> Outcome:
    try:
        found = judge(dead, prepared)
        assert found.swapped_count == swap_count, f"{found.swapped_count} swaps count, not {swap_count}"
        return Outcome(point, found)
    except Exception as error:
        # Whatever it is: a log that cannot be opened is what this looks for.
        return Outcome(point, None, f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(dead)


def _makes_a_swap_count(point: Point) -> bool:
    names = COMPACTING_NAME, COMPACTED_NAME
    return point.name.startswith("rename") and all(f'{name}"' in point.arguments for name in names)
