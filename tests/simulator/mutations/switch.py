"""How one function of the product is replaced for the time of a run, and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tests.simulator.cluster import SimulatedCluster

#: Where a function stands: a class or a module.
Owner = type | ModuleType


@contextmanager
def replaced(owner: Owner, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """`owner.name` is `make(original)`. AssertionError where the product has no such function of its own any more: a
    mutation of something that is gone would break nothing and look as if the rule were needless."""
    original = vars(owner).get(name)
    assert callable(original), f"{owner.__name__}.{name} is gone: this mutation means nothing any more"
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def left_out(owner: Owner, name: str, inside: Owner, function: str) -> Iterator[None]:
    """Calls of `owner.name` do nothing while `inside.function` is at work. AssertionError where one is gone, or where
    `function` was called and never called the other."""
    depth = calls = omitted = 0

    def count(original: Any) -> Any:
        def counting(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth, calls
            depth, calls = depth + 1, calls + 1
            try:
                return original(*args, **kwargs)
            finally:
                depth -= 1

        return counting

    def omit(original: Any) -> Any:
        def omitting(*args: Any, **kwargs: Any) -> Any:
            nonlocal omitted
            if not depth:
                return original(*args, **kwargs)
            omitted += 1
            return None

        return omitting

    with replaced(inside, function, count), replaced(owner, name, omit):
        yield
    assert omitted or not calls, f"{function} does not call {name} any more"


def off(*switches: tuple[Owner, str, Callable[[Any], Any]]) -> Callable[[SimulatedCluster], Any]:
    """`Mutation.switched_off` from replacements: (owner, name, original -> version without the rule)."""

    @contextmanager
    def switched_off(cluster: SimulatedCluster) -> Iterator[None]:
        del cluster
        with _all(list(switches)):
            yield

    return switched_off


def without_call(owner: Owner, name: str, inside: Owner, function: str) -> Callable[[SimulatedCluster], Any]:
    """`Mutation.switched_off`: one call is left out."""

    @contextmanager
    def switched_off(cluster: SimulatedCluster) -> Iterator[None]:
        del cluster
        with left_out(owner, name, inside, function):
            yield

    return switched_off


@contextmanager
def _all(switches: list[tuple[Owner, str, Callable[[Any], Any]]]) -> Iterator[None]:
    if not switches:
        yield
        return
    with replaced(*switches[0]), _all(switches[1:]):
        yield
