"""What administrators ask of the cluster as a whole: who is there, and access control that does not exist."""

from __future__ import annotations

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.broker.asking import ask
from tests.broker.world import World, running

TOPIC, READ, ALLOW = 2, 3, 3


def describe(world: World, **wanted: object) -> DescribeClusterResponse:
    body = DescribeClusterRequest(**wanted)
    return ask(world, 1, ApiKey.DESCRIBE_CLUSTER, 2, body, DescribeClusterResponse)


def test_brokers_that_are_registered_and_gone_are_fenced() -> None:
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


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_there_are_endpoints_of_brokers_only(endpoint_type: int, code: ErrorCode) -> None:
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
