"""IncrementalAlterConfigs: set, delete, append to and subtract from single settings (KIP-339).

Behaviour: the controller decides about each resource by itself: all changes to it, or none. The checks and their codes
are in broker.metadata.alterations. A broker's settings are changed through that broker, those of all brokers (the empty
name) through any. Answered when the change is committed and replayed here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from broker.config.resources import KINDS
from broker.handlers.describe_configs import check_broker_name
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.controller.settings import AlterConfigs, AlterConfigsResult, AlteredResource, SettingOperation
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: IncrementalAlterConfigsRequest) -> Steps:
    wanted = yield from altered_resources(body.resources, lambda config: config.config_operation)
    response = IncrementalAlterConfigsResponse(responses=[])
    validate_only = body.validate_only
    yield from alter(context, request, wanted, response, validate_only=validate_only, replaces_all=False)


def altered_resources(
    resources: Iterable[Any], operation_of: Callable[[Any], int]
) -> Generator[None, None, list[AlteredResource]]:
    """What a request of either API wants, in steps. `operation_of`: the AlterOperation of a setting that it names."""
    wanted: list[AlteredResource] = []
    for resource in resources:
        altered = AlteredResource(
            resource_type=resource.resource_type, name=resource.resource_name, operations=[]
        )
        for config in resource.configs:
            altered.operations.append(
                SettingOperation(name=config.name, operation=operation_of(config), value=config.value)
            )
            yield
        wanted.append(altered)
        yield
    return wanted


def alter(
    context: Context,
    request: Request,
    wanted: Sequence[AlteredResource],
    response: IncrementalAlterConfigsResponse | AlterConfigsResponse,
    *,
    validate_only: bool,
    replaces_all: bool,
) -> Steps:
    """Send the controller the changes that may be made through this broker, and answer for all of the request."""
    alterations = AlterConfigs(resources=[], replaces_all=replaces_all, validate_only=validate_only)
    passed_on: list[AlterConfigsResourceResponse] = []
    for each in wanted:
        answered = AlterConfigsResourceResponse(resource_type=each.resource_type, resource_name=each.name)
        response.responses.append(answered)
        try:
            _check_resource(context, each)
        except KafkaError as refused:
            answered.error_code, answered.error_message = refused.code, refused.message
        else:
            alterations.resources.append(each)
            passed_on.append(answered)
        yield

    def answer(result: AlterConfigsResult | KafkaError) -> None:
        context.long_requests.resume(request, _answer(request, response, passed_on, result))

    context.controller.call(alterations, answer)


def _answer(
    request: Request,
    response: IncrementalAlterConfigsResponse | AlterConfigsResponse,
    passed_on: Sequence[AlterConfigsResourceResponse],
    result: AlterConfigsResult | KafkaError,
) -> Steps:
    for position, answered in enumerate(passed_on):
        if isinstance(result, KafkaError):
            answered.error_code, answered.error_message = result.code, result.message
        else:
            item = result.resources[position]
            answered.error_code, answered.error_message = item.error_code, item.error_message
        yield
    yield from steps.reply(request, response)


def _check_resource(context: Context, resource: AlteredResource) -> None:
    """Raises KafkaError if the resource cannot be changed, or not through this broker."""
    kind = KINDS.get(resource.resource_type)
    if kind is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    if kind == "group" and not resource.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a group needs a name")
    if kind == "broker" and resource.name:
        check_broker_name(context, resource.name)


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, IncrementalAlterConfigsRequest, handle)
