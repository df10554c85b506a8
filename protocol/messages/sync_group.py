"""SyncGroup (14). The leader sends the assignment of every member, and each member gets its own."""

from __future__ import annotations

from protocol.schema import BYTES, INT16, INT32, STRING, Message, array, field


class SyncGroupRequestAssignment(Message):
    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    protocol_type: str | None = field(STRING, versions="5+", nullable="5+", default=None)
    protocol_name: str | None = field(STRING, versions="5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = field(
        array(SyncGroupRequestAssignment), default_factory=list
    )


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(INT32, versions="1+", default=0)
    error_code: int = field(INT16, default=0)
    protocol_type: str | None = field(STRING, versions="5+", nullable="5+", default=None)
    protocol_name: str | None = field(STRING, versions="5+", nullable="5+", default=None)
    assignment: bytes = field(BYTES, default=b"")
