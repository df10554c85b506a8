"""What a mutation is."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from tests.simulator.cluster import SimulatedCluster
from tests.simulator.mutations.stage import Stage


def anything_goes(cluster: SimulatedCluster, rng: random.Random) -> AbstractContextManager[None]:
    """No conditions beyond the planned faults."""
    return nullcontext()


@dataclass(frozen=True)
class Mutation:
    """One rule, how to break it, and the conditions under which it matters."""

    name: str
    #: What the rule says, and where.
    rule: str
    #: Entered before the nodes start, left when the run is over; the product is itself again then. It breaks this
    #: rule and no other.
    switched_off: Callable[[SimulatedCluster], AbstractContextManager[None]]
    #: The kinds of fault that the rule is there for; the others would only cost time. None: what each seed chooses, as
    #: without a mutation.
    mix: tuple[str, ...] | None = ()
    #: What makes the moment likely in which the rule matters: slow flushes, a nemesis that picks its moments. It holds
    #: with the rule on as well, and then nothing may be found.
    conditions: Callable[[SimulatedCluster, random.Random], AbstractContextManager[None]] = anything_goes
    #: Within so many seeds, wherever one begins, a violation is found.
    bound: int = 60
    #: Too slow for every run of the tests: the search takes more than about 5 s of CPU.
    is_slow: bool = False
    #: A seed is the life of one replica's log on its disk (tests/storage/test_log_through_power_cuts.py), not of a
    #: cluster: there every disk operation may be the last one, and truncations and rows of the same term are frequent.
    of_one_log: bool = False
    #: What the table says besides.
    note: str = ""
    #: Where faults at random moments do not meet the rule: a schedule that does, in place of the plan's faults and
    #: clients. Its lengths, victims and numbers are the seed's; it raises AssertionError where a property breaks that
    #: no invariant knows.
    story: Callable[[Stage], None] | None = None
    #: Clients are members of groups, too. Elsewhere they are not, which would only cost time. None: the seed decides.
    has_groups: bool | None = False
    #: Clients write in transactions, too. As `has_groups`.
    has_transactions: bool | None = False
