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

from storage.segment_files import DELETED_SUFFIX
from storage.segment_swap import COMPACTED_NAME, COMPACTING_NAME
from tests.storage.kill_points.judge import Found, judge
from tests.storage.kill_points.prepared_log import Prepared
from tests.storage.kill_points.strace import KilledElsewhereError, Point, run_killed, traced_points

_VICTIM = "tests.storage.kill_points.victim"
_TRACE_NAME = "trace"
START_NAMES = (
    "before a swap counts",
    "before anything of it is done",
    "when old segments are set aside",
    "when some of its files are moved",
)


class Outcome(NamedTuple):
    """What one death has left."""

    point: Point
    found: Found | None
    failure: str = ""


class Victim:
    """A process that is killed while it works on a copy of a folder."""

    def __init__(self, work: str, template: Path, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._work = work
        self._template = template
        self._folder = folder
        #: What it leaves if nobody kills it.
        self.whole = folder / f"{work}-whole"
        self.points = self._trace(self.whole)

    def _trace(self, copy: Path) -> list[Point]:
        shutil.copytree(self._template, copy)
        return traced_points(_VICTIM, (self._work, str(copy)), self._folder / _TRACE_NAME)

    def killed_at(self, position: int, copy: Path) -> Path:
        """Returns what it leaves. Raises KilledElsewhereError."""
        try:
            self._kill(self.points[position], copy)
        except KilledElsewhereError:
            # The interpreter looks for modules before the work begins. Another program may have changed what it finds.
            shutil.rmtree(copy)
            self.points = self._trace(copy)
            shutil.rmtree(copy)
            self._kill(self.points[position], copy)
        return copy

    def _kill(self, point: Point, copy: Path) -> None:
        shutil.copytree(self._template, copy)
        run_killed(_VICTIM, (self._work, str(copy)), self._folder / _TRACE_NAME, point)


class PassCampaign:
    """The pass over a prepared log, killed."""

    def __init__(self, prepared: Prepared, folder: Path) -> None:
        self._prepared = prepared
        self._folder = folder
        self.victim = Victim("pass", prepared.folder, folder)
        self.points: Sequence[Point] = self.victim.points
        #: From here on, each swap counts.
        self.swap_positions = [point.position for point in self.points if _makes_a_swap_count(point)]
        assert len(self.swap_positions) == len(prepared.states) - 1
        self.last_found = judge(self.victim.whole, prepared)

    def run(self, points: Iterable[Point]) -> Iterator[Outcome]:
        for point in points:
            dead = self.victim.killed_at(point.position, self._folder / "dead")
            yield _outcome(point, dead, self._prepared, self.swaps_before(point))

    def swaps_before(self, point: Point) -> int:
        return sum(position < point.position for position in self.swap_positions)


class StartCampaign:
    """A node that starts after a death in the pass, killed."""

    def __init__(self, of_pass: PassCampaign, prepared: Prepared, folder: Path, death: Point) -> None:
        self._prepared = prepared
        self._folder = folder
        self._swap_count = of_pass.swaps_before(death)
        dead = of_pass.victim.killed_at(death.position, folder / f"died-at-{death.position}")
        self._victim = Victim("start", dead, dead.with_name(f"{dead.name}-starts"))
        self.points: Sequence[Point] = self._victim.points

    def run(self, points: Iterable[Point]) -> Iterator[Outcome]:
        for point in points:
            dead = self._victim.killed_at(point.position, self._folder / "dead")
            yield _outcome(point, dead, self._prepared, self._swap_count)


def deaths_around_a_merge(campaign: PassCampaign, prepared: Prepared) -> Sequence[Point]:
    """One for each of START_NAMES, around the swap that takes the place of the most segments."""
    counts = [len(state.bases) for state in prepared.states]
    merged = [old - new for old, new in pairwise(counts)]
    number = merged.index(max(merged))
    position = campaign.swap_positions[number]
    renames = [x for x in campaign.points[position + 1 :] if x.name.startswith("rename")]
    aside = [x.position for x in renames if DELETED_SUFFIX in x.arguments]
    moved = [x.position for x in renames if f"{COMPACTED_NAME}/" in x.arguments]
    return [campaign.points[at] for at in (position, position + 1, aside[1], moved[2])]


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
