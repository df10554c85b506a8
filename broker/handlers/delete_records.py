"""DeleteRecords: raise the log start, so that no client reads records below an offset any more (KIP-107).

Behaviour
- -1 stands for the high watermark; any other offset that is negative or above it is OFFSET_OUT_OF_RANGE. One at or
  below the log start is answered as done. If a partition is named twice, the last offset counts (as in Kafka).
- Only the leader answers. A topic without cleanup.policy "delete" is POLICY_VIOLATION, an internal topic
  INVALID_TOPIC_EXCEPTION.
- A partition is answered when a majority has the log start durably, so that every later leader has it (replication.md
  section 6). The low watermark of the answer is that log start. After timeout_ms the answer is REQUEST_TIMED_OUT with
  the present log start; the deletion may still be done later.
- Answers that need no majority (done already, out of range) wait for a liveness round: a stale leader knows a lower
  end.
- A deletion writes no log entry and has no flush of its own. It is cheap enough to be called every 100 ms on hundreds
  of partitions (KIP-811). The bytes are deleted by whole segments.

Versions: 0 and 1 equal; 2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.ids import INTERNAL_TOPICS
from broker.serving.api import Api
from broker.serving.pending import PendingAnswer
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.replication.replica import Replica
    from broker.serving.context import Context
    from storage.log_types import GroupKey


class PendingDeletion(PendingAnswer[DeleteRecordsPartitionResult]):
    """A pending answer that keeps the replica and the requested offset of each waiting partition, by slot."""

    __slots__ = ("wanted",)

    def __init__(
        self, context: Context, request: Request, response: DeleteRecordsResponse, timeout_ms: int
    ) -> None:
        super().__init__(context, request, response, timeout_ms)
        self.wanted: list[tuple[Replica, int]] = []

    def _completed(self, answer: DeleteRecordsPartitionResult, slot: int) -> None:
        if answer.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            replica, _ = self.wanted[slot]
            answer.low_watermark = replica.log_start_offset


def handle(context: Context, request: Request, body: DeleteRecordsRequest) -> Steps:
    response = DeleteRecordsResponse(topics=[])
    pending = PendingDeletion(context, request, response, body.timeout_ms)
    unconfirmed: list[int] = []
    for topic in body.topics:
        answers: list[DeleteRecordsPartitionResult] = []
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
        yield
        for index, offset in {x.partition_index: x.offset for x in topic.partitions}.items():
            yield
            answer = DeleteRecordsPartitionResult(
                partition_index=index, low_watermark=-1, error_code=ErrorCode.NONE
            )
            answers.append(answer)
            try:
                replica = _find(context, topic.name, index)
            except KafkaError as error:
                answer.error_code = error.code
                continue
            slot = pending.add(answer)
            pending.wanted.append((replica, offset))
            if not _delete(pending, slot, is_confirmed=False):
                unconfirmed.append(slot)

    def confirmed(keys: set[GroupKey]) -> None:
        context.long_requests.resume(request, _delete_confirmed(pending, unconfirmed, keys))

    if unconfirmed:
        replicas = dict.fromkeys(pending.wanted[slot][0] for slot in unconfirmed)
        context.reads.confirm(list(replicas), confirmed)
    pending.wait_or_reply()


def _delete_confirmed(pending: PendingDeletion, slots: list[int], keys: set[GroupKey]) -> Steps:
    for slot in slots:
        replica, _ = pending.wanted[slot]
        if replica.key in keys:
            _delete(pending, slot, is_confirmed=True)
        else:
            pending.partition_done(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        yield


def _find(context: Context, topic: str, partition: int) -> Replica:
    """The replica on this node. Raises KafkaError if there is none, or the topic is internal."""
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    return context.view.replica_named(topic, partition)


def _delete(pending: PendingDeletion, slot: int, *, is_confirmed: bool) -> bool:
    """Delete, and have the answer wait for a majority. False: the answer needs no majority, and only a confirmed leader
    may give it. The caller has to confirm the leadership and call this again."""
    replica, offset = pending.wanted[slot]
    try:
        end_offset = replica.log_start.delete_records(offset)
        if end_offset <= replica.log_start_offset and not is_confirmed:
            return False
        replica.log_start.wait_committed(end_offset, pending, slot)
    except KafkaError as error:
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and not is_confirmed:
            return False
        pending.partition_done(slot, error.code)
    return True


API = Api(ApiKey.DELETE_RECORDS, 0, 2, DeleteRecordsRequest, handle)
