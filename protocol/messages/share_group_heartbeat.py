"""ShareGroupHeartbeat (76): joining, heartbeats and leaving in a share group (KIP-932).

Version 0 was never released.
"""

from __future__ import annotations

from protocol.messages.consumer_group_heartbeat import HeartbeatAssignment
from protocol.schema import INT16, INT32, STRING, Message, array, field


class ShareGroupHeartbeatRequest(Message, api_key=76, versions="1", flexible="0+"):
    """A field that has not changed since the last heartbeat is None."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    """0: join; -1: leave."""
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable="0+", default=None)


class ShareGroupHeartbeatResponse(Message, api_key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32, default=0)
    heartbeat_interval_ms: int = field(INT32, default=0)
    assignment: HeartbeatAssignment | None = field(HeartbeatAssignment, nullable="0+", default=None)
    """None: it has not changed."""
