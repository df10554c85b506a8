"""A read is answered by a leader that a majority followed after the read came, or by nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

import pytest

from broker.replication.reads import CONFIRM_TIMEOUT_S, FEW, Reads
from broker.replication.replica import Replica
from broker.scheduling.background import Background
from broker.scheduling.ticks import Ticks
from storage.log_types import GroupKey
from tests.broker.world import World, running
from tests.simulator.clock import SimulatedClock
from tests.simulator.loop import SimulatedLoop, new_loop


@dataclass
class Group:
    """What a read looks at in a replica."""

    key: GroupKey
    is_serving: bool = True


@dataclass
class Pings:
    """Rounds by hand: the next ping's number, and the newest that a majority of each group has echoed."""

    next_number: int = 5
    begun: int = 0
    echoed: dict[GroupKey, int] = field(default_factory=dict)
    on_echo: list[Callable[[], None]] = field(default_factory=list)

    def begin_round(self) -> int:
        self.begun += 1
        return self.next_number

    def confirmed(self, replica: Replica, first_number: int) -> bool:
        return self.echoed.get(replica.key, 0) >= first_number


class Asked:
    """Reads over two groups, and their answers."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.pings = Pings()
        background = Background(loop, SimulatedClock(loop).steady_s)
        self.reads = Reads(loop, background, self.pings, Ticks(loop))
        self.a, self.b = (Group(GroupKey(UUID(int=9), partition)) for partition in (0, 1))
        self.answers: list[set[GroupKey]] = []

    def ask(self, *groups: Group) -> None:
        self.reads.confirm([cast(Replica, group) for group in groups], self.answers.append)

    def echo(self, number: int, *groups: Group) -> None:
        self.pings.echoed |= {group.key: number for group in groups}
        self.reads.echo_arrived()


@pytest.fixture
def asked() -> Iterator[Asked]:
    loop = new_loop()
    yield Asked(loop)
    loop.close()


def test_an_echo_of_a_ping_from_before_the_read_confirms_nothing(asked: Asked) -> None:
    asked.echo(4, asked.a)
    asked.ask(asked.a)
    asked.echo(4, asked.a)
    assert asked.answers == []
    asked.echo(5, asked.a)
    assert asked.answers == [{asked.a.key}]
    asked.echo(6, asked.a)
    assert len(asked.answers) == 1, "answered once"


def test_a_read_of_two_groups_waits_for_both(asked: Asked) -> None:
    asked.ask(asked.a, asked.b)
    asked.echo(5, asked.a)
    assert asked.answers == []
    asked.echo(6, asked.b)
    assert asked.answers == [{asked.a.key, asked.b.key}]


def test_a_group_that_stops_leading_is_not_waited_for_and_not_confirmed(asked: Asked) -> None:
    asked.ask(asked.a, asked.b)
    asked.b.is_serving = False
    asked.echo(5, asked.a, asked.b)
    assert asked.answers == [{asked.a.key}]


def test_one_echo_answers_only_the_reads_that_came_before_its_ping(asked: Asked) -> None:
    asked.ask(asked.a)
    asked.pings.next_number = 6
    asked.ask(asked.a, asked.b)
    asked.echo(5, asked.a, asked.b)
    assert asked.answers == [{asked.a.key}]
    asked.echo(6, asked.a, asked.b)
    assert asked.answers[1:] == [{asked.a.key, asked.b.key}]


def test_a_read_that_waits_too_long_is_answered_with_what_was_confirmed(asked: Asked) -> None:
    asked.ask(asked.a, asked.b)
    asked.echo(5, asked.a)
    now = asked.loop.time()
    asked.reads.tick(now + CONFIRM_TIMEOUT_S * 0.9)
    assert asked.answers == []
    asked.reads.tick(now + CONFIRM_TIMEOUT_S)
    assert asked.answers == [{asked.a.key}]
    asked.echo(6, asked.b)
    assert len(asked.answers) == 1, "answered once"


def test_a_read_of_nothing_is_answered_at_once_and_pings_nobody(asked: Asked) -> None:
    asked.ask()
    assert asked.answers == [set()]
    assert asked.pings.begun == 0


def test_an_answer_may_ask_again(asked: Asked) -> None:

    def again(keys: set[GroupKey]) -> None:
        asked.answers.append(keys)
        asked.pings.next_number = 6
        asked.ask(asked.a)

    asked.reads.confirm([cast(Replica, asked.a)], again)
    asked.echo(5, asked.a)
    assert asked.answers == [{asked.a.key}]
    asked.echo(6, asked.a)
    assert len(asked.answers) == 2


def test_a_read_of_many_groups_is_looked_at_in_several_iterations(asked: Asked) -> None:
    looks: list[float] = []
    confirmed = asked.pings.confirmed

    def noted(replica: Replica, first_number: int) -> bool:
        looks.append(asked.loop.time())
        return confirmed(replica, first_number)

    asked.pings.confirmed = noted  # type: ignore[method-assign]
    groups = [Group(GroupKey(UUID(int=9), partition)) for partition in range(20 * FEW)]
    asked.ask(*groups)
    asked.loop.run_for(0.5)
    assert len(looks) == len(groups) and asked.answers == []
    asked.echo(5, *groups[::2])
    asked.echo(5, *groups[1:9:2])  # while they are being looked at
    assert len(looks) == len(groups), "not within the callback of the echo"
    asked.loop.run_for(0.4)
    asked.echo(5, *groups[9::2])
    assert asked.answers == []
    asked.loop.run_until(lambda: bool(asked.answers), 1)
    assert asked.answers == [{group.key for group in groups}]
    asked.echo(6, *groups)
    asked.reads.tick(asked.loop.time() + CONFIRM_TIMEOUT_S)
    asked.loop.run_for(1)
    assert len(asked.answers) == 1, "answered once"


def test_a_read_of_many_groups_that_waits_too_long_is_answered_with_what_was_confirmed(asked: Asked) -> None:
    groups = [Group(GroupKey(UUID(int=9), partition)) for partition in range(20 * FEW)]
    asked.ask(*groups)
    asked.echo(5, *groups[::2])
    asked.loop.run_for(CONFIRM_TIMEOUT_S)
    asked.reads.tick(asked.loop.time())
    assert asked.answers == [{group.key for group in groups[::2]}]


# -- with real nodes ---------------------------------------------------------------------------------------


def _read(world: World, node_id: int) -> list[set[GroupKey]]:
    answers: list[set[GroupKey]] = []
    replica = world.replica(node_id, "foo")
    world.processes[node_id].call(world.nodes[node_id].reads.confirm, [replica], answers.append)
    return answers


def test_a_leader_without_peers_answers_at_once() -> None:
    with running(size=1) as world:
        key = GroupKey(world.create_topic("foo", replication_factor=1).topic_id, 0)
        world.leader("foo")
        assert _read(world, 1) == [{key}]


def test_a_leader_with_peers_answers_after_one_round_trip() -> None:
    with running() as world:
        key = GroupKey(world.create_topic("foo").topic_id, 0)
        answers = _read(world, world.leader("foo"))
        assert answers == []
        begun_s = world.loop.time()
        world.wait(lambda: bool(answers))
        assert answers == [{key}]
        assert world.loop.time() - begun_s < 0.01, "no read waits for the next regular ping"


def test_a_leader_that_is_cut_off_confirms_nothing() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        for other in world.ids:
            world.network.cut(f"n{other}", f"n{leader}")  # it is heard, and hears nobody
        answers = _read(world, leader)
        assert world.replica(leader, "foo").is_serving, "it does not know yet"
        world.wait(lambda: bool(answers))
        assert answers == [set()]
