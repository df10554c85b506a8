"""TxnOffsetCommit: a transaction commits offsets of a group.

Behaviour
- The offsets are pending until the transaction ends: nobody sees them, and they count if it is committed.
- A member that is named must be one, in the present generation: a consumer that has lost its partitions cannot commit
  what it has processed (KIP-447). Who names none is accepted. A member epoch that is not the present one is
  ILLEGAL_GENERATION, too: of STALE_MEMBER_EPOCH a Java producer knows nothing, and ends.
- Before the first offsets of a transaction are written, its coordinator is asked (KIP-890), as by Produce.
- Partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION, and metadata that is too long OFFSET_METADATA_TOO_LARGE,
  each by itself.
- An offset that there is no memory for (`varve.max.group.bytes`, `varve.max.transaction.bytes`) is
  TRANSACTION_ABORTABLE, below version 4 ILLEGAL_GENERATION: clients abort after both. A commit that is too large for a
  batch is INVALID_COMMIT_OFFSET_SIZE, as in Apache Kafka, and ends a Java producer.

Versions: 2 leader epoch; 3 flexible, and names the member; in 4 the client understands TRANSACTION_ABORTABLE; from 5 on
the group's partition is added to the transaction, and AddOffsetsToTxn is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import TYPE_CHECKING

from broker.groups.commit import CommitAnswer, CommitRequest, OffsetToCommit
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from broker.transactions.metadata import ProducerIdAndEpoch
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.replication.replica import Replica
    from broker.serving.context import Context
    from broker.transactions.verification import Verification

_FIRST_VERSION_THAT_ADDS = 5
#: Partitions that are looked at in one step.
_FEW = 50


def handle(context: Context, request: Request, body: TxnOffsetCommitRequest) -> Steps:
    response = TxnOffsetCommitResponse(topics=[])
    offsets: list[OffsetToCommit] = []
    slots: list[TxnOffsetCommitResponsePartition] = []
    for topic in body.topics:
        record = context.image.topic_named(topic.name)
        answered = TxnOffsetCommitResponseTopic(name=topic.name, partitions=[])
        response.topics.append(answered)
        for each in topic.partitions:
            index = each.partition_index
            slot = TxnOffsetCommitResponsePartition(partition_index=index)
            answered.partitions.append(slot)
            if record is None or not 0 <= index < len(record.partitions):
                slot.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                slots.append(slot)
                offset, epoch = each.committed_offset, each.committed_leader_epoch
                metadata = each.committed_metadata or ""
                offsets.append(OffsetToCommit(record.name, record.topic_id, index, offset, epoch, metadata))
            if len(answered.partitions) % _FEW == 0:
                yield
        yield

    def answer(result: CommitAnswer) -> None:
        for slot, error in zip(slots, result.errors or repeat(result.error), strict=False):
            if error == ErrorCode.POLICY_VIOLATION or (
                result.errors and error == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            ):
                slot.error_code = _no_memory(request.api_version)
            else:
                slot.error_code = _in_version(request.api_version, error)
        steps.finish(context, request, response, len(slots) + len(body.topics))

    if not offsets:
        answer(CommitAnswer(ErrorCode.NONE, []))
        return
    try:
        context.replicas.check_space()
        replica = context.groups.replica_of(body.group_id)
    except KafkaError as error:
        is_full = error.code == ErrorCode.KAFKA_STORAGE_ERROR
        answer(CommitAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE if is_full else error.code, []))
        return
    _Commit(context, request, body, offsets, replica, answer).start()


class _Commit:
    """A commit whose partitions exist."""

    def __init__(
        self,
        context: Context,
        request: Request,
        body: TxnOffsetCommitRequest,
        offsets: list[OffsetToCommit],
        replica: Replica,
        answer: Callable[[CommitAnswer], None],
    ) -> None:
        """`replica`: the group's partition, which this node leads."""
        self._context = context
        self._request = request
        self._body = body
        self._replica = replica
        self._answer = answer
        self._producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
        self._offsets = offsets
        self._verification: Verification | None = None

    def start(self) -> None:
        if not self._replica.producers.begins_transaction(*self._producer):
            self._ask()
            return
        self._request.connection.hold_requests()
        self._context.verifier.verify(
            self._body.transactional_id,
            self._producer,
            [self._replica],
            self._verified,
            is_added=self._request.api_version >= _FIRST_VERSION_THAT_ADDS,
        )

    def _verified(self, verification: Verification) -> None:
        self._verification = verification
        if not self._request.is_abandoned:
            self._ask()
        self._request.connection.release_requests()

    def _ask(self) -> None:
        body = self._body
        commit = CommitRequest(
            body.group_id,
            self._offsets,
            body.member_id,
            body.group_instance_id,
            body.generation_id,
            producer=self._producer,
            check_append=self._check_append,
        )
        self._context.groups.ask(
            body.group_id,
            self._answer,
            lambda error: CommitAnswer(error, []),
            lambda shard, ticket, now, now_ms: shard.commit_offsets(ticket, commit, now, now_ms),
        )

    def _check_append(self) -> None:
        """Raises KafkaError unless the transaction is open."""
        if self._replica.producers.begins_transaction(*self._producer):
            if self._verification is None:  # this was not so when the request came: the client sends it again
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._verification.check(self._replica, self._producer)


def _no_memory(version: int) -> ErrorCode:
    """For one offset. An abort gives some back. Clients of version 3 know no error that says so, but abort after this
    one."""
    return ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.ILLEGAL_GENERATION


def _in_version(version: int, error: ErrorCode) -> ErrorCode:
    """What the group, or the transaction's coordinator, says, as clients of this version know it."""
    if error in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.STALE_MEMBER_EPOCH):
        return ErrorCode.ILLEGAL_GENERATION
    if version < _FIRST_VERSION_THAT_ADDS and error == ErrorCode.CONCURRENT_TRANSACTIONS:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if version < 2 and error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
        )  # the other one ends Java's producers of that time (KAFKA-7296)
    if version < 4 and error == ErrorCode.TRANSACTION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return error


API = Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, TxnOffsetCommitRequest, handle)
