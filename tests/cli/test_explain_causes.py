"""What `varve explain` concludes from what the brokers tell: states that last too short to be met."""

from __future__ import annotations

import pytest

from broker.cli.compaction_state import PartitionState, ReplicaState
from broker.cli.explain_log import Known, log_causes
from broker.cli.explain_records import records_of_key, tell_fates
from broker.replication.watermarks.blocked_by import BlockedBy
from protocol.messages.describe_compaction import CompactionMember, HeldRecords, PartitionCompaction
from protocol.records.builder import NewRecord, build_batch

NOW_MS = 1_000_000


def told(
    blocked_by: BlockedBy = BlockedBy.NOTHING_DIRTY, tombstones: HeldRecords | None = None, mtro: int = -1
) -> PartitionCompaction:
    return PartitionCompaction(
        partition_index=0,
        log_start_offset=0,
        log_end_offset=100,
        high_watermark=100,
        last_stable_offset=100,
        first_uncleanable_offset=100,
        size_bytes=1000,
        clean_bytes=1000,
        dirty_bytes=0,
        blocked_by=blocked_by,
        limit=BlockedBy.NOTHING_DIRTY,
        max_tombstone_remove_offset=mtro,
        tombstones=tombstones or HeldRecords(),
        markers=HeldRecords(),
        remnants=HeldRecords(),
        members=[],
    )


def seen(reason: BlockedBy) -> CompactionMember:
    return CompactionMember(
        node_id=2,
        is_learner=False,
        max_cleanly_compacted_offset=-1,
        max_transaction_free_offset=-1,
        blocked_by=reason,
        dirty_bytes=0,
        pins_tombstones_since_ms=NOW_MS,
    )


def known(own: PartitionCompaction, *others: ReplicaState) -> Known:
    state = PartitionState("t", 0, 1, [ReplicaState(1, own), *others])
    return Known(state, {"delete.retention.ms": "7"}, [], NOW_MS)


HELD = HeldRecords(count=-1, first_horizon_ms=NOW_MS - 1, first_end_offset=50)


def test_a_deletion_that_waits_for_bounds_that_nobody_pins_any_more() -> None:
    (cause,) = log_causes(known(told(tombstones=HELD)))
    assert cause.code == "waits_for_replicas"
    assert (
        cause.text
        == "Some tombstones stay until all replicas are compacted up to there (MTRO: no offset yet)."
    )


def test_what_may_go_is_no_cause() -> None:
    assert log_causes(known(told(tombstones=HELD, mtro=50))) == []


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        (BlockedBy.OFFLINE, "start broker 2, or move its replicas: varve cluster reassign"),
        (BlockedBy.UNREPORTED, "varve cluster health --watch"),
        (BlockedBy.BEHIND, "varve cluster health --watch"),
        (BlockedBy.STALE_LOG, "varve cluster health --watch"),
        (BlockedBy.NOTHING, "varve topic compact t --partitions 0 --wait"),
        (BlockedBy.MIN_LAG, "varve topic alter t --config min.compaction.lag.ms=0"),
        (BlockedBy.CLEANER_OFF, "set log.cleaner.enable=true on broker 2, and start it again"),
    ],
)
def test_each_reason_of_a_pin_has_a_way_out(reason: BlockedBy, command: str) -> None:
    other = ReplicaState(2, told(reason), seen=seen(reason))
    causes = [cause for cause in log_causes(known(told(tombstones=HELD), other)) if cause.code == "pinned"]
    assert [cause.command for cause in causes] == [command]
    assert f"Broker 2 is behind since 1970-01-01T00:16:40Z: {reason.words}." in causes[0].text


def test_every_reason_that_a_replica_tells_is_explained() -> None:
    for reason in (each for each in BlockedBy if each < BlockedBy.OFFLINE):
        for cause in log_causes(known(told(reason))):
            assert cause.text.endswith("."), reason


def test_a_deletion_says_what_it_waits_for() -> None:
    batch = memoryview(build_batch([NewRecord(b"k", None, 0)], base_offset=10))
    (found,) = records_of_key(0, [batch], b"k")
    tell_fates([found], known(told(BlockedBy.DIRTY_RATIO)))
    assert found.fate == (
        "a deletion; delete.retention.ms=7 counts from the pass that comes by, and it comes with the next pass, which"
        " waits for: dirty ratio"
    )
