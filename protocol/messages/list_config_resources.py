"""ListConfigResources (74): names of resources that have settings (KIP-1142). Version 0 is
ListClientMetricsResources (KIP-714)."""

from __future__ import annotations

from protocol.schema import INT8, INT16, INT32, STRING, Message, array, field


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = field(array(INT8), versions="1+", default_factory=list)
    """Empty: all types. Version 0 asks for client metrics alone."""


class ConfigResource(Message):
    resource_name: str = field(STRING)
    resource_type: int = field(INT8, versions="1+", default=16)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    config_resources: list[ConfigResource] = field(array(ConfigResource))
