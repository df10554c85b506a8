"""Every declared message, in every version, agrees with kio in bytes and values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.codec import decode, encode, encode_parts
from protocol.schema import Message
from tests.protocol.kio_oracle import kio_class, kio_decode, kio_encode, to_kio
from tests.protocol.strategies import KAFKA_MESSAGES, all_versions, messages

CASES = [(cls, version) for cls in KAFKA_MESSAGES for version in all_versions(cls)]


@pytest.mark.parametrize(("cls", "version"), CASES, ids=lambda x: x if isinstance(x, int) else x.__name__)
@settings(max_examples=8, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kio_encodes_the_same_bytes_and_decodes_the_same_values(
    cls: type[Message], version: int, data: Any
) -> None:
    message = data.draw(messages(cls, version))
    target = kio_class(cls, version)
    theirs = to_kio(message, target)

    encoded = encode(message, version)

    assert encoded == kio_encode(theirs)
    assert kio_decode(target, encoded) == theirs
    decoded, end = decode(cls, version, memoryview(b"head" + encoded), 4)
    assert end == 4 + len(encoded)
    assert decoded == message
    assert b"".join(encode_parts(message, version)) == encoded


def test_declared_versions_are_those_of_the_table() -> None:
    declared = {
        cls.__name__: tuple(cls.__schema__.versions) for cls in KAFKA_MESSAGES if "Req" in cls.__name__
    }
    assert declared == {
        "ProduceRequest": (3, 13),
        "FetchRequest": (4, 18),
        "ListOffsetsRequest": (1, 11),
        "MetadataRequest": (0, 13),
        "OffsetCommitRequest": (2, 10),
        "OffsetFetchRequest": (1, 10),
        "ListGroupsRequest": (0, 5),
        "OffsetDeleteRequest": (0, 0),
        "OffsetForLeaderEpochRequest": (2, 4),
        "JoinGroupRequest": (0, 9),
        "HeartbeatRequest": (0, 4),
        "LeaveGroupRequest": (0, 5),
        "SyncGroupRequest": (0, 5),
        "DescribeGroupsRequest": (0, 6),
        "DeleteGroupsRequest": (0, 2),
        "DescribeConfigsRequest": (1, 4),
        "AlterConfigsRequest": (0, 2),
        "CreatePartitionsRequest": (0, 3),
        "IncrementalAlterConfigsRequest": (0, 1),
        "ConsumerGroupHeartbeatRequest": (0, 1),
        "ConsumerGroupDescribeRequest": (0, 1),
        "ListConfigResourcesRequest": (0, 1),
        "DescribeTopicPartitionsRequest": (0, 0),
        "SaslHandshakeRequest": (0, 1),
        "ShareGroupHeartbeatRequest": (1, 1),
        "InitProducerIdRequest": (0, 5),
        "FindCoordinatorRequest": (0, 6),
        "CreateTopicsRequest": (2, 7),
        "DeleteTopicsRequest": (1, 6),
        "DeleteRecordsRequest": (0, 2),
        "ApiVersionsRequest": (0, 4),
        "DescribeClusterRequest": (0, 2),
        "AlterReplicaLogDirsRequest": (1, 2),
        "DescribeLogDirsRequest": (1, 5),
        "DescribeProducersRequest": (0, 0),
        "AddPartitionsToTxnRequest": (0, 5),
        "AddOffsetsToTxnRequest": (0, 4),
        "EndTxnRequest": (0, 5),
        "WriteTxnMarkersRequest": (1, 2),
        "TxnOffsetCommitRequest": (0, 5),
        "UpdateFeaturesRequest": (0, 2),
        "DescribeTransactionsRequest": (0, 0),
        "ListTransactionsRequest": (0, 2),
        "DescribeAclsRequest": (1, 3),
        "CreateAclsRequest": (1, 3),
        "DeleteAclsRequest": (1, 3),
        "ElectLeadersRequest": (0, 2),
        "AlterPartitionReassignmentsRequest": (0, 1),
        "ListPartitionReassignmentsRequest": (0, 0),
        "DescribeClientQuotasRequest": (0, 1),
        "AlterClientQuotasRequest": (0, 1),
        "DescribeQuorumRequest": (0, 2),
        "UnregisterBrokerRequest": (0, 0),
    }
