"""DeleteRecords (21, KIP-107)."""

from __future__ import annotations

from protocol.schema import INT16, INT32, INT64, STRING, Message, array, field


class DeleteRecordsPartition(Message):
    partition_index: int = field(INT32)
    offset: int = field(INT64)
    """Records below this offset are deleted. -1: records below the high watermark."""


class DeleteRecordsTopic(Message):
    name: str = field(STRING)
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition))


class DeleteRecordsRequest(Message, api_key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic))
    timeout_ms: int = field(INT32)


class DeleteRecordsPartitionResult(Message):
    partition_index: int = field(INT32)
    low_watermark: int = field(INT64)
    error_code: int = field(INT16)


class DeleteRecordsTopicResult(Message):
    name: str = field(STRING)
    partitions: list[DeleteRecordsPartitionResult] = field(array(DeleteRecordsPartitionResult))


class DeleteRecordsResponse(Message, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult))
