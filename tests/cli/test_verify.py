"""What `varve verify replicas` prints of a partition."""

from __future__ import annotations

from broker.cli.verify import Verified
from protocol.errors import ErrorCode
from protocol.messages.verify_replicas import VerifiedReplica, VerifyPartition

EQUAL = [VerifiedReplica(node_id=3, like=1), VerifiedReplica(node_id=1, like=1)]


def verified(*replicas: VerifiedReplica, is_by_key: bool = True) -> Verified:
    found = Verified("t", 0, leader=3)
    found.note(
        VerifyPartition(
            partition_index=0,
            start_offset=5,
            end_offset=90,
            is_by_key=is_by_key,
            records=40,
            replicas=list(replicas),
        )
    )
    return found


def test_equal_replicas() -> None:
    found = verified(VerifiedReplica(node_id=3, like=1), VerifiedReplica(node_id=1, like=1))
    assert found.line() == "t-0\toffsets: 5 to 90\trecords: 40\treplicas equal: 1, 3"
    assert not found.differs
    assert not found.is_incomplete


def test_a_replica_that_is_away() -> None:
    found = verified(*EQUAL, VerifiedReplica(node_id=2, not_compared="offline"), is_by_key=False)
    assert found.line().endswith("batches: 40\treplicas equal: 1, 3\tbroker 2 not compared: offline")
    assert not found.differs
    assert found.is_incomplete


def test_a_replica_that_differs() -> None:
    wrong = VerifiedReplica(node_id=2, like=2, first_offset=17, end_offset=18, records_of_leader=1, records=0)
    found = verified(*EQUAL, wrong)
    assert found.line().endswith(
        "\tbroker 2 differs from leader 3 at offset 17 (records there: 0, at the leader: 1)"
    )
    assert found.differs
    assert not found.is_incomplete
    wrong.end_offset = 27
    assert "at an offset from 17 to 26" in verified(*EQUAL, wrong).line()


def test_a_leader_that_differs_from_all_others() -> None:
    others = [
        VerifiedReplica(node_id=n, like=1, first_offset=7, end_offset=8, records_of_leader=1, records=1)
        for n in (1, 2)
    ]
    line = verified(VerifiedReplica(node_id=3, like=3), *others).line()
    assert "replicas equal: 1, 2" in line
    assert "broker 1 differs from leader 3" in line
    assert "broker 2 differs from leader 3" in line


def test_a_partition_that_was_not_compared() -> None:
    found = Verified("t", 0)
    found.note(
        VerifyPartition(
            partition_index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            error_message="the leader has changed",
            replicas=[],
        )
    )
    assert found.line() == "t-0\tnot compared: the leader has changed (NOT_LEADER_OR_FOLLOWER)"
    assert found.is_incomplete
