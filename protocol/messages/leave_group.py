"""LeaveGroup (13). One member up to version 2, a batch from 3 on, by member id or by instance id (KIP-345)."""

from __future__ import annotations

from protocol.schema import INT16, INT32, STRING, Message, array, field


class MemberIdentity(Message):
    member_id: str = field(STRING)
    """Empty if an admin tool names the instance id alone."""
    group_instance_id: str | None = field(STRING, nullable="3+", default=None)
    reason: str | None = field(STRING, versions="5+", nullable="5+", default=None)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: str = field(STRING)
    member_id: str = field(STRING, versions="0-2", default="")
    members: list[MemberIdentity] = field(array(MemberIdentity), versions="3+", default_factory=list)


class MemberResponse(Message):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, nullable="3+", default=None)
    error_code: int = field(INT16, default=0)


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(INT32, versions="1+", default=0)
    error_code: int = field(INT16, default=0)
    members: list[MemberResponse] = field(array(MemberResponse), versions="3+", default_factory=list)
