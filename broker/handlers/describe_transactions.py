"""DescribeTransactions: state, producer and partitions of transactional ids.

Behaviour: each id is answered by itself: TRANSACTIONAL_ID_NOT_FOUND for an unknown one, NOT_COORDINATOR for one that
another broker coordinates.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.coordinator_answers import answer_about_keys
from broker.serving.steps import Steps
from broker.transactions.shard import TransactionShard
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DescribeTransactionsRequest) -> Steps:
    def reply(states: dict[str, TransactionState]) -> Steps:
        yield from steps.reply(
            request, DescribeTransactionsResponse(transaction_states=list(states.values()))
        )

    reading = context.transactions.reading()
    return answer_about_keys(
        context, request, reading, dict.fromkeys(body.transactional_ids), _look, _failed, reply
    )


def _failed(transactional_id: str, error: KafkaError) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=error.code)


def _look(shard: TransactionShard, transactional_id: str) -> Generator[None, None, TransactionState]:
    metadata = shard.get(transactional_id)
    if metadata is None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, list[int]] = {}
    for count, (topic, partition) in enumerate(sorted(metadata.partitions), 1):
        topics.setdefault(topic, []).append(partition)
        if count % 100 == 0:
            yield
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.label,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.started_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


API = Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, DescribeTransactionsRequest, handle)
