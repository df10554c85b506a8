"""DescribeCluster: the cluster id, the live brokers, and the controller (KIP-700).

Behaviour: as Metadata's broker list. `controller_id` is the leader of the metadata group, -1 if it is not known; any
broker forwards administrative requests to it. From version 2 on the request can ask for registered brokers that are not
alive: they are shown as fenced. Controllers have no endpoints of their own here: endpoint type 2 is
MISMATCHED_ENDPOINT_TYPE, any other UNSUPPORTED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.metadata import CLUSTER_OPERATIONS
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

BROKERS, CONTROLLERS = 1, 2


def handle(context: Context, request: Request, body: DescribeClusterRequest) -> None:
    try:
        _check_endpoint_type(body.endpoint_type)
    except KafkaError as error:
        response = DescribeClusterResponse(
            cluster_id="", brokers=[], error_code=error.code, error_message=error.message
        )
    else:
        alive = context.view.live_brokers(request.listener)
        brokers = [(broker, False) for broker in alive]
        if body.include_fenced_brokers:
            brokers += [(b, True) for b in context.view.all_brokers(request.listener) if b not in alive]
        response = DescribeClusterResponse(
            cluster_id=context.view.cluster_id or "",
            controller_id=context.view.controller(),
            brokers=[
                DescribeClusterBroker(broker_id=broker_id, host=host, port=port, is_fenced=is_fenced)
                for (broker_id, host, port), is_fenced in sorted(brokers)
            ],
        )
        if body.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
    request.reply_bytes(encode(response, request.api_version))


def _check_endpoint_type(endpoint_type: int) -> None:
    if endpoint_type == CONTROLLERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is an endpoint of brokers")
    if endpoint_type != BROKERS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there are no endpoints of type {endpoint_type}"
        )


API = Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, DescribeClusterRequest, handle)
