"""FindCoordinator (10). One key up to version 3, a batch of keys from 4 on (KIP-699)."""

from __future__ import annotations

from protocol.schema import INT8, INT16, INT32, STRING, Message, array, field


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: str = field(STRING, versions="0-3", default="")
    key_type: int = field(INT8, versions="1+", default=0)
    """0: group; 1: transaction; 2: share group."""
    coordinator_keys: list[str] = field(array(STRING), versions="4+", default_factory=list)


class Coordinator(Message):
    key: str = field(STRING)
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="4+", default=None)


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(INT32, versions="1+", default=0)
    error_code: int = field(INT16, versions="0-3", default=0)
    error_message: str | None = field(STRING, versions="1-3", nullable="1-3", default=None)
    node_id: int = field(INT32, versions="0-3", default=-1)
    host: str = field(STRING, versions="0-3", default="")
    port: int = field(INT32, versions="0-3", default=-1)
    coordinators: list[Coordinator] = field(array(Coordinator), versions="4+", default_factory=list)
