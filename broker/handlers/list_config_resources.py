"""ListConfigResources: the names of all resources that have settings (KIP-1142).

Behaviour: all topics and registered brokers, and the groups that have settings of their own. Version 0 asks for client
metrics subscriptions, of which there are none. A type that Apache Kafka does not list either is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.config.resources import KINDS
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

#: Types of Apache Kafka that do not exist here: broker loggers and client metrics.
_WITHOUT_RESOURCES = frozenset({8, 16})
_KNOWN = _WITHOUT_RESOURCES.union(KINDS)


def handle(context: Context, request: Request, body: ListConfigResourcesRequest) -> Steps:
    response = ListConfigResourcesResponse(config_resources=[])
    types = frozenset(body.resource_types)
    if not types <= _KNOWN:
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
    elif request.api_version > 0:
        for type_, kind in KINDS.items():
            for name in _names(context, kind) if type_ in types or not types else ():
                response.config_resources.append(ConfigResource(resource_type=type_, resource_name=name))
                yield
    yield from steps.reply(request, response)


def _names(context: Context, kind: str) -> Iterable[str]:
    image = context.image
    if kind == "topic":
        return image.topic_names()
    if kind == "broker":
        return [str(node_id) for node_id in sorted(image.brokers)]
    return image.configured(kind)


API = Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, ListConfigResourcesRequest, handle)
