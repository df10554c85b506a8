"""JoinGroup (11). From version 4 on a new member is given its id first (KIP-394). Static members: KIP-345, 5+."""

from __future__ import annotations

from protocol.schema import BOOLEAN, BYTES, INT16, INT32, STRING, Message, array, field


class JoinGroupRequestProtocol(Message):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)
    """What the member tells the leader of its group. Only members have to understand it."""


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, versions="1+", default=-1)
    """Version 0 has no such field: the session timeout is used instead."""
    member_id: str = field(STRING)
    """Empty for a member that has no id yet."""
    group_instance_id: str | None = field(STRING, versions="5+", nullable="5+", default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    """In the order in which the member prefers them."""
    reason: str | None = field(STRING, versions="8+", nullable="8+", default=None)


class JoinGroupResponseMember(Message):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="5+", nullable="5+", default=None)
    metadata: bytes = field(BYTES)


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = field(INT32, versions="2+", default=0)
    error_code: int = field(INT16, default=0)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, versions="7+", nullable="7+", default=None)
    protocol_name: str | None = field(STRING, nullable="7+", default=None)
    leader: str = field(STRING, default="")
    skip_assignment: bool = field(BOOLEAN, versions="9+", default=False)
    """True: the leader must not send a new assignment (KIP-814)."""
    member_id: str = field(STRING, default="")
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember), default_factory=list)
    """All members if this member is the leader, otherwise empty."""
