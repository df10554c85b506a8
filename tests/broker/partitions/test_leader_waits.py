"""Who waits for leaders is told once, when they are there or the time is over."""

from __future__ import annotations

from uuid import UUID

from broker.partitions.leader_waits import LeaderWaits
from broker.partitions.new_topics import HIDDEN_S
from broker.scheduling.background import Background
from broker.scheduling.ticks import Ticks
from storage.log_types import GroupKey
from tests.simulator.loop import new_loop

A0, A1, B0 = GroupKey(UUID(int=1), 0), GroupKey(UUID(int=1), 1), GroupKey(UUID(int=2), 0)


class Waiting:
    """Waits, the leaders that they look at, and whom was told what."""

    def __init__(self) -> None:
        self.leaders: dict[GroupKey, int] = {}
        loop = new_loop()
        background = Background(loop, lambda: 0.0)
        self.waits = LeaderWaits(self._leader_of, background, Ticks(loop))
        self.told: list[tuple[str, frozenset[GroupKey]]] = []

    def _leader_of(self, topic_id: UUID, partition: int) -> tuple[int, int]:
        return self.leaders.get(GroupKey(topic_id, partition), -1), 0

    def wait(self, name: str, wanted: dict[GroupKey, int | None], deadline: float) -> None:
        self.waits.wait_for_leaders(wanted, deadline, lambda missing: self.told.append((name, missing)))

    def led(self, key: GroupKey, node_id: int) -> None:
        self.leaders[key] = node_id
        self.waits.leaders_changed()


def test_who_waits_for_nothing_is_told_at_once() -> None:
    waiting = Waiting()
    waiting.led(A0, 1)
    waiting.wait("nothing", {}, 5.0)
    waiting.wait("there", {A0: None}, 5.0)
    assert waiting.told == [("nothing", frozenset()), ("there", frozenset())]


def test_told_with_the_last_leader_or_at_the_deadline_what_is_missing() -> None:
    waiting = Waiting()
    waiting.wait("first", {A0: None, A1: None}, 5.0)
    waiting.wait("both", {A0: None, A1: None, B0: None}, 1.0)
    waiting.led(A0, 2)
    waiting.waits.tick(0.9)
    assert waiting.told == []
    waiting.waits.tick(1.0)
    assert waiting.told == [("both", frozenset({A1, B0}))]
    waiting.led(A1, 3)
    waiting.waits.tick(9.0)
    assert waiting.told[1:] == [("first", frozenset())]


def test_another_leader_than_the_wanted_one_is_none() -> None:
    waiting = Waiting()
    waiting.wait("elected", {A0: 1, A1: 2}, 5.0)
    waiting.led(A0, 2)
    waiting.led(A1, 2)
    assert waiting.told == []
    waiting.led(A0, 1)
    assert waiting.told == [("elected", frozenset())]


def test_what_is_new_is_waited_for_as_long_as_the_client_waits_and_not_for_ever() -> None:
    waiting = Waiting()
    told: list[str] = []
    waiting.waits.wait_for_new_partitions([A0], 10.0, 0, lambda: told.append("does not wait"))
    assert told == ["does not wait"]
    waiting.waits.wait_for_new_partitions([A0], 10.0, 1_000, lambda: told.append("1 s"))
    waiting.waits.wait_for_new_partitions([A0], 10.0, 60_000, lambda: told.append("long"))
    waiting.waits.tick(10.9)
    assert told[1:] == []
    waiting.waits.tick(11.0)
    assert told[1:] == ["1 s"]
    waiting.waits.tick(10.0 + HIDDEN_S)
    assert told[1:] == ["1 s", "long"]


def test_a_leader_that_was_heard_of_too_early_is_seen_by_the_tick() -> None:
    waiting = Waiting()
    waiting.wait("early", {A0: None}, 5.0)
    waiting.leaders[A0] = 1  # its node is alive by now: nobody tells of that
    waiting.waits.tick(0.1)
    assert waiting.told == [("early", frozenset())]
