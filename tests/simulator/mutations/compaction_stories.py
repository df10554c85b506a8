"""Schedules in which the fences of coordinated compaction matter, and that random faults hardly ever meet
(coordinated-compaction.md, section 2)."""

from __future__ import annotations

from tests.simulator.mutations.compacted_topic import CompactedTopic
from tests.simulator.mutations.stage import Stage


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
