"""CreateTopics: forwarded to the controller by whichever broker was asked; answered when the topics are committed and
have leaders, or when the client's timeout is over; the topics are created then all the same.

Behaviour: the checks and their error codes are in broker.metadata.decisions.topics. From version 5 on the answer
carries the topic's effective configuration (never null: the Java AdminClient fails on that), from 7 on its id.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.controller.topics import (
    CreatedTopic,
    CreateTopics,
    CreateTopicsResult,
    NewTopic,
    ReplicaAssignment,
    TopicSetting,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.schema import NIL_UUID
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.config.layers import Described
    from broker.config.resources import Resources
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: CreateTopicsRequest) -> Steps:
    began = context.now()
    wanted = CreateTopics(topics=[], validate_only=body.validate_only)
    for topic in body.topics:
        wanted.topics.append((yield from _wanted(topic)))
        yield

    def created(result: CreateTopicsResult | KafkaError) -> None:
        context.long_requests.resume(request, _wait_for_leaders(context, request, body, began, result))

    context.controller.call(wanted, created)


def _wanted(topic: CreatableTopic) -> Generator[None, None, NewTopic]:
    new = NewTopic(
        name=topic.name, num_partitions=topic.num_partitions, replication_factor=topic.replication_factor
    )
    for each in topic.assignments:
        new.assignments.append(ReplicaAssignment(partition=each.partition_index, node_ids=each.broker_ids))
        yield
    for config in topic.configs:
        new.settings.append(TopicSetting(name=config.name, value=config.value))
        yield
    return new


def _wait_for_leaders(
    context: Context,
    request: Request,
    body: CreateTopicsRequest,
    began: float,
    result: CreateTopicsResult | KafkaError,
) -> Steps:
    made: list[GroupKey] = []
    for topic in () if isinstance(result, KafkaError) else result.topics:
        if topic.topic_id != NIL_UUID:
            made += [GroupKey(topic.topic_id, number) for number in range(topic.num_partitions)]
        yield

    def answer() -> None:
        context.long_requests.resume(request, _answer(context, request, body, result))

    context.leader_waits.wait_for_new_partitions(made, began, body.timeout_ms, answer)


def _answer(
    context: Context, request: Request, body: CreateTopicsRequest, result: CreateTopicsResult | KafkaError
) -> Steps:
    response = CreateTopicsResponse(topics=[])
    if isinstance(result, KafkaError):
        for each in body.topics:
            response.topics.append(
                CreatableTopicResult(name=each.name, error_code=result.code, error_message=result.message)
            )
            yield
    else:
        settings = _Settings(context.resources)
        for topic in result.topics:
            response.topics.append(_result(settings, topic))
            yield
    yield from steps.reply(request, response)


class _Settings:
    """What a topic's part of the answer says about its settings."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        #: What was described last. Topics without settings of their own have the same.
        self._last: tuple[list[Described], list[CreatableTopicConfigs]] = ([], [])

    def of(self, topic: CreatedTopic) -> list[CreatableTopicConfigs]:
        overrides = {each.name: each.value for each in topic.settings if each.value is not None}
        rows = self._resources.describe_topic(overrides)
        if rows is not self._last[0]:
            configs = [
                CreatableTopicConfigs(name=row.name, value=row.value, config_source=row.source)
                for row in rows
            ]
            self._last = rows, configs
        return self._last[1]


def _result(settings: _Settings, topic: CreatedTopic) -> CreatableTopicResult:
    if topic.error_code != ErrorCode.NONE:
        return CreatableTopicResult(
            name=topic.name, error_code=topic.error_code, error_message=topic.error_message
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=settings.of(topic),
    )


API = Api(ApiKey.CREATE_TOPICS, 2, 7, CreateTopicsRequest, handle)
