"""ConsumerGroupHeartbeat: a member joins, stays in and leaves its group, and gets its assignment (KIP-848).

Behaviour
- The broker sets the heartbeat interval and the session timeout (`group.consumer.*`), not the client.
- The answer has the assignment if it has changed, and whenever the request is a full one (all fields are set).
- On FENCED_MEMBER_EPOCH a member gives up all partitions and joins again. On UNKNOWN_MEMBER_ID, too: it was removed.
- Not enabled (`group.coordinator.rebalance.protocols`): UNSUPPORTED_VERSION, and clients use the classic protocol.

Versions: in 0 the broker generates the member id if the request has none; from 1 on the client does. 1 adds regular
expressions.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from broker.coordinator.outcome import Decided
from broker.coordinator.ticket import Ticket
from broker.groups import consumer_shard
from broker.groups.assignors import Assignment
from broker.groups.consumer_member import JOIN_EPOCH
from broker.groups.consumer_requests import HeartbeatAnswer, HeartbeatRequest
from broker.groups.records import GroupRecord
from broker.groups.shard import Shard
from broker.metadata.ids import random_uuid, to_base64url
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    OwnedTopicPartitions,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: ConsumerGroupHeartbeatRequest) -> Steps:
    def reply(answer: HeartbeatAnswer) -> None:
        steps.finish(context, request, _response(answer), len(answer.assignment or ()))

    if "consumer" not in context.config.group_protocols:
        reply(HeartbeatAnswer(ErrorCode.UNSUPPORTED_VERSION))
        return
    owned = yield from _owned(body.topic_partitions)
    heartbeat = HeartbeatRequest(
        body.group_id,
        body.member_id,
        body.member_epoch,
        body.instance_id,
        body.rack_id,
        request.client_id,
        f"/{request.connection.host}",
        body.rebalance_timeout_ms,
        None if body.subscribed_topic_names is None else tuple(body.subscribed_topic_names),
        body.subscribed_topic_regex,
        body.server_assignor,
        owned,
    )
    names_itself = request.api_version >= 1 or body.member_epoch != JOIN_EPOCH or body.member_id != ""

    def decide(
        shard: Shard, ticket: Ticket[HeartbeatAnswer], now: float, now_ms: int
    ) -> Decided[GroupRecord]:
        named = (
            heartbeat if names_itself else replace(heartbeat, member_id=to_base64url(random_uuid(shard.rng)))
        )
        return consumer_shard.heartbeat(shard, ticket, named, now, now_ms)

    context.groups.ask(
        body.group_id,
        reply,
        HeartbeatAnswer,
        decide,
    )


def _owned(topics: list[OwnedTopicPartitions] | None) -> Generator[None, None, Assignment | None]:
    """A topic may be named more than once."""
    if topics is None:
        return None
    owned: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()).union(topic.partitions)
        yield
    return owned


def _response(answer: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if answer.assignment is not None:
        assignment = HeartbeatAssignment(
            topic_partitions=[
                AssignedTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in answer.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )


API = Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, ConsumerGroupHeartbeatRequest, handle)
