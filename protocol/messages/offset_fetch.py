"""OffsetFetch (9). One group up to version 7, several from 8 on (KIP-709). Topics are given by id from 10 on."""

from __future__ import annotations

from uuid import UUID as Uuid

from protocol.schema import BOOLEAN, INT16, INT32, INT64, NIL_UUID, STRING, UUID, Message, array, field


class OffsetFetchRequestTopic(Message):
    """Kafka's schema has two structs of the same fields here, one of them up to version 7."""

    name: str = field(STRING, versions="0-9", default="")
    topic_id: Uuid = field(UUID, versions="10+", default=NIL_UUID)
    partition_indexes: list[int] = field(array(INT32))


class OffsetFetchRequestGroup(Message):
    group_id: str = field(STRING)
    member_id: str | None = field(STRING, versions="9+", nullable="9+", default=None)
    member_epoch: int = field(INT32, versions="9+", default=-1)
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), nullable="8+", default=None
    )


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+"):
    group_id: str = field(STRING, versions="0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), versions="0-7", nullable="2-7", default_factory=list
    )
    """None: every topic that the group has offsets for."""
    groups: list[OffsetFetchRequestGroup] = field(
        array(OffsetFetchRequestGroup), versions="8+", default_factory=list
    )
    require_stable: bool = field(BOOLEAN, versions="7+", default=False)


class OffsetFetchResponsePartition(Message):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64, default=-1)
    committed_leader_epoch: int = field(INT32, versions="5+", default=-1)
    metadata: str | None = field(STRING, nullable="0+", default="")
    error_code: int = field(INT16, default=0)


class OffsetFetchResponseTopic(Message):
    name: str = field(STRING, versions="0-9", default="")
    topic_id: Uuid = field(UUID, versions="10+", default=NIL_UUID)
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition))


class OffsetFetchResponseGroup(Message):
    group_id: str = field(STRING)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), default_factory=list)
    error_code: int = field(INT16, default=0)


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int = field(INT32, versions="3+", default=0)
    topics: list[OffsetFetchResponseTopic] = field(
        array(OffsetFetchResponseTopic), versions="0-7", default_factory=list
    )
    error_code: int = field(INT16, versions="2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = field(
        array(OffsetFetchResponseGroup), versions="8+", default_factory=list
    )
