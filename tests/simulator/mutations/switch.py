"""How one function of the product is replaced for the time of a run, and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
    assert callable(original) or isinstance(original, property), (
        f"{owner.__name__}.{name} is gone: this mutation means nothing any more"
    )
    replacement = make(original)
    if not isinstance(replacement, property):
        # Several may stand on each other: `left_out` looks for the product's own.
        replacement.replaces = original
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def left_out(owner: Owner, name: str, inside: Owner, function: str) -> Iterator[None]:
    """Calls of `owner.name` do nothing while `inside.function` is at work. AssertionError where one is gone, or where
    `function` names the other no more."""
    depth = 0

    def count(original: Any) -> Any:
        def counting(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                depth -= 1

        return counting

    def omit(original: Any) -> Any:
        def omitting(*args: Any, **kwargs: Any) -> Any:
            return None if depth else original(*args, **kwargs)

        return omitting

    body: Any = vars(inside).get(function)
    while hasattr(body, "replaces"):
        body = body.replaces
    assert body is None or name in body.__code__.co_names, f"{function} does not call {name} any more"
    with replaced(inside, function, count), replaced(owner, name, omit):
        yield


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


def all_of(*switches: Callable[[SimulatedCluster], Any]) -> Callable[[SimulatedCluster], Any]:
    """`Mutation.switched_off`: a rule that stands in several places."""

    @contextmanager
    def switched_off(cluster: SimulatedCluster) -> Iterator[None]:
        with ExitStack() as stack:
            for switch in switches:
                stack.enter_context(switch(cluster))
            yield

    return switched_off


@contextmanager
def _all(switches: list[tuple[Owner, str, Callable[[Any], Any]]]) -> Iterator[None]:
    if not switches:
        yield
        return
    with replaced(*switches[0]), _all(switches[1:]):
        yield
