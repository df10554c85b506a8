"""DescribeLogDirs (35, KIP-113). Version 4: the disk's size (KIP-827); 5: whether it takes new replicas (KIP-1066)."""

from __future__ import annotations

from protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Message, array, field


class DescribableLogDirTopic(Message):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field(array(DescribableLogDirTopic), nullable="0+")
    """None: all topics."""


class DescribeLogDirsPartition(Message):
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOLEAN)


class DescribeLogDirsTopic(Message):
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Message):
    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, versions="4+", default=-1)
    usable_bytes: int = field(INT64, versions="4+", default=-1)
    is_cordoned: bool = field(BOOLEAN, versions="5+", default=False)
    """The directory gets no new replicas (KIP-1066)."""


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, versions="3+", default=0)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))
