"""CreateAcls (30; KIP-140). Pattern types: KIP-290, 1+. User resources: 3+."""

from __future__ import annotations

from protocol.messages.describe_acls import LITERAL
from protocol.schema import INT8, INT16, INT32, STRING, Message, array, field


class AclCreation(Message):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, default=LITERAL)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = field(array(AclCreation))


class AclCreationResult(Message):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="1+", default=None)


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[AclCreationResult] = field(array(AclCreationResult))
