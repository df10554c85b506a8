"""ListConfigResources: the names of all resources that have settings (KIP-1142).

Behaviour: all topics and registered brokers, and the groups that have settings of their own. Version 0 asks for client
metrics subscriptions, of which there are none. A type that Apache Kafka does not list either is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.resources import KINDS
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
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


def handle(context: Context, request: Request, body: ListConfigResourcesRequest) -> None:
    response = ListConfigResourcesResponse(config_resources=[])
    if not _KNOWN.issuperset(body.resource_types):
        response.error_code = ErrorCode.UNSUPPORTED_VERSION
    elif request.api_version > 0:
        image = context.image
        names = {
            "topic": [topic.name for topic in image.topics_by_name()],
            "broker": [str(node_id) for node_id in sorted(image.brokers)],
            "group": image.configured("group"),
        }
        response.config_resources = [
            ConfigResource(resource_type=type_, resource_name=name)
            for type_, kind in KINDS.items()
            if type_ in body.resource_types or not body.resource_types
            for name in names[kind]
        ]
    request.reply_bytes(encode(response, request.api_version))


API = Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, ListConfigResourcesRequest, handle)
