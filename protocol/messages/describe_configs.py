"""DescribeConfigs (32). Synonyms: KIP-226, 1+; types and documentation: KIP-569, 3+."""

from __future__ import annotations

from protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, Message, array, field


class DescribeConfigsResource(Message):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configuration_keys: list[str] | None = field(array(STRING), nullable="0+")
    """None: all settings. Apache Kafka answers an empty list as None."""


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource))
    include_synonyms: bool = field(BOOLEAN, default=False)
    include_documentation: bool = field(BOOLEAN, versions="3+", default=False)


class DescribeConfigsSynonym(Message):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    source: int = field(INT8)


class DescribeConfigsResourceResult(Message):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    read_only: bool = field(BOOLEAN)
    config_source: int = field(INT8, default=-1)
    is_sensitive: bool = field(BOOLEAN, default=False)
    synonyms: list[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym), default_factory=list)
    config_type: int = field(INT8, versions="3+", default=0)
    documentation: str | None = field(STRING, versions="3+", nullable="0+", default=None)


class DescribeConfigsResult(Message):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    configs: list[DescribeConfigsResourceResult] = field(
        array(DescribeConfigsResourceResult), default_factory=list
    )


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult))
