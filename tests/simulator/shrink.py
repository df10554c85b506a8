"""Fewer faults that still break the same promise: delta debugging (ddmin; Zeller and Hildebrandt, "Simplifying and
isolating failure-inducing input", 2002) over the positions of a plan's faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass
class Shrunk:
    #: What is left. It fails; the last run that failed was this one.
    kept: tuple[int, ...]
    #: How many subsets were tried.
    tried: int
    #: Whether leaving out any single one makes the failure go away; False where time was up before.
    is_minimal: bool


class _OutOfTime(Exception):
    pass


def shrink(
    positions: Sequence[int], still_fails: Callable[[tuple[int, ...]], bool], is_over: Callable[[], bool]
) -> Shrunk:
    """`positions` are known to fail. `is_over`, asked before each try, ends the search with the best so far."""
    best = Shrunk(tuple(positions), 0, is_minimal=False)

    def fails(subset: tuple[int, ...]) -> bool:
        if is_over():
            raise _OutOfTime
        best.tried += 1
        if still_fails(subset):
            best.kept = subset
            return True
        return False

    try:
        if not best.kept or not fails(()):
            _ddmin(best, fails)
        best.is_minimal = True
    except _OutOfTime:
        pass
    return best


def _ddmin(best: Shrunk, fails: Callable[[tuple[int, ...]], bool]) -> None:
    """Leave out a half, then a quarter, and so on; after a success go on with parts of the same size."""
    parts = 2
    while len(best.kept) > 1:
        kept = best.kept
        parts = min(parts, len(kept))
        bounds = [len(kept) * number // parts for number in range(parts + 1)]
        for start, end in pairwise(bounds):
            if fails(kept[:start] + kept[end:]):
                parts = max(parts - 1, 2)
                break
        else:
            if parts == len(kept):
                return
            parts *= 2
