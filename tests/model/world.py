"""What a search is about: where it begins, what may happen there, and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.model.rules import Rules
from tests.model.state import Configuration, State, Step

#: What a kind of step leads to, each with its step.
Steps = Iterator[tuple[Step, State]]


@dataclass(frozen=True)
class World:
    """Where a search begins, what may happen there, and how often."""

    name: str
    about: str
    founding: Configuration
    starts: tuple[State, ...]
    actions: tuple[Action, ...]
    max_term: int = 2
    #: So many configurations at most, the founding one included.
    max_configurations: int = 1
    max_incarnation: int = 0
    #: Nodes that may be elected. Empty: all.
    electable: tuple[int, ...] = ()
    #: Nodes that may be added and removed.
    movable: tuple[int, ...] = ()
    #: Nodes that make no pass.
    never_cleaned: tuple[int, ...] = ()
    #: A pass is durable some time after it is over.
    has_page_cache: bool = False
    #: Whether it is looked at, in every state, what becomes of the group if nothing fails any more (`stagnation`).
    is_live: bool = False


Action = Callable[[World, Rules, State], Steps]
