"""The oracles look on while replicas of a running cluster are compacted, each by itself: they accept it, on disks and
in logs, and they notice what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from broker.replication.replica import Replica
from broker.replication.watermarks.bounds import DurableBounds
from protocol.controller.topics import TopicSetting
from protocol.records.batch import parse_header
from protocol.records.builder import NewRecord, build_batch, build_filler
from storage.aborted_index import AbortedIndex
from storage.journal_records import Bounds
from storage.segment_swap import COMPACTED_NAME, SegmentBuild, commit_swap
from tests.simulation.stand_in_compaction import compact
from tests.simulation.test_invariants import Small, bites
from tests.simulator.durable_log import DurableLogs
from tests.simulator.invariants.members_are_clean import check_member
from tests.simulator.written import Written

COMPACTED = (
    TopicSetting(name="cleanup.policy", value="compact"),
    TopicSetting(name="segment.bytes", value="1024"),
    TopicSetting(name="delete.retention.ms", value="1"),
)


@pytest.fixture
def small() -> Iterator[Small]:
    """Its log has sealed segments, and every key was written several times."""
    world = Small(COMPACTED, keys=3)
    world.produce(40)
    try:
        yield world
    finally:
        world.cluster.close()


def node_of(replica: Replica) -> int:
    return replica.group.self_id.node_id


def look(small: Small) -> None:
    """All that is looked at in a run."""
    small.cluster.scan()
    for replica in small.replicas():
        small.oracle.role_changed(replica)
        small.oracle._compared.clear()
        small.oracle.committed(node_of(replica), replica)


def test_replicas_that_are_compacted_one_after_the_other(small: Small) -> None:
    key = small.leader.key
    for replica in small.replicas():
        before = len(list(replica.log.batches(0)))
        assert compact(small.cluster, node_of(replica), key)
        assert len(list(replica.log.batches(0))) < before
        look(small)
        small.produce(3)
    assert small.oracle.compaction.is_rewritten(key)
    small.cluster.loop.run_for(1.0)
    small.wait(small.cluster.are_equal)
    small.cluster.assert_whole()


def test_a_node_that_starts_again_after_a_loss_of_power(small: Small) -> None:
    node_id = node_of(small.follower)
    assert compact(small.cluster, node_id, small.leader.key)
    small.cluster.scan()
    small.cluster.cut_power(node_id)
    small.cluster.start(node_id)
    small.wait(lambda: len(small.replicas()) == 3)
    small.produce(3)
    look(small)


def build(replica: Replica, change: Callable[[bytes], bytes] = lambda batch: batch) -> tuple[list[int], int]:
    """The first two segments as one, whose swap counts; perhaps not as it was written. Returns what it replaces, and
    its end."""
    log = replica.log
    bases, end_offset = log._bases[:2], log._bases[2]
    batches = [change(bytes(batch)) for _, batch in log.checked_batches(0, end_offset)]
    made = SegmentBuild(log.disk, log.directory, bases, log.config.index_interval_bytes)
    made.append(batches, [parse_header(batch) for batch in batches])
    made.finish(end_offset, AbortedIndex())
    return bases, end_offset


def swap(small: Small, replica: Replica, change: Callable[[bytes], bytes]) -> None:
    def run() -> None:
        bases, _ = build(replica, change)
        replica.log.swap(bases, AbortedIndex())

    small.call(node_of(replica), run)


def test_a_swap_that_counts_is_what_the_disk_holds(small: Small) -> None:
    """While the old segments go one after the other, and after a loss of power in between."""
    replica = small.follower
    node_id, durable = node_of(replica), DurableLogs(small.cluster.disks)
    disk = small.cluster.disks[node_id]
    before = durable.of(node_id, "t", replica.key)
    small.call(node_id, build, replica)
    small.call(node_id, commit_swap, disk, replica.log.directory)
    assert disk.durable_names(f"{replica.log.directory}/{COMPACTED_NAME}")
    for base_offset in replica.log._bases[:2]:
        disk.unlink(f"{replica.log.directory}/{base_offset:020}.log")
        disk.flush_directory(replica.log.directory)
        after = durable.of(node_id, "t", replica.key)
        assert before is not None
        assert after is not None
        assert after.end_index == before.end_index
        assert durable.start_offset(node_id, "t", replica.key) == 0
    small.cluster.cut_power(node_id)
    small.cluster.start(node_id)
    small.wait(lambda: len(small.replicas()) == 3)
    look(small)


# -- it is noticed ---------------------------------------------------------------------------------------------


def first_as(other: bytearray) -> Callable[[bytes], bytes]:
    """The batch at offset 0 is another one."""
    return lambda batch: bytes(other) if parse_header(batch).base_offset == 0 else batch


def test_a_value_that_a_pass_has_changed(small: Small) -> None:
    first = parse_header(bytes(next(small.follower.log.checked_batches(0))[1]))
    other = build_batch([NewRecord(b"0", b"another", 1)], leader_epoch=first.leader_epoch)
    swap(small, small.follower, first_as(other))
    with bites("survivors_unchanged"):
        small.cluster.scan()


def test_a_segment_that_is_rewritten_before_that_is_recorded(small: Small) -> None:
    """Although what is in it is right."""
    small.cluster.scan()
    swap(small, small.follower, lambda batch: batch)
    with bites("rewriting_is_recorded"):
        small.cluster.scan()


def test_a_last_value_that_a_pass_has_removed(small: Small) -> None:
    follower, newest = small.follower, small.oracle.compaction.written(small.leader.key).newest()
    first = parse_header(bytes(next(follower.log.checked_batches(0))[1]))
    newest.clear()  # of its key nothing newer was committed
    newest[b"0"] = small.oracle.compaction.written(follower.key).covered(0, first.next_offset)[0].records[0]
    swap(small, follower, first_as(build_filler(0, first.next_offset, first.leader_epoch)))
    with bites("nothing_missing"):
        small.cluster.scan()


def test_a_topic_that_is_never_compacted_loses_a_record() -> None:
    """What would be right in any other."""
    small = Small([each for each in COMPACTED if each.name == "segment.bytes"], keys=3)
    small.produce(40)
    first = parse_header(bytes(next(small.follower.log.checked_batches(0))[1]))
    swap(small, small.follower, first_as(build_filler(0, first.next_offset, first.leader_epoch)))
    with bites("log_matching"):
        small.cluster.scan()
    small.cluster.close()


def test_a_pass_that_calls_clean_what_is_not(small: Small) -> None:
    replica = small.follower
    journal = small.cluster.nodes[node_of(replica)].journal
    bounds = DurableBounds(journal).of(replica.key)
    small.call(node_of(replica), journal.append, bounds._replace(mcco=20))
    with bites("one_record_per_key"):
        small.cluster.scan()


def test_a_bound_that_is_higher_than_a_member_is_clean(small: Small) -> None:
    """Whoever knows it. The other members have not been compacted."""
    replica = small.follower
    journal = small.cluster.nodes[node_of(replica)].journal
    assert compact(small.cluster, node_of(replica), replica.key)
    small.cluster.scan()
    bounds = DurableBounds(journal).of(replica.key)
    small.call(node_of(replica), journal.append, bounds._replace(mtro=bounds.mcco))
    with bites("members_are_clean"):
        small.cluster.scan()
        small.cluster.scan()


def test_a_member_lacks_what_has_superseded_a_value(small: Small) -> None:
    """Below the bound, where each key has one record, but the wrong one."""
    written, key = Written(), small.leader.key
    batches = [
        memoryview(build_batch([NewRecord(b"a", value, 1)], base_offset=offset))
        for offset, value in enumerate((b"1", None))
    ]
    stored = [(parse_header(batch), batch) for batch in batches]
    for header, batch in stored:
        written.add(header, batch)
    check_member(key, written, stored[1:], 0, Bounds(key, mtro=2))
    check_member(key, written, stored[:1], 0, Bounds(key, mtro=1))
    with bites("members_are_clean"):
        check_member(key, written, stored[:1], 0, Bounds(key, mtro=2))


def test_a_checkpoint_is_told_before_it_is_durable(small: Small) -> None:
    replica, cluster = small.follower, small.cluster
    journal, identity = cluster.nodes[node_of(replica)].journal, replica.group.self_id
    small.call(node_of(replica), journal.append, DurableBounds(journal).of(replica.key)._replace(mcco=20))
    with bites("told_bounds_are_durable"):
        small.oracle.compaction.told.told(replica.key, identity, mcco=20)
    journal.flush()
    small.oracle.compaction.told.told(replica.key, identity, mcco=20)


def test_a_checkpoint_that_is_gone_after_a_loss_of_power(small: Small) -> None:
    replica, cluster = small.follower, small.cluster
    node_id = node_of(replica)
    assert compact(cluster, node_id, replica.key)
    cluster.nodes[node_id].journal.flush()
    cluster.scan()
    journal = cluster.nodes[node_id].journal
    state = journal.state(replica.key)
    assert state is not None
    state.bounds = None
    with bites("bounds_never_fall"):
        cluster.scan()
