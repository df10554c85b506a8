"""DeleteGroups (42): deletes empty groups with their offsets (KIP-229)."""

from __future__ import annotations

from protocol.schema import INT16, INT32, STRING, Message, array, field


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = field(array(STRING), default_factory=list)


class DeletableGroupResult(Message):
    group_id: str = field(STRING)
    error_code: int = field(INT16, default=0)


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult), default_factory=list)
