"""OffsetForLeaderEpoch: where an epoch ended, so that a consumer can tell whether its position is still good.

Behaviour: the largest epoch at or below the one asked for and the offset at which it ended; the current epoch
ends at the log end, never at the high watermark (clients would report truncation); unknown epochs answer (-1, -1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import KafkaError
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.node import Node


def handle(node: Node, request: Request, body: OffsetForLeaderEpochRequest) -> None:
    response = OffsetForLeaderEpochResponse(topics=[])
    for topic in body.topics:
        answers: list[EpochEndOffset] = []
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        for wanted in topic.partitions:
            answer = EpochEndOffset(partition=wanted.partition)
            answers.append(answer)
            try:
                replica = node.view.replica_named(topic.topic, wanted.partition)
                replica.check_leader_epoch(wanted.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = replica.log.lineage.epoch_end_offset(
                    wanted.leader_epoch, replica.log.end_offset
                )
            except KafkaError as error:
                answer.error_code = error.code
    request.reply_bytes(encode(response, request.api_version))


API = Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, OffsetForLeaderEpochRequest, handle)
