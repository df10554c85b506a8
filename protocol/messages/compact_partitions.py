"""CompactPartitions (10000): Varve's own. Has one node compact its replicas now."""

from __future__ import annotations

from protocol.schema import INT16, INT32, INT64, STRING, Message, array, field


class CompactTopic(Message):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class CompactPartitionsRequest(Message, api_key=10000, versions="0", flexible="0+"):
    topics: list[CompactTopic] = field(array(CompactTopic))
    #: How long the answer may wait for the passes. 0: they are only begun.
    timeout_ms: int = field(INT32)


class CompactPartition(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    #: Of the pass: bytes of the segments that it read, and of those that it left. -1: nothing is told of a pass.
    bytes_before: int = field(INT64, default=-1)
    bytes_after: int = field(INT64, default=-1)
    #: How long the pass took.
    elapsed_ms: int = field(INT64, default=-1)
    #: The replica is compacted below this offset. -1: unknown.
    cleaned_end_offset: int = field(INT64, default=-1)
    #: Why the pass did not go further, in words.
    limit: str = field(STRING, default="")


class CompactPartitionsTopic(Message):
    name: str = field(STRING)
    partitions: list[CompactPartition] = field(array(CompactPartition))


class CompactPartitionsResponse(Message, api_key=10000, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[CompactPartitionsTopic] = field(array(CompactPartitionsTopic))
