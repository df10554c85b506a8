"""DescribeCluster: the cluster id, the brokers that answer, and where to send administration (KIP-700).

Behaviour: as Metadata's broker list. `controller_id` is the leader of the metadata group, -1 where it is not known;
any broker forwards administration to it. Controllers are not an endpoint of their own here: endpoint type 2 is
UNSUPPORTED_ENDPOINT_TYPE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.node import Node

BROKERS = 1


def handle(node: Node, request: Request, body: DescribeClusterRequest) -> None:
    response = DescribeClusterResponse(
        cluster_id=node.cluster_id or "", controller_id=node.controller_id(), brokers=[]
    )
    if body.endpoint_type != BROKERS:
        response.error_code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        response.error_message = "only broker endpoints can be described"
    else:
        response.brokers = [
            DescribeClusterBroker(broker_id=broker_id, host=host, port=port)
            for broker_id, host, port in node.view.live_brokers(request.listener)
        ]
    request.reply_bytes(encode(response, request.api_version))


API = Api(ApiKey.DESCRIBE_CLUSTER, 0, 1, DescribeClusterRequest, handle)
