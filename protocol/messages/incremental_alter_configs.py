"""IncrementalAlterConfigs (44): changes single settings of a resource (KIP-339)."""

from __future__ import annotations

from protocol.messages.alter_configs import AlterConfigsResourceResponse
from protocol.schema import BOOLEAN, INT8, INT32, STRING, Message, array, field


class AlterableConfig(Message):
    name: str = field(STRING)
    config_operation: int = field(INT8)
    """0: set; 1: delete; 2: append to a list; 3: subtract from a list."""
    value: str | None = field(STRING, nullable="0+")


class AlterConfigsResource(Message):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[AlterableConfig] = field(array(AlterableConfig))


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource))
    validate_only: bool = field(BOOLEAN, default=False)


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse))
