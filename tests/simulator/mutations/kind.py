"""What a mutation is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.simulator.cluster import SimulatedCluster


@dataclass(frozen=True)
class Mutation:
    """One rule of replication.md, and how to break it."""

    name: str
    #: What the rule says, and where.
    rule: str
    #: Entered before the nodes start, left when the run is over; the product is itself again then.
    switched_off: Callable[[SimulatedCluster], AbstractContextManager[None]]
    #: The kinds of fault that the rule is there for; the others would only cost time.
    mix: tuple[str, ...]
