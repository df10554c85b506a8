"""Breadth-first search over all states of a world. What is found first is a shortest counterexample."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tests.model.properties import StateProperty, falling_bound
from tests.model.rules import Rules
from tests.model.state import State, Step
from tests.model.world import World

Trace = tuple[tuple[Step, State], ...]
_Parents = dict[State, tuple[State, Step] | None]


class Result(NamedTuple):
    #: States that were reached.
    states: int
    #: Steps to the one that is furthest away.
    depth: int
    #: What was violated. None: nothing.
    violation: str | None = None
    start: State | None = None
    #: Each step from there to the violation, and the state after it.
    trace: Trace = ()


def explore(
    world: World, rules: Rules, properties: Sequence[StateProperty] = (), *, may_fall: bool = True
) -> Result:
    """All states of the world, or as many as it takes until one violates a property. `may_fall`: unless False, nobody
    looks whether a step lowers a bound."""
    with _without_garbage_collection():
        return _explore(world, rules, properties, may_fall=may_fall)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """States are tuples without cycles. To look through all of them now and then would take more than half of the
    time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _explore(world: World, rules: Rules, properties: Sequence[StateProperty], *, may_fall: bool) -> Result:
    parents: _Parents = dict.fromkeys(world.starts)
    frontier = list(world.starts)
    depth = 0
    while frontier:
        for state in frontier:
            for violated in properties:
                violation = violated(world, rules, state)
                if violation is not None:
                    return Result(len(parents), depth, violation, *_way_to(parents, state))
        reached: list[State] = []
        for state in frontier:
            for action in world.actions:
                for step, after in action(world, rules, state):
                    if not may_fall and (violation := falling_bound(state, after)) is not None:
                        start, trace = _way_to(parents, state)
                        return Result(len(parents), depth + 1, violation, start, (*trace, (step, after)))
                    if after not in parents:
                        parents[after] = (state, step)
                        reached.append(after)
        frontier = reached
        depth += bool(frontier)
    return Result(len(parents), depth)


def _way_to(parents: _Parents, state: State) -> tuple[State, Trace]:
    way: list[tuple[Step, State]] = []
    while (came := parents[state]) is not None:
        before, step = came
        way.append((step, state))
        state = before
    return state, tuple(reversed(way))
