"""Requests and results on the wire: a number for each operation, and the codecs of the bodies.

An operation that is added needs a number of its own. A node that does not know it answers UNSUPPORTED_VERSION, so
that a newer node can ask it and learn that.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from protocol.codec import encode_in_steps, step_decoder
from protocol.controller.brokers import (
    AllocateProducerIds,
    AllocateProducerIdsResult,
    DescribeQuorum,
    DescribeQuorumResult,
    RegisterBroker,
    RenewReplicas,
    UnregisterBroker,
)
from protocol.controller.replicas import (
    FinishReassignment,
    ListReassignments,
    ListReassignmentsResult,
    ReassignPartitions,
    ReassignPartitionsResult,
    TransferLeadership,
    TransferLeadershipResult,
)
from protocol.controller.request import EmptyResult, Request, Result, ResultT
from protocol.controller.settings import (
    AlterConfigs,
    AlterConfigsResult,
    AlterQuotas,
    AlterQuotasResult,
    UpdateFeatures,
)
from protocol.controller.topics import (
    CreateMissingTopics,
    CreatePartitions,
    CreatePartitionsResult,
    CreateTopics,
    CreateTopicsResult,
    DeleteTopics,
    DeleteTopicsResult,
    FindDeletedTopics,
    FindDeletedTopicsResult,
)
from protocol.controller.transactions import (
    ErrorCodesResult,
    JoinedResult,
    JoinTransaction,
    WriteMarkers,
)
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.schema import Message

VERSION = 0

#: Number on the wire -> request and result. A number is never used again for another operation.
OPERATIONS: dict[int, tuple[type[Request[Any]], type[Result]]] = {
    1: (RegisterBroker, EmptyResult),
    2: (UnregisterBroker, EmptyResult),
    3: (RenewReplicas, EmptyResult),
    4: (AllocateProducerIds, AllocateProducerIdsResult),
    5: (DescribeQuorum, DescribeQuorumResult),
    6: (CreateTopics, CreateTopicsResult),
    7: (CreateMissingTopics, CreateTopicsResult),
    8: (DeleteTopics, DeleteTopicsResult),
    9: (CreatePartitions, CreatePartitionsResult),
    10: (FindDeletedTopics, FindDeletedTopicsResult),
    11: (ReassignPartitions, ReassignPartitionsResult),
    12: (ListReassignments, ListReassignmentsResult),
    13: (FinishReassignment, EmptyResult),
    14: (TransferLeadership, TransferLeadershipResult),
    15: (AlterConfigs, AlterConfigsResult),
    16: (AlterQuotas, AlterQuotasResult),
    17: (WriteMarkers, ErrorCodesResult),
    18: (JoinTransaction, JoinedResult),
    19: (UpdateFeatures, EmptyResult),
}
_NUMBER_OF = {request: number for number, (request, _) in OPERATIONS.items()}


def encode_request(request: Request[Any]) -> Generator[None, None, tuple[int, bytes]]:
    """Returns the operation's number and the body. In steps, as all of these functions: a request of a client, and so
    its result, may name thousands of things."""
    body = yield from _encode(request)
    return _NUMBER_OF[type(request)], body


def decode_request(operation: int, body: bytes | None) -> Generator[None, None, Request[Any]]:
    """Raises KafkaError(UNSUPPORTED_VERSION) for an operation that is not known here, ProtocolError for a body that is
    not exactly one request of it."""
    if operation not in OPERATIONS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"operation {operation} is not known here")
    request: Request[Any] = yield from _decode(OPERATIONS[operation][0], body)
    return request


def encode_result(result: Result) -> Generator[None, None, bytes]:
    return _encode(result)


def decode_result(request: Request[ResultT], body: bytes | None) -> Generator[None, None, ResultT]:
    """What another node answered to `request`. Raises ProtocolError for anything that is no answer to it."""
    result: ResultT = yield from _decode(OPERATIONS[_NUMBER_OF[type(request)]][1], body)
    if not request.is_answered_by(result):
        raise ProtocolError(f"this {type(result).__name__} does not answer {type(request).__name__}")
    return result


def _encode(message: Message) -> Generator[None, None, bytes]:
    return b"".join((yield from encode_in_steps(message, VERSION)))


def _decode(cls: type[Message], body: bytes | None) -> Generator[None, None, Any]:
    if body is None:
        raise ProtocolError(f"{cls.__name__} without a body")
    message, end = yield from step_decoder(cls, VERSION)(memoryview(body), 0)
    if end != len(body):
        raise ProtocolError(f"{len(body) - end} bytes behind a {cls.__name__}")
    return message
