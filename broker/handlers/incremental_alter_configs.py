"""IncrementalAlterConfigs: set, delete, append to and subtract from single settings (KIP-339).

Behaviour: the controller decides about each resource by itself: all changes to it, or none. The checks and their codes
are in broker.metadata.alterations. A broker's settings are changed through that broker, those of all brokers (the empty
name) through any. Answered when the change is committed and replayed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.config.resources import KINDS
from broker.handlers.describe_configs import check_broker_name
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
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


def handle(context: Context, request: Request, body: IncrementalAlterConfigsRequest) -> None:
    wanted = [
        AlteredResource(
            resource_type=resource.resource_type,
            name=resource.resource_name,
            operations=[
                SettingOperation(name=config.name, operation=config.config_operation, value=config.value)
                for config in resource.configs
            ],
        )
        for resource in body.resources
    ]
    alter(
        context,
        request,
        wanted,
        IncrementalAlterConfigsResponse(responses=[]),
        validate_only=body.validate_only,
        replaces_all=False,
    )


def alter(
    context: Context,
    request: Request,
    wanted: Sequence[AlteredResource],
    response: IncrementalAlterConfigsResponse | AlterConfigsResponse,
    *,
    validate_only: bool,
    replaces_all: bool,
) -> None:
    """Send the controller the changes that may be made through this broker, and answer for all of the request."""
    response.responses = [
        AlterConfigsResourceResponse(resource_type=each.resource_type, resource_name=each.name)
        for each in wanted
    ]
    passed_on: list[tuple[AlteredResource, AlterConfigsResourceResponse]] = []
    for each, answered in zip(wanted, response.responses, strict=True):
        try:
            _check_resource(context, each)
        except KafkaError as refused:
            answered.error_code, answered.error_message = refused.code, refused.message
        else:
            passed_on.append((each, answered))

    def answer(result: AlterConfigsResult | KafkaError) -> None:
        if request.is_abandoned:
            return
        for position, (_, answered) in enumerate(passed_on):
            if isinstance(result, KafkaError):
                answered.error_code, answered.error_message = result.code, result.message
            else:
                item = result.resources[position]
                answered.error_code, answered.error_message = item.error_code, item.error_message
        request.reply_bytes(encode(response, request.api_version))

    alterations = AlterConfigs(
        resources=[each for each, _ in passed_on], replaces_all=replaces_all, validate_only=validate_only
    )
    context.controller.call(alterations, answer)


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
