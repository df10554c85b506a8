"""DescribeCluster (60; KIP-700). Endpoint types: KIP-919, 1+. Fenced brokers: KIP-1073, 2+."""

from __future__ import annotations

from protocol.messages.metadata import OPERATIONS_NOT_REQUESTED
from protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, Message, array, field


class DescribeClusterRequest(Message, api_key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = field(BOOLEAN, default=False)
    endpoint_type: int = field(INT8, versions="1+", default=1)
    """1: brokers; 2: controllers."""
    include_fenced_brokers: bool = field(BOOLEAN, versions="2+", default=False)


class DescribeClusterBroker(Message):
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)
    is_fenced: bool = field(BOOLEAN, versions="2+", default=False)


class DescribeClusterResponse(Message, api_key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    endpoint_type: int = field(INT8, versions="1+", default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=OPERATIONS_NOT_REQUESTED)
