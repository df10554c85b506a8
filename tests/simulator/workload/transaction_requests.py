"""What a transactional producer asks of coordinators, and what an error means for its transaction."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.simulator.client import Connection
from tests.simulator.invariants.fenced_never_writes import Owner
from tests.simulator.invariants.offsets_never_back import Committed
from tests.simulator.workload.group_requests import COORDINATOR_RETRIABLE, OFFSET_FETCH_VERSION, Place
from tests.simulator.workload.retry import RETRIABLE

INIT_PRODUCER_ID_VERSION = 4
ADD_PARTITIONS_VERSION = 3
ADD_OFFSETS_VERSION = 3


class Versions(NamedTuple):
    """Of the requests by which the two protocols of transactions differ."""

    produce: int
    txn_offset_commit: int
    end_txn: int


#: By transaction.version. With 2, each end raises the epoch, and brokers add partitions themselves (KIP-890).
VERSIONS = {1: Versions(11, 4, 4), 2: Versions(12, 5, 5)}

#: The same request again, perhaps to another node, may be answered otherwise.
AGAIN = RETRIABLE | COORDINATOR_RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS}
#: Another producer has the transactional id, or the transaction has timed out.
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
#: The transaction can only be aborted.
ABORTABLE = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE})


class FencedError(Exception):
    """The producer may do nothing more under its epoch."""


class AbortableError(Exception):
    """The transaction has to be aborted."""


def must_ask_again(code: int) -> bool:
    """Of any request in a transaction: whether it failed for now. Raises FencedError, AbortableError."""
    error = ErrorCode(code)
    if error in FENCED:
        raise FencedError(error.name)
    if error in ABORTABLE:
        raise AbortableError(error.name)
    assert error is ErrorCode.NONE or error in AGAIN, error
    return error is not ErrorCode.NONE


async def init_producer(
    connection: Connection, transactional_id: str, timeout_ms: int, expected: Owner
) -> InitProducerIdResponse:
    """`expected`: what the producer had, to go on as another epoch. Raises OSError, TimeoutError, as the others."""
    body = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=expected.producer_id,
        producer_epoch=expected.epoch,
    )
    return await connection.request(
        ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, body, InitProducerIdResponse
    )


async def add_partitions(
    connection: Connection, transactional_id: str, owner: Owner, places: Collection[Place]
) -> ErrorCode:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=owner.producer_id,
        v3_and_below_producer_epoch=owner.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
        ],
    )
    answer = await connection.request(
        ApiKey.ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION, body, AddPartitionsToTxnResponse
    )
    codes = {
        ErrorCode(each.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }
    # One that does not exist yet is no fault of the others.
    (code,) = codes - {ErrorCode.OPERATION_NOT_ATTEMPTED}
    return code


async def add_offsets(connection: Connection, transactional_id: str, owner: Owner, group: str) -> ErrorCode:
    body = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        group_id=group,
    )
    answer = await connection.request(
        ApiKey.ADD_OFFSETS_TO_TXN, ADD_OFFSETS_VERSION, body, AddOffsetsToTxnResponse
    )
    return ErrorCode(answer.error_code)


async def commit_offset(
    connection: Connection,
    transactional_id: str,
    owner: Owner,
    place: Committed,
    offset: int,
    metadata: str,
    version: int,
) -> ErrorCode:
    wanted = TxnOffsetCommitRequestPartition(
        partition_index=place.partition, committed_offset=offset, committed_metadata=metadata
    )
    body = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=place.group,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=place.topic, partitions=[wanted])],
    )
    answer = await connection.request(ApiKey.TXN_OFFSET_COMMIT, version, body, TxnOffsetCommitResponse)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def fetch_stable(connection: Connection, place: Committed) -> tuple[ErrorCode, int, str]:
    """(error, offset, metadata)."""
    wanted = OffsetFetchRequestTopic(name=place.topic, partition_indexes=[place.partition])
    body = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=place.group, topics=[wanted])], require_stable=True
    )
    answer = await connection.request(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, body, OffsetFetchResponse)
    (group,) = answer.groups
    if group.error_code != ErrorCode.NONE:
        return ErrorCode(group.error_code), -1, ""
    found = group.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.committed_offset, found.metadata or ""


def end_request(transactional_id: str, owner: Owner, *, is_commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=owner.producer_id,
        producer_epoch=owner.epoch,
        committed=is_commit,
    )


async def end_transaction(connection: Connection, body: EndTxnRequest, version: int) -> EndTxnResponse:
    return await connection.request(ApiKey.END_TXN, version, body, EndTxnResponse)
