"""DescribeConfigs: the settings of topics, brokers and groups, their sources and their synonyms (KIP-226).

Behaviour
- A topic shows all its settings. A broker shows only its own, because each knows what it was started with. The empty
  broker name stands for the settings that clients have made for all brokers.
- A group shows all its settings, whether it exists or not: they may be set before it does.
- `configuration_keys` selects settings, and unknown ones are left out. Null or an empty list selects all.
- A resource is answered once, however often it is named.
- An unknown topic is UNKNOWN_TOPIC_OR_PARTITION, another broker or another kind of resource INVALID_REQUEST.
- The answer shows what is committed and replayed on this broker. A client that has just changed a setting through this
  broker sees the change.

Versions: 1 synonyms; 3 types and documentation; 4 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.layers import Described
from broker.config.resources import KINDS
from broker.metadata.topic_checks import check_name
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DescribeConfigsRequest) -> Steps:
    # Each resource once, however often it is named: an answer is thousands of times as large as a name.
    resources = {(each.resource_type, each.resource_name): each for each in body.resources}
    answers = _Answers(context, body)
    results: list[DescribeConfigsResult] = []
    for resource in resources.values():
        results.append(answers.answer(resource))
        yield
    yield from steps.reply(request, DescribeConfigsResponse(results=results))


class _Answers:
    """The answers about the resources of one request."""

    def __init__(self, context: Context, body: DescribeConfigsRequest) -> None:
        self._context = context
        self._body = body
        #: What was described last, and its part of the answer. Resources without settings of their own have the same.
        self._last: tuple[list[Described], list[DescribeConfigsResourceResult]] = ([], [])

    def answer(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        result = DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            rows = _described(self._context, resource)
        except KafkaError as refused:
            result.error_code, result.error_message = refused.code, refused.message
            return result
        if resource.configuration_keys:
            wanted = frozenset(resource.configuration_keys)
            result.configs = [_row(self._body, row) for row in rows if row.name in wanted]
            return result
        if rows is not self._last[0]:
            self._last = rows, [_row(self._body, row) for row in rows]
        result.configs = self._last[1]
        return result


def _described(context: Context, resource: DescribeConfigsResource) -> list[Described]:
    name = resource.resource_name
    match KINDS.get(resource.resource_type):
        case "topic":
            check_name(name)
            topic = context.image.topic_named(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return context.resources.describe_topic(topic.configs)
        case "broker" if not name:
            return context.resources.describe_all_nodes()
        case "broker":
            check_broker_name(context, name)
            return context.resources.describe_node()
        case "group" if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a group needs a name")
        case "group":
            return context.resources.describe_group(context.image.configs_of("group", name))
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def check_broker_name(context: Context, name: str) -> None:
    """A broker shows and changes only its own settings, or those of all brokers (""). Raises KafkaError for another
    name."""
    if name != str(context.config.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {context.config.node_id} or empty string, but received {name}",
        )


def _row(body: DescribeConfigsRequest, row: Described) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=row.name,
        value=row.value,
        read_only=row.is_read_only,
        config_source=row.source,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in (row.synonyms if body.include_synonyms else ())
        ],
        config_type=row.type,
        documentation=row.doc if body.include_documentation else None,
    )


API = Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, DescribeConfigsRequest, handle)
