"""What is asked of a transactional id, and the answers: values without wire versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch, TopicPartition
from protocol.errors import ErrorCode

NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_EPOCH)
#: `connection` of requests: in the order in which this node has accepted them, from 1 on.
NO_CONNECTION = 0


@dataclass(frozen=True, slots=True)
class InitProducer:
    transactional_id: str
    expected: ProducerIdAndEpoch | None
    """The producer id and epoch that the producer had; None for a new producer."""
    timeout_ms: int
    new_producer_id: int
    """Is used if the id is new, or the epochs of its producer id are exhausted."""


@dataclass(frozen=True, slots=True)
class AddPartitions:
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Sequence[TopicPartition]
    client_version: int
    """`transaction.version` by which the client works."""
    connection: int = NO_CONNECTION
    may_wait: bool = True
    """... until the markers of the transaction before are committed. The leader of a partition must not: when one of
    them comes, what it has seen of the producer is out of date (`broker.transactions.verification`)."""


@dataclass(frozen=True, slots=True)
class EndTransaction:
    transactional_id: str
    producer: ProducerIdAndEpoch
    is_commit: bool
    client_version: int
    new_producer_id: int = NO_PRODUCER_ID
    """Is used if the epochs of the producer id are exhausted."""
    connection: int = NO_CONNECTION


TransactionRequest = InitProducer | AddPartitions | EndTransaction


@dataclass(frozen=True, slots=True)
class TransactionAnswer:
    error: ErrorCode
    producer: ProducerIdAndEpoch = NO_PRODUCER
    """Who may write under the transactional id now."""


def refusal(error: ErrorCode) -> TransactionAnswer:
    return TransactionAnswer(error)


def in_version(error: ErrorCode, version: int) -> ErrorCode:
    """The error as clients know it that use this version of AddPartitionsToTxn, AddOffsetsToTxn or EndTxn."""
    if error == ErrorCode.PRODUCER_FENCED and version < 2:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.POLICY_VIOLATION and version >= 4:
        # The other one ends Java's producers. An abort gives room back.
        return ErrorCode.TRANSACTION_ABORTABLE
    return error
