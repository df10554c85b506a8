"""Requests of newer versions can have strings that no record and no answer of an older version can hold. One such
request once ended a node, and its repetition the next node."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.internal_topic import partition_of
from broker.groups.records import GroupRecord, encode
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.group_records import GroupMetadataKey
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.broker.asking import ask
from tests.broker.groups.world import FEW, commit, commit_request, coordinator
from tests.broker.world import running

LONG = "x" * 32_768


def join_request(**fields: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name=fields.pop("protocol", "range"), metadata=b"")]
    usual: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
    }
    return JoinGroupRequest(protocols=protocols, **{**usual, **fields})


@pytest.mark.parametrize("field", ["group_instance_id", "protocol_type", "protocol"])
def test_a_member_with_an_overlong_name_is_refused(field: str) -> None:
    with running(size=1, settings=FEW) as world:
        coordinator(world, "g")
        body = join_request(**{field: LONG})
        answer = ask(world, 1, ApiKey.JOIN_GROUP, 9, body, JoinGroupResponse)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_group_with_an_overlong_name_is_refused() -> None:
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", replication_factor=1)
        coordinator(world, "g")
        assert commit(world, 1, commit_request(LONG, "foo", {0: 1}), 9) in (
            [ErrorCode.INVALID_GROUP_ID],
            [ErrorCode.NOT_COORDINATOR],
        )
        body = join_request(group_id="ü" * 16_384)
        answer = ask(world, 1, ApiKey.JOIN_GROUP, 9, body, JoinGroupResponse)
        assert answer.error_code in (ErrorCode.INVALID_GROUP_ID, ErrorCode.NOT_COORDINATOR)


def test_a_name_of_megabytes_is_refused_before_it_is_hashed() -> None:
    """Hashing it once took the node longer than an election timeout."""
    assert partition_of("x" * 1000 + "ü" * 1000, 1 << 31) == 1_629_482_496, "the same hash as in Java"
    with running(size=1, settings=FEW) as world:
        coordinator(world, "g")
        body = HeartbeatRequest(group_id="x" * 8_000_000, generation_id=1, member_id="m")
        answer = ask(world, 1, ApiKey.HEARTBEAT, 4, body, HeartbeatResponse)
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID
        keys = FindCoordinatorRequest(key_type=0, coordinator_keys=["g", LONG])
        found = ask(world, 1, ApiKey.FIND_COORDINATOR, 4, keys, FindCoordinatorResponse).coordinators
        assert [x.error_code for x in found] == [ErrorCode.NONE, ErrorCode.INVALID_GROUP_ID]


def test_encoding_an_overlong_string_raises_kafka_error() -> None:
    with pytest.raises(KafkaError, match="no record can hold this"):
        encode(GroupRecord(GroupMetadataKey(group=LONG), None))
