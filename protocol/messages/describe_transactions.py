"""DescribeTransactions (65)."""

from __future__ import annotations

from protocol.schema import INT16, INT32, INT64, STRING, Message, array, field


class DescribeTransactionsRequest(Message, api_key=65, versions="0", flexible="0+"):
    transactional_ids: list[str] = field(array(STRING))


class TopicData(Message):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class TransactionState(Message):
    error_code: int = field(INT16, default=0)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING, default="")
    transaction_timeout_ms: int = field(INT32, default=0)
    transaction_start_time_ms: int = field(INT64, default=-1)
    """-1: no transaction is open."""
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16, default=-1)
    topics: list[TopicData] = field(array(TopicData), default_factory=list)


class DescribeTransactionsResponse(Message, api_key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    transaction_states: list[TransactionState] = field(array(TransactionState))
