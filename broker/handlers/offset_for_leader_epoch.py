"""OffsetForLeaderEpoch: the end offset of an epoch, by which a consumer checks that its position is still valid.

Behaviour: the answer is the largest epoch at or below the requested one, and its end offset. The current epoch ends at
the log end, not at the high watermark (clients would report truncation). Unknown epochs are answered (-1, -1), on which
clients reset their position, too. So every answer waits for a liveness round, as in ListOffsets: a stale leader does
not know its successor's epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.replication.replica import Replica
    from broker.serving.context import Context
    from storage.log_types import GroupKey


def handle(context: Context, request: Request, body: OffsetForLeaderEpochRequest) -> Steps:
    led: dict[Replica, None] = {}
    for topic in body.topics:
        for wanted in topic.partitions:
            replica = context.view.led_replica(topic.topic, wanted.partition)
            if replica is not None:
                led[replica] = None
            yield
        yield

    def answer(confirmed: set[GroupKey]) -> None:
        context.long_requests.resume(request, _answer(context, request, body, confirmed))

    context.reads.confirm(list(led), answer)


def _answer(
    context: Context, request: Request, body: OffsetForLeaderEpochRequest, confirmed: set[GroupKey]
) -> Steps:
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in body.topics:
        yield
        answers: list[EpochEndOffset] = []
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        for wanted in topic.partitions:
            yield
            answer = EpochEndOffset(partition=wanted.partition)
            answers.append(answer)
            try:
                replica = context.view.replica_named(topic.topic, wanted.partition)
                replica.check_leader_epoch(wanted.current_leader_epoch)
                if replica.key not in confirmed:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                answer.leader_epoch, answer.end_offset = replica.log.lineage.epoch_end_offset(
                    wanted.leader_epoch, replica.log.end_offset
                )
            except KafkaError as error:
                answer.error_code = error.code
    yield from steps.reply(request, response)


API = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, OffsetForLeaderEpochRequest, handle)
