"""OffsetDelete (47, KIP-496). Never flexible."""

from __future__ import annotations

from protocol.schema import INT16, INT32, STRING, Message, array, field


class OffsetDeleteRequestPartition(Message):
    partition_index: int = field(INT32)


class OffsetDeleteRequestTopic(Message):
    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)


class OffsetDeleteResponseTopic(Message):
    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    error_code: int = field(INT16, default=0)
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic), default_factory=list)
