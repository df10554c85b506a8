"""Heartbeat (12) of a member of a classic group. The answer says whether it has to join again."""

from __future__ import annotations

from protocol.schema import INT16, INT32, STRING, Message, field


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, versions="1+", default=0)
    error_code: int = field(INT16, default=0)
