"""AddPartitionsToTxn (24). Versions 4+ are for brokers: several transactions, also only to verify them (KIP-890)."""

from __future__ import annotations

from protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Message, array, field


class AddPartitionsToTxnTopic(Message):
    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    verify_only: bool = field(BOOLEAN, default=False)
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic))


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = field(
        array(AddPartitionsToTxnTransaction), versions="4+", default_factory=list
    )
    v3_and_below_transactional_id: str = field(STRING, versions="0-3", default="")
    v3_and_below_producer_id: int = field(INT64, versions="0-3", default=0)
    v3_and_below_producer_epoch: int = field(INT16, versions="0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        array(AddPartitionsToTxnTopic), versions="0-3", default_factory=list
    )


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16, default=0)


class AddPartitionsToTxnTopicResult(Message):
    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array(AddPartitionsToTxnPartitionResult)
    )


class AddPartitionsToTxnResult(Message):
    transactional_id: str = field(STRING)
    topic_results: list[AddPartitionsToTxnTopicResult] = field(array(AddPartitionsToTxnTopicResult))


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, versions="4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        array(AddPartitionsToTxnResult), versions="4+", default_factory=list
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), versions="0-3", default_factory=list
    )
