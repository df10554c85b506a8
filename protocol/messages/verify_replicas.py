"""VerifyReplicas (10002): Varve's own. Has a leader compare its replica of a partition with the others."""

from __future__ import annotations

from protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Message, array, field


class VerifyTopic(Message):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class VerifyReplicasRequest(Message, api_key=10002, versions="0", flexible="0+"):
    topics: list[VerifyTopic] = field(array(VerifyTopic))
    #: How long the answer may wait for the comparisons.
    timeout_ms: int = field(INT32)


class VerifiedReplica(Message):
    node_id: int = field(INT32)
    #: Why it was not compared, in words. Empty: it was.
    not_compared: str = field(STRING, default="")
    #: The lowest node id among the replicas that say the same as this one. -1: it was not compared.
    like: int = field(INT32, default=-1)
    #: The first difference from the leader lies in [first_offset, end_offset). -1: there is none.
    first_offset: int = field(INT64, default=-1)
    end_offset: int = field(INT64, default=-1)
    #: How many records the leader and this one have there, or batches, if the topic is not compacted.
    records_of_leader: int = field(INT64, default=-1)
    records: int = field(INT64, default=-1)


class VerifyPartition(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    #: What was compared: [start_offset, end_offset).
    start_offset: int = field(INT64, default=-1)
    end_offset: int = field(INT64, default=-1)
    #: Whether the newest record of each key counted, because the topic is compacted, or every batch.
    is_by_key: bool = field(BOOLEAN, default=False)
    #: How many of them the leader has.
    records: int = field(INT64, default=-1)
    #: The leader first.
    replicas: list[VerifiedReplica] = field(array(VerifiedReplica))


class VerifyTopicResult(Message):
    name: str = field(STRING)
    partitions: list[VerifyPartition] = field(array(VerifyPartition))


class VerifyReplicasResponse(Message, api_key=10002, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[VerifyTopicResult] = field(array(VerifyTopicResult))
