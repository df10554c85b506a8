"""DescribeCompaction: how this node's replicas stand with compaction. It is Varve's own, for `varve topic describe
--compaction` and `varve explain`.

Behaviour
- Each node describes its own replicas. The one that leads a partition also tells what it sees of the other members:
  which of them keeps tombstones and transaction markers from going, why, and since when. A new leader counts that time
  from when it began to lead.
- What was counted by passes (held records) is known since the first pass of this process.
- A log that cannot be read is KAFKA_STORAGE_ERROR.

Version: 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.compaction.members import member_standings
from broker.metadata.topic_checks import check_name
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_compaction import (
    CompactionMember,
    DescribeCompactionRequest,
    DescribeCompactionResponse,
    DescribeCompactionTopicResult,
    HeldRecords,
    PartitionCompaction,
)
from storage.errors import CorruptLogError

if TYPE_CHECKING:
    from broker.compaction.standing import LogCompaction, Standing
    from broker.network.request import Request
    from broker.replication.replica import Replica
    from broker.replication.watermarks.pins import Pin
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DescribeCompactionRequest) -> Steps:
    response = DescribeCompactionResponse(topics=[])
    for topic in body.topics:
        described = DescribeCompactionTopicResult(name=topic.name, partitions=[])
        response.topics.append(described)
        yield
        for index in dict.fromkeys(topic.partition_indexes):
            described.partitions.append(_describe(context, topic.name, index))
            yield
    yield from steps.reply(request, response)


def _describe(context: Context, topic: str, index: int) -> PartitionCompaction:
    answer = PartitionCompaction(
        partition_index=index,
        tombstones=HeldRecords(),
        markers=HeldRecords(),
        remnants=HeldRecords(),
        members=[],
    )
    try:
        check_name(topic)
        replica = context.view.replica_named(topic, index)
        standing = context.compaction.standing(replica)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.code, error.message or None
        return answer
    except CorruptLogError as error:
        answer.error_code, answer.error_message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        return answer
    _set_offsets(answer, replica, standing)
    _set_pass(answer, replica, standing, context)
    if replica.is_leader:
        answer.members = _members(context, replica)
    return answer


def _set_offsets(answer: PartitionCompaction, replica: Replica, standing: Standing) -> None:
    bounds, plan = replica.bounds, standing.plan
    answer.log_start_offset = replica.log.start_offset
    answer.log_end_offset = replica.log.end_offset
    answer.high_watermark = replica.high_watermark
    answer.last_stable_offset = replica.last_stable_offset
    answer.active_segment_offset = replica.log.active_segment_base
    answer.first_dirty_offset = plan.first_dirty_offset
    answer.first_uncleanable_offset = plan.first_uncleanable_offset
    answer.max_cleanly_compacted_offset = bounds.cleaned_end
    answer.max_transaction_free_offset = bounds.durable.mxfo
    answer.max_tombstone_remove_offset = bounds.mtro
    answer.max_transaction_remove_offset = bounds.mxro


def _set_pass(answer: PartitionCompaction, replica: Replica, standing: Standing, context: Context) -> None:
    plan, memory = standing.plan, standing.memory
    answer.size_bytes = standing.size_bytes
    answer.clean_bytes, answer.dirty_bytes = plan.clean_bytes, plan.dirty_bytes
    answer.blocked_by, answer.limit = standing.blocked_by, standing.limit
    answer.is_running = standing.is_running
    answer.last_compacted_ms = replica.bounds.durable.passed_at_ms
    answer.failure = memory.failure
    if memory.failure:
        answer.retry_at_ms = _unix_ms(context, memory.retry_at)
    answer.is_map_full = memory.is_map_full
    if memory.counts is not None:
        answer.records_before, answer.records_after = memory.counts.records_in, memory.counts.records_out
    _set_held(answer, memory)


def _set_held(answer: PartitionCompaction, memory: LogCompaction) -> None:
    parts = answer.tombstones, answer.markers, answer.remnants
    for part, first in zip(parts, memory.held, strict=True):
        if first is not None:
            part.first_horizon_ms, part.first_end_offset = first
    if (counts := memory.counts) is not None:
        for part, held in zip(parts, (counts.tombstones, counts.markers, counts.remnants), strict=True):
            part.count, part.size_bytes = held.count, held.size_bytes


def _members(context: Context, leader: Replica) -> list[CompactionMember]:
    return [
        CompactionMember(
            node_id=each.member.node_id,
            is_learner=each.is_learner,
            max_cleanly_compacted_offset=each.cleaned.mtro,
            max_transaction_free_offset=each.cleaned.mxro,
            blocked_by=each.blocked_by,
            dirty_bytes=each.dirty_bytes,
            pins_tombstones_since_ms=_since_ms(context, each.tombstone_pin),
            pins_markers_since_ms=_since_ms(context, each.marker_pin),
        )
        for each in member_standings(leader, context.view.alive_brokers())
    ]


def _since_ms(context: Context, pin: Pin | None) -> int:
    return -1 if pin is None else _unix_ms(context, pin.since)


def _unix_ms(context: Context, loop_time: float) -> int:
    return context.replicas.now_ms() + round((loop_time - context.now()) * 1000)


API = Api(ApiKey.DESCRIBE_COMPACTION, 0, 0, DescribeCompactionRequest, handle)
