"""Administrative requests about the cluster as a whole: brokers, the quorum, ACLs."""

from __future__ import annotations

from typing import Any

import pytest

from broker.metadata.ids import METADATA_TOPIC_NAME
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestedPartition,
    RequestedTopic,
)
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.broker.asking import ask
from tests.broker.partitions.test_reassignment import create, reassign, wait_moved
from tests.broker.world import World, running

TOPIC, READ, ALLOW = 2, 3, 3


def describe(world: World, **wanted: Any) -> DescribeClusterResponse:
    body = DescribeClusterRequest(**wanted)
    return ask(world, 1, ApiKey.DESCRIBE_CLUSTER, 2, body, DescribeClusterResponse)


def test_registered_brokers_that_are_down_are_fenced() -> None:
    with running() as world:
        world.kill(3)
        world.wait(lambda: len(world.nodes[1].view.live_brokers("PLAINTEXT")) == 2)
        assert [x.broker_id for x in describe(world).brokers] == [1, 2]
        with_fenced = describe(world, include_fenced_brokers=True)
        assert [(x.broker_id, x.is_fenced) for x in with_fenced.brokers] == [
            (1, False),
            (2, False),
            (3, True),
        ]
        assert with_fenced.brokers[2].host == "n3"


def test_all_operations_are_authorized_without_an_authorizer() -> None:
    with running(size=1) as world:
        allowed = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
        answer = describe(world, include_cluster_authorized_operations=True)
        assert answer.cluster_authorized_operations == allowed
        assert describe(world).cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_endpoints_of_brokers_are_described(endpoint_type: int, code: ErrorCode) -> None:
    with running(size=1) as world:
        answer = describe(world, endpoint_type=endpoint_type)
        assert (answer.error_code, answer.brokers, answer.cluster_id) == (code, [], "")


def test_access_control_answers_as_a_broker_without_an_authorizer() -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    with running(size=1) as world:
        described = ask(
            world,
            1,
            ApiKey.DESCRIBE_ACLS,
            3,
            DescribeAclsRequest(resource_type_filter=TOPIC, operation=READ, permission_type=ALLOW),
            DescribeAclsResponse,
        )
        assert (described.error_code, described.resources) == (disabled, [])
        creation = AclCreation(
            resource_type=TOPIC,
            resource_name="t",
            principal="User:a",
            host="*",
            operation=READ,
            permission_type=ALLOW,
        )
        body = CreateAclsRequest(creations=[creation, creation])
        created = ask(world, 1, ApiKey.CREATE_ACLS, 3, body, CreateAclsResponse)
        assert [result.error_code for result in created.results] == [disabled, disabled]
        wanted = DeleteAclsFilter(resource_type_filter=TOPIC, operation=READ, permission_type=ALLOW)
        deleted = ask(
            world, 1, ApiKey.DELETE_ACLS, 3, DeleteAclsRequest(filters=[wanted]), DeleteAclsResponse
        )
        assert [(x.error_code, x.matching_acls) for x in deleted.filter_results] == [(disabled, [])]


def quorum(world: World, name: str, number: int, via: int = 1) -> DescribeQuorumResponse:
    topic = RequestedTopic(topic_name=name, partitions=[RequestedPartition(partition_index=number)])
    body = DescribeQuorumRequest(topics=[topic])
    return ask(world, via, ApiKey.DESCRIBE_QUORUM, 2, body, DescribeQuorumResponse)


def test_every_broker_answers_describe_quorum_as_the_leader_knows_it() -> None:
    with running() as world:
        world.create_topic("foo")
        controller = world.nodes[1].leaders.controller_id()
        replica = world.nodes[controller].metadata.replica
        assert replica is not None
        world.loop.run_for(1)
        for via in (1, 2, 3):
            answer = quorum(world, METADATA_TOPIC_NAME, 0, via)
            partition = answer.topics[0].partitions[0]
            assert (partition.leader_id, partition.leader_epoch) == (controller, replica.leader_epoch)
            assert partition.high_watermark == replica.high_watermark
            assert {x.replica_id: x.replica_directory_id for x in partition.current_voters} == {
                node_id: node.me.directory_id for node_id, node in world.nodes.items()
            }
            assert {x.log_end_offset for x in partition.current_voters} == {replica.high_watermark}
            assert [x.last_fetch_timestamp_ms == -1 for x in partition.current_voters] == [
                x.replica_id == controller for x in partition.current_voters
            ]
            assert {(x.node_id, x.listeners[0].host) for x in answer.nodes} == {
                (1, "n1"),
                (2, "n2"),
                (3, "n3"),
            }


def test_a_voter_that_is_down_falls_behind() -> None:
    with running() as world:
        controller = world.nodes[1].leaders.controller_id()
        away = next(node_id for node_id in world.nodes if node_id not in (1, controller))
        world.kill(away)
        world.create_topic("foo", replication_factor=2)
        world.loop.run_for(3)
        voters = quorum(world, METADATA_TOPIC_NAME, 0).topics[0].partitions[0].current_voters
        leader = next(x for x in voters if x.replica_id == controller)
        behind = next(x for x in voters if x.replica_id == away)
        assert behind.log_end_offset < leader.log_end_offset
        assert leader.last_caught_up_timestamp_ms - behind.last_caught_up_timestamp_ms > 2500


@pytest.mark.parametrize(("name", "number"), [(METADATA_TOPIC_NAME, 1), ("foo", 0)])
def test_only_the_metadata_partition_is_a_quorum(name: str, number: int) -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        partition = quorum(world, name, number).topics[0].partitions[0]
        assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def unregister(world: World, node_id: int, via: int = 1) -> ErrorCode:
    body = UnregisterBrokerRequest(broker_id=node_id)
    answer = ask(world, via, ApiKey.UNREGISTER_BROKER, 0, body, UnregisterBrokerResponse)
    return ErrorCode(answer.error_code)


def brokers(world: World, via: int = 1) -> list[int]:
    body = DescribeClusterRequest(include_fenced_brokers=True)
    answer = ask(world, via, ApiKey.DESCRIBE_CLUSTER, 2, body, DescribeClusterResponse)
    return [broker.broker_id for broker in answer.brokers]


def test_a_broker_without_replicas_can_be_unregistered() -> None:
    with running(size=4) as world:
        create(world, "foo", [2, 3, 4])
        assert unregister(world, 9) == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert unregister(world, 4) == ErrorCode.POLICY_VIOLATION
        world.kill(4)
        reassign(world, "foo", 1, 2, 3)
        wait_moved(world, "foo", 1, 2, 3)
        assert unregister(world, 4) == ErrorCode.NONE
        world.wait(lambda: 4 not in world.nodes[1].metadata.image.brokers)
        assert brokers(world) == [1, 2, 3]
        world.start(4)
        world.wait_ready(4)
        assert brokers(world, via=4) == [1, 2, 3, 4], "a restart registers it again"


def test_a_running_broker_stays_unregistered_and_goes_on_voting() -> None:
    with running(size=3) as world:
        controller = world.nodes[1].leaders.controller_id()
        other, third = (node_id for node_id in world.nodes if node_id != controller)
        assert unregister(world, controller, via=other) == ErrorCode.NONE
        world.loop.run_for(5)
        assert brokers(world, via=other) == sorted([other, third])
        answer = ask(
            world, other, ApiKey.DESCRIBE_CLUSTER, 2, DescribeClusterRequest(), DescribeClusterResponse
        )
        assert answer.controller_id in (other, third), (
            "clients are never sent to a broker that is not registered"
        )
        world.kill(third)
        create(world, "foo", [other])
        world.wipe(third)
        world.start(third)
        world.wait_ready(third)
        assert len(world.voters(METADATA_TOPIC_NAME)) == 3, "a node with a new disk still becomes a voter"
