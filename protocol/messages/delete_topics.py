"""DeleteTopics (20). Topics are named up to version 5. In version 6 they are given by name or id (KIP-516)."""

from __future__ import annotations

import uuid

from protocol.schema import INT16, INT32, NIL_UUID, STRING, UUID, Message, array, field


class DeleteTopicState(Message):
    name: str | None = field(STRING, nullable="6+", default=None)
    topic_id: uuid.UUID = field(UUID, default=NIL_UUID)


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = field(array(DeleteTopicState), versions="6+", default_factory=list)
    topic_names: list[str] = field(array(STRING), versions="1-5", default_factory=list)
    timeout_ms: int = field(INT32)


class DeletableTopicResult(Message):
    name: str | None = field(STRING, nullable="6+")
    topic_id: uuid.UUID = field(UUID, versions="6+", default=NIL_UUID)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, versions="5+", nullable="5+", default=None)


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult))
