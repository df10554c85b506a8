"""AlterConfigs: replaces all settings of a resource. Settings that are not named return to their defaults.

IncrementalAlterConfigs has superseded it. In everything else it is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.incremental_alter_configs import alter
from broker.metadata.alterations import AlterOperation
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.controller.settings import AlteredResource, SettingOperation
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: AlterConfigsRequest) -> Steps:
    wanted: list[AlteredResource] = []
    for resource in body.resources:
        altered = AlteredResource(
            resource_type=resource.resource_type, name=resource.resource_name, operations=[]
        )
        for config in resource.configs:
            altered.operations.append(
                SettingOperation(name=config.name, operation=AlterOperation.SET, value=config.value)
            )
            yield
        wanted.append(altered)
        yield
    response = AlterConfigsResponse(responses=[])
    validate_only = body.validate_only
    yield from alter(context, request, wanted, response, validate_only=validate_only, replaces_all=True)


API = Api(ApiKey.ALTER_CONFIGS, 0, 2, AlterConfigsRequest, handle)
