"""DescribeAcls (29; KIP-140). Pattern types: KIP-290, 1+. User resources: 3+. The enums are in Kafka's AclOperation,
AclPermissionType, ResourceType and PatternType."""

from __future__ import annotations

from protocol.schema import INT8, INT16, INT32, STRING, Message, array, field

LITERAL = 3
"""The pattern type that matches the name itself."""


class DescribeAclsRequest(Message, api_key=29, versions="1-3", flexible="2+"):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable="1+", default=None)
    pattern_type_filter: int = field(INT8, default=LITERAL)
    principal_filter: str | None = field(STRING, nullable="1+", default=None)
    host_filter: str | None = field(STRING, nullable="1+", default=None)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class AclDescription(Message):
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DescribeAclsResource(Message):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, default=LITERAL)
    acls: list[AclDescription] = field(array(AclDescription))


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="1+", default=None)
    resources: list[DescribeAclsResource] = field(array(DescribeAclsResource), default_factory=list)
