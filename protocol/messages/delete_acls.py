"""DeleteAcls (31; KIP-140). Pattern types: KIP-290, 1+. User resources: 3+."""

from __future__ import annotations

from protocol.messages.describe_acls import LITERAL
from protocol.schema import INT8, INT16, INT32, STRING, Message, array, field


class DeleteAclsFilter(Message):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable="1+", default=None)
    pattern_type_filter: int = field(INT8, default=LITERAL)
    principal_filter: str | None = field(STRING, nullable="1+", default=None)
    host_filter: str | None = field(STRING, nullable="1+", default=None)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Message):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="1+", default=None)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, default=LITERAL)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsFilterResult(Message):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="1+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = field(array(DeleteAclsMatchingAcl), default_factory=list)


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult))
