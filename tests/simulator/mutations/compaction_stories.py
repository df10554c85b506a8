"""Schedules in which the fences of coordinated compaction matter, and that random faults hardly ever meet
(coordinated-compaction.md, section 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from storage.log import Log
from tests.simulator.mutations.compacted_topic import CompactedTopic
from tests.simulator.mutations.stage import Stage
from tests.simulator.mutations.switch import replaced


def a_removed_member_comes_back_with_its_log(stage: Stage) -> None:
    """B is away while a key is deleted. A and C are cleaned, B is removed, the bounds rise, the tombstone goes. B is
    added again, and its log still has the value."""
    topic = CompactedTopic(stage)
    topic.put(b"value")
    stage.everybody_has_all()
    b = stage.followers()[0]
    _go_away(stage, b)
    tombstone = topic.put(None)
    stay = [node_id for node_id in (1, 2, 3) if node_id != b]
    topic.wait_cleaned(*stay, above=tombstone)
    topic.reassign(*stay)
    topic.wait_gone(tombstone, *stay)
    topic.begin_reassigning(*stay, b)
    stage.run_for(stage.rng.uniform(0, 1))
    stage.start(b)
    is_voter = stage.waited(lambda: topic.voters() == [1, 2, 3], 10.0)
    assert is_voter, "who was added again never votes"


def _go_away(stage: Stage, node_id: int) -> None:
    """Killed, or without power."""
    if stage.rng.random() < 0.5:
        stage.cluster.kill(node_id)
    else:
        stage.cluster.cut_power(node_id)


def machines_lose_power_while_segments_are_taken_in_place(stage: Stage) -> None:
    """Each between any two operations of its disk. Whatever is left there is the log as it was, or as it was to be."""
    topic = CompactedTopic(stage)
    for _ in range(4):
        for number in range(stage.rng.randint(3, 6)):
            topic.put(b"%0*d" % (stage.rng.randint(1, 600), number), b"%d" % (number % 2))
        victim = stage.rng.choice((1, 2, 3))
        with _death_in_a_swap(stage, topic, victim) as dead:
            while not dead:
                topic.put(b"more")
                stage.run_for(stage.rng.uniform(0, 0.3))
        last = topic.put(b"after")
        stage.cluster.start(victim)
        is_cleaned = stage.waited(lambda last=last: topic.is_cleaned(1, 2, 3, above=last), 10.0)  # type: ignore[misc]
        assert is_cleaned, "who comes back is not compacted"


@contextmanager
def _death_in_a_swap(stage: Stage, topic: CompactedTopic, victim: int) -> Iterator[list[int]]:
    """Yields who is dead."""
    disk = stage.cluster.disks[victim]
    dead: list[int] = []

    def death() -> None:
        stage.cluster.cut_power(victim)
        dead.append(victim)

    def dies(swap: Callable[..., None]) -> Any:
        def swapping(log: Log, *args: object) -> None:
            if log.disk is disk and log.group == topic.key and not dead:
                disk.die_after(stage.rng.randint(1, 20), death)
            swap(log, *args)

        return swapping

    with replaced(Log, "swap", dies):
        yield dead
