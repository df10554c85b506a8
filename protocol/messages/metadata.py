"""Metadata (3). Topic ids: KIP-516, 10+, in requests 12+. Top-level error: KIP-1102, 13."""

from __future__ import annotations

import uuid

from protocol.schema import BOOLEAN, INT16, INT32, NIL_UUID, STRING, UUID, Message, array, field

OPERATIONS_NOT_REQUESTED = -(2**31)
"""The value of authorized operations if the client did not ask for them (KIP-430)."""


class MetadataRequestTopic(Message):
    topic_id: uuid.UUID = field(UUID, versions="10+", default=NIL_UUID)
    name: str | None = field(STRING, nullable="10+")


class MetadataRequest(Message, api_key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), nullable="1+")
    """None: all topics. An empty list: no topic, but in version 0 all topics."""
    allow_auto_topic_creation: bool = field(BOOLEAN, versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOLEAN, versions="8-10", default=False)
    include_topic_authorized_operations: bool = field(BOOLEAN, versions="8+", default=False)


class MetadataResponseBroker(Message):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, versions="1+", nullable="1+", default=None)


class MetadataResponsePartition(Message):
    error_code: int = field(INT16, default=0)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, versions="7+", default=-1)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    offline_replicas: list[int] = field(array(INT32), versions="5+", default_factory=list)


class MetadataResponseTopic(Message):
    error_code: int = field(INT16, default=0)
    name: str | None = field(STRING, nullable="12+")
    topic_id: uuid.UUID = field(UUID, versions="10+", default=NIL_UUID)
    is_internal: bool = field(BOOLEAN, versions="1+", default=False)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, versions="8+", default=OPERATIONS_NOT_REQUESTED)


class MetadataResponse(Message, api_key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = field(INT32, versions="3+", default=0)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker))
    cluster_id: str | None = field(STRING, versions="2+", nullable="2+", default=None)
    controller_id: int = field(INT32, versions="1+", default=-1)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, versions="8-10", default=OPERATIONS_NOT_REQUESTED)
    error_code: int = field(INT16, versions="13+", default=0)
