"""AlterConfigs: replaces all settings of a resource. Settings that are not named return to their defaults.

IncrementalAlterConfigs has superseded it. In everything else it is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.incremental_alter_configs import alter, altered_resources
from broker.metadata.alterations import AlterOperation
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: AlterConfigsRequest) -> Steps:
    wanted = yield from altered_resources(body.resources, lambda config: AlterOperation.SET)
    response = AlterConfigsResponse(responses=[])
    validate_only = body.validate_only
    yield from alter(context, request, wanted, response, validate_only=validate_only, replaces_all=True)


API = Api(ApiKey.ALTER_CONFIGS, 0, 2, AlterConfigsRequest, handle)
