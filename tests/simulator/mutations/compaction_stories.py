"""Schedules in which the rules of a pass matter, and that random faults hardly ever meet (coordinated-compaction.md,
section 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from storage.log import Log
from storage.producer_state import BATCHES_KEPT
from tests.simulator.mutations.compacted_topic import CompactedTopic
from tests.simulator.mutations.stage import CARELESS, Stage
from tests.simulator.mutations.switch import replaced


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


def a_reader_is_slow(stage: Stage) -> None:
    """It has read the value, and has `delete.retention.ms` to read the tombstone."""
    retention_s = stage.rng.uniform(2, 5)
    topic = CompactedTopic(stage, delete_retention_ms=str(int(retention_s * 1000)))
    topic.put(b"value")
    tombstone = topic.put(None)
    topic.wait_cleaned(1, 2, 3, above=tombstone)
    # The first pass that keeps it was at most a round ago.
    end_s = stage.loop.time() + retention_s - 0.5
    while stage.loop.time() < end_s:
        topic.put(b"more", b"another")
        stage.run_for(0.2)
        is_held = all(topic.holds(node_id, tombstone) for node_id in (1, 2, 3))
        assert is_held, "a tombstone is gone before a reader could know it"
    topic.wait_gone(tombstone, 1, 2, 3)


def a_deposed_leader_has_compacted(stage: Stage) -> None:
    """Its producer has written what will never be committed, and perhaps as much as a replica remembers. When that is
    cut off, what was committed before is remembered again: also by a replica that copies the compacted log."""
    topic = CompactedTopic(stage)
    leader, *others = topic.leader_and_followers()
    with topic.passes_held(1, 2, 3) as held:
        for _ in range(BATCHES_KEPT):
            last = stage.write(producer_id=CARELESS)
        topic.put(b"a segment of its own" * 60)
        topic.put(b"the active segment")
        stage.everybody_has_all()
        stage.isolate(leader)
        for _ in range(stage.rng.randint(1, BATCHES_KEPT + 1)):
            stage.append(leader, producer_id=CARELESS)
        del held[leader]
        topic.wait_cleaned(leader, above=last)
        stage.wait(lambda: stage.leader_now() in others)
        topic.put(b"of the next leader")
        stage.heal()
        stage.everybody_has_all()
        topic.reassign(leader, others[0])
        stage.wait(lambda: stage.cluster.replica(others[1], stage.topic) is None)
        stage.lead(leader)
        topic.reassign(leader, *others)
