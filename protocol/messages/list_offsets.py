"""ListOffsets (2). Negative timestamps are special: -1 latest, -2 earliest, -3 largest timestamp, and so on."""

from __future__ import annotations

from protocol.schema import INT8, INT16, INT32, INT64, STRING, Message, array, field


class ListOffsetsPartition(Message):
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, versions="4+", default=-1)
    timestamp: int = field(INT64)


class ListOffsetsTopic(Message):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


class ListOffsetsRequest(Message, api_key=2, versions="1-11", flexible="6+"):
    replica_id: int = field(INT32, default=-1)
    isolation_level: int = field(INT8, versions="2+", default=0)
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, versions="10+", default=0)


class ListOffsetsPartitionResponse(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    timestamp: int = field(INT64, default=-1)
    offset: int = field(INT64, default=-1)
    leader_epoch: int = field(INT32, versions="4+", default=-1)


class ListOffsetsTopicResponse(Message):
    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


class ListOffsetsResponse(Message, api_key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = field(INT32, versions="2+", default=0)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
