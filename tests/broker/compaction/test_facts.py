"""What a pass has to know of a replica."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.compaction.facts import known_at_snapshot, removal_bounds
from broker.replication.replica import Replica
from protocol.records.batch import parse_header
from protocol.records.builder import NewRecord, build_batch
from storage.batch_scan import UncleanableError
from storage.compaction.producers import last_offsets
from storage.producer_snapshot import Snapshot, write_snapshot
from storage.producer_state import BATCHES_KEPT
from tests.broker.world import World, running


@pytest.fixture
def world() -> Iterator[World]:
    with running(size=1) as world:
        world.create_topic("table", replication_factor=1, configs={"cleanup.policy": "compact"})
        world.leader("table")
        yield world


def append(world: World, producer_id: int, sequence: int) -> int:
    """Without waiting until it is committed. Returns its offset."""
    batch = build_batch(
        [NewRecord(b"k", b"v", 1)], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    replica = world.replica(1, "table")
    base_offset, _ = world.processes[1].call(replica.append, parse_header(batch), batch)
    return int(base_offset)


def snapshot_of(world: World, replica: Replica) -> int:
    """Its offset."""
    world.wait(lambda: replica.high_watermark == replica.producers.end_offset)
    snapshot = Snapshot.of(replica.producers)
    world.processes[1].call(write_snapshot, replica.log, snapshot, replica.high_watermark)
    return snapshot.end_offset


def test_what_is_not_committed_takes_the_place_of_nothing(world: World) -> None:
    replica = world.replica(1, "table")
    offsets = {append(world, 1, sequence) for sequence in range(BATCHES_KEPT)}
    offset = snapshot_of(world, replica)
    for sequence in range(BATCHES_KEPT):
        append(world, 1, BATCHES_KEPT + sequence)
    assert replica.high_watermark == offset
    assert offsets.isdisjoint(last_offsets(replica.producers))
    assert last_offsets(known_at_snapshot(replica, offset)) == offsets


def test_of_producers_that_have_expired_nothing_stays(world: World) -> None:
    replica = world.replica(1, "table")
    append(world, 1, 0)
    kept = append(world, 2, 0)
    offset = snapshot_of(world, replica)
    del replica.producers.entries[1]
    assert last_offsets(known_at_snapshot(replica, offset)) == {kept}


def test_a_log_whose_snapshot_is_damaged_is_left_alone(world: World) -> None:
    """It serves on, and the next snapshot will do."""
    replica = world.replica(1, "table")
    append(world, 1, 0)
    offset = snapshot_of(world, replica)
    world.disks[1].corrupt(replica.log.snapshot_path(offset), 6, b"\1")
    with pytest.raises(UncleanableError, match="snapshot 1 is damaged"):
        world.processes[1].call(known_at_snapshot, replica, offset)


def test_what_may_go_is_what_all_members_have_cleaned(world: World) -> None:
    """What this replica alone has cleaned counts only where somebody has asked for damage."""
    bounds = world.replica(1, "table").bounds
    bounds.durable = bounds.durable._replace(mtro=1, mxro=2, mcco=8, mxfo=7)
    replica = world.replica(1, "table")
    assert removal_bounds(replica, is_coordinated=True) == (1, 2)
    assert removal_bounds(replica, is_coordinated=False) == (8, 7)
