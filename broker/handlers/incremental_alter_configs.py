"""IncrementalAlterConfigs: set, delete, append to and subtract from single settings (KIP-339).

Behaviour: decided by the controller, each resource for itself, all of a resource or nothing; the checks and their codes
stand in broker.metadata.alterations. A broker's settings are changed through that broker, those of all brokers (the
empty name) through any. Answered when the change is committed and replayed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from broker.config.resources import KINDS
from broker.handlers.describe_configs import check_broker_name
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.serving.context import Context

#: (resource type, resource name, its (setting, operation, value)).
Wanted = tuple[int, str, list[tuple[str, int, str | None]]]


def handle(context: Context, request: Request, body: IncrementalAlterConfigsRequest) -> None:
    wanted: list[Wanted] = [
        (
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.config_operation, config.value) for config in resource.configs],
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
    wanted: Sequence[Wanted],
    response: IncrementalAlterConfigsResponse | AlterConfigsResponse,
    *,
    validate_only: bool,
    replaces_all: bool,
) -> None:
    """Have the controller change what this broker may pass on, and answer for all of it."""
    response.responses = [
        AlterConfigsResourceResponse(resource_type=type_, resource_name=name) for type_, name, _ in wanted
    ]
    passed_on: list[AlterConfigsResourceResponse] = []
    resources = []
    for (type_, name, operations), result in zip(wanted, response.responses, strict=True):
        try:
            resources.append((_kind(context, type_, name), name, operations))
        except KafkaError as refused:
            result.error_code, result.error_message = refused.code, refused.message
        else:
            passed_on.append(result)

    def answer(answered: dict[str, Any]) -> None:
        if request.is_abandoned:
            return
        failed = (answered["error_code"], answered.get("message"))
        results = answered["results"] if failed[0] == ErrorCode.NONE else [failed] * len(passed_on)
        for result, (error_code, message) in zip(passed_on, results, strict=True):
            result.error_code, result.error_message = error_code, message
        request.reply_bytes(encode(response, request.api_version))

    arguments = {"resources": resources, "validate_only": validate_only, "replaces_all": replaces_all}
    context.controller.call("alter_configs", arguments, answer)


def _kind(context: Context, resource_type: int, name: str) -> str:
    kind = KINDS.get(resource_type)
    if kind is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")
    if kind == "group" and not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a group has a name")
    if kind == "broker" and name:
        check_broker_name(context, name)
    return kind


API = Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, IncrementalAlterConfigsRequest, handle)
