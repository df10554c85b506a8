"""DescribeGroups (15). Version 6: an unknown group is an error, not a group in state Dead (KIP-1043)."""

from __future__ import annotations

from protocol.schema import BOOLEAN, BYTES, INT16, INT32, STRING, Message, array, field

NOT_ASKED = -(1 << 31)
"""The value of authorized operations if the client did not ask for them (KIP-430)."""


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str] = field(array(STRING), default_factory=list)
    include_authorized_operations: bool = field(BOOLEAN, versions="3+", default=False)


class DescribedGroupMember(Message):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="4+", nullable="4+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES, default=b"")
    member_assignment: bytes = field(BYTES, default=b"")


class DescribedGroup(Message):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, versions="6+", nullable="6+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING, default="")
    protocol_type: str = field(STRING, default="")
    protocol_data: str = field(STRING, default="")
    """The chosen protocol, if the group has one."""
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember), default_factory=list)
    authorized_operations: int = field(INT32, versions="3+", default=NOT_ASKED)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = field(INT32, versions="1+", default=0)
    groups: list[DescribedGroup] = field(array(DescribedGroup), default_factory=list)
