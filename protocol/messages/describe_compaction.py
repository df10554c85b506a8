"""DescribeCompaction (10001): Varve's own. How one node's replicas stand with compaction, and what the leader among
them sees of the others.

Offsets are exclusive upper bounds, and -1 where nothing is known or nothing was ever raised. Times are Unix
milliseconds. `blocked_by` and `limit` are numbers of `broker.replication.watermarks.blocked_by`.
"""

from __future__ import annotations

from protocol.schema import BOOLEAN, INT8, INT16, INT32, INT64, STRING, Message, array, field


class DescribeCompactionTopic(Message):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class DescribeCompactionRequest(Message, api_key=10001, versions="0", flexible="0+"):
    topics: list[DescribeCompactionTopic] = field(array(DescribeCompactionTopic))


class HeldRecords(Message):
    """What a pass has left for later: a delete horizon or a bound does not let it go yet. -1: unknown."""

    #: Below the replica's clean end, when the last pass of this process ended.
    count: int = field(INT64, default=-1)
    size_bytes: int = field(INT64, default=-1)
    #: When the first one may go, and below which offset it lies. -1: there is none, as far as is known.
    first_horizon_ms: int = field(INT64, default=-1)
    first_end_offset: int = field(INT64, default=-1)


class CompactionMember(Message):
    """A member of the group, as its leader sees it."""

    node_id: int = field(INT32)
    is_learner: bool = field(BOOLEAN)
    #: Below these offsets it counts as clean: its MCCO and MXFO, or what it was given when it was added.
    max_cleanly_compacted_offset: int = field(INT64)
    max_transaction_free_offset: int = field(INT64)
    blocked_by: int = field(INT8)
    dirty_bytes: int = field(INT64)
    #: Since when it has kept MTRO and MXRO from rising. -1: it does not.
    pins_tombstones_since_ms: int = field(INT64, default=-1)
    pins_markers_since_ms: int = field(INT64, default=-1)


class PartitionCompaction(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    log_start_offset: int = field(INT64, default=-1)
    log_end_offset: int = field(INT64, default=-1)
    high_watermark: int = field(INT64, default=-1)
    last_stable_offset: int = field(INT64, default=-1)
    #: The whole log, and its clean and dirty parts, of which the dirty ratio is made. The rest is not cleanable now.
    size_bytes: int = field(INT64, default=-1)
    clean_bytes: int = field(INT64, default=-1)
    dirty_bytes: int = field(INT64, default=-1)
    #: Offset of the active segment.
    active_segment_offset: int = field(INT64, default=-1)
    #: The dirty range that the next pass would clean.
    first_dirty_offset: int = field(INT64, default=-1)
    first_uncleanable_offset: int = field(INT64, default=-1)
    #: Why no pass is due, and what keeps the next one from going further. 0: nothing.
    blocked_by: int = field(INT8, default=0)
    limit: int = field(INT8, default=0)
    is_running: bool = field(BOOLEAN, default=False)
    #: The end of the last pass. -1: there was none.
    last_compacted_ms: int = field(INT64, default=-1)
    #: The key map of the last pass was full: the next pass goes on.
    is_map_full: bool = field(BOOLEAN, default=False)
    #: Of the last pass of this process, records without those that went. -1: there was none.
    records_before: int = field(INT64, default=-1)
    records_after: int = field(INT64, default=-1)
    #: Why the last pass failed. Empty: it did not.
    failure: str = field(STRING, default="")
    #: When it is tried again, if it failed. -1: at the next round.
    retry_at_ms: int = field(INT64, default=-1)
    max_cleanly_compacted_offset: int = field(INT64, default=-1)
    max_transaction_free_offset: int = field(INT64, default=-1)
    max_tombstone_remove_offset: int = field(INT64, default=-1)
    max_transaction_remove_offset: int = field(INT64, default=-1)
    tombstones: HeldRecords = field(HeldRecords)
    markers: HeldRecords = field(HeldRecords)
    #: Markers without records, which are kept for their producers.
    remnants: HeldRecords = field(HeldRecords)
    #: Only the leader knows. Empty: this replica does not lead.
    members: list[CompactionMember] = field(array(CompactionMember))


class DescribeCompactionTopicResult(Message):
    name: str = field(STRING)
    partitions: list[PartitionCompaction] = field(array(PartitionCompaction))


class DescribeCompactionResponse(Message, api_key=10001, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[DescribeCompactionTopicResult] = field(array(DescribeCompactionTopicResult))
