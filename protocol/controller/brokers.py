"""Who is a broker, what it is given, and who votes on the metadata."""

from __future__ import annotations

import uuid

from protocol.controller.request import EmptyResult, Request, Result
from protocol.schema import INT32, INT64, STRING, UINT16, UUID, Message, array, field


class Endpoint(Message):
    listener: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class RegisterBroker(Request[EmptyResult], flexible="0+"):
    """Records who a node is since its last start, and where it listens."""

    cluster_id: str = field(STRING)
    node_id: int = field(INT32)
    directory_id: uuid.UUID = field(UUID)
    boot_id: uuid.UUID = field(UUID)
    endpoints: list[Endpoint] = field(array(Endpoint))
    """What clients are told, one for each listener."""
    peer_host: str = field(STRING)
    peer_port: int = field(UINT16)
    metadata_incarnation: int = field(INT32)
    """Of the node's replica of `__cluster_metadata`."""


class UnregisterBroker(Request[EmptyResult], flexible="0+"):
    node_id: int = field(INT32)


class RenewedReplica(Message):
    """A replica that discarded its log, under its new incarnation."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    incarnation: int = field(INT32)


class RenewReplicas(Request[EmptyResult], flexible="0+"):
    """Has the target assignments name the present incarnations of a node's replicas."""

    node_id: int = field(INT32)
    directory_id: uuid.UUID = field(UUID)
    replicas: list[RenewedReplica] = field(array(RenewedReplica))


class AllocateProducerIdsResult(Result, flexible="0+"):
    """Producer ids from `first` on, `count` of them, that no other broker hands out."""

    first: int = field(INT64)
    count: int = field(INT32)


class AllocateProducerIds(Request[AllocateProducerIdsResult], flexible="0+"):
    """A block of producer ids for one broker."""

    def is_answered_by(self, result: AllocateProducerIdsResult) -> bool:
        return result.first >= 0 and result.count > 0 and result.first + result.count < 2**63


class QuorumReplica(Message):
    """A member of the metadata group, as its leader sees it; -1 for what the leader does not know."""

    node_id: int = field(INT32)
    directory_id: uuid.UUID = field(UUID)
    end_offset: int = field(INT64)
    last_contact_ms: int = field(INT64)
    """Wall clock of the leader, as `last_caught_up_ms`."""
    last_caught_up_ms: int = field(INT64)


class QuorumNode(Message):
    """Where other nodes reach a voter."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(UINT16)


class DescribeQuorumResult(Result, flexible="0+"):
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    voters: list[QuorumReplica] = field(array(QuorumReplica))
    observers: list[QuorumReplica] = field(array(QuorumReplica))
    nodes: list[QuorumNode] = field(array(QuorumNode))


class DescribeQuorum(Request[DescribeQuorumResult], flexible="0+"):
    """Who votes on the metadata, and how far each has got."""
