"""ListGroups (16). States from version 4 on (KIP-518), types from 5 on (KIP-848)."""

from __future__ import annotations

from protocol.schema import INT16, INT32, STRING, Message, array, field


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = field(array(STRING), versions="4+", default_factory=list)
    types_filter: list[str] = field(array(STRING), versions="5+", default_factory=list)


class ListedGroup(Message):
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, versions="4+", default="")
    group_type: str = field(STRING, versions="5+", default="")


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32, versions="1+", default=0)
    error_code: int = field(INT16, default=0)
    groups: list[ListedGroup] = field(array(ListedGroup), default_factory=list)
