"""ListTransactions: the transactional ids that this broker coordinates; clients ask all brokers.

Behaviour
- While a partition of `__transaction_state` is being loaded here, COORDINATOR_LOAD_IN_PROGRESS and no transactions.
- An empty filter matches all. States that do not exist are named in the answer.
- `duration_filter`: transactions that are open and were begun longer ago than that.

- A pattern that is none, or too large to be matched in time, is INVALID_REGULAR_EXPRESSION.

Versions: 1 duration (KIP-994); 2 a pattern of ids (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordinator.name_pattern import NamePattern, PatternError
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from broker.transactions import states
from broker.transactions.metadata import TransactionMetadata
from broker.transactions.shard import TransactionShard
from broker.transactions.transaction_topic import MAX_ID_BYTES
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from broker.coordinator.led_partition import LedPartition
    from broker.network.request import Request
    from broker.serving.context import Context

#: A match with the longest id may take so long, where RE2 cannot cache its states: expressions of some hundred
#: instructions. A loop iteration is to end within 20 ms.
_MAX_MATCH_US = 10_000
_LABELS = frozenset(state.label for state in states.TransactionState)


def handle(context: Context, request: Request, body: ListTransactionsRequest) -> Steps | None:
    unknown = [state for state in body.state_filters if state not in _LABELS]
    try:
        wanted = _Filter(body, context.clock.now_ms())
    except PatternError:
        refused = ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
        return steps.reply(request, refused)
    reading = context.transactions.reading()
    try:
        reading.add_all()
    except KafkaError as loading:
        return steps.reply(request, ListTransactionsResponse(error_code=loading.code))
    found: dict[LedPartition[TransactionShard], list[TransactionState]] = {}

    def look() -> Steps:
        for led in reading.partitions():
            transactions = found[led] = []
            for transactional_id in led.shard.ids():
                metadata = led.shard.get(transactional_id)
                if metadata is not None and wanted.has(metadata):
                    transactions.append(_listed(metadata))
                yield
        reading.wait(lambda: context.long_requests.resume(request, reply()))

    def reply() -> Steps:
        response = ListTransactionsResponse(unknown_state_filters=unknown)
        for led, transactions in found.items():
            if reading.error_of(led) == ErrorCode.NONE:
                response.transaction_states += transactions
            yield
        yield from steps.reply(request, response)

    reading.confirm(lambda: context.long_requests.resume(request, look()))
    return None


class _Filter:
    def __init__(self, body: ListTransactionsRequest, now_ms: int) -> None:
        """Raises PatternError."""
        self._pattern = None
        if body.transactional_id_pattern is not None:
            self._pattern = NamePattern(body.transactional_id_pattern)
            if self._pattern.cost_us("x" * MAX_ID_BYTES) > _MAX_MATCH_US:
                raise PatternError("too large for long ids")
        self._states = frozenset(body.state_filters)
        self._producer_ids = frozenset(body.producer_id_filters)
        self._duration_ms = body.duration_filter
        self._now_ms = now_ms

    def has(self, metadata: TransactionMetadata) -> bool:
        if self._states and metadata.state.label not in self._states:
            return False
        if self._producer_ids and metadata.producer_id not in self._producer_ids:
            return False
        if self._pattern is not None and not self._pattern.matches(metadata.transactional_id):
            return False
        if self._duration_ms < 0:
            return True
        is_open = metadata.state is states.TransactionState.ONGOING
        return is_open and self._now_ms - metadata.started_ms > self._duration_ms


def _listed(metadata: TransactionMetadata) -> TransactionState:
    return TransactionState(
        transactional_id=metadata.transactional_id,
        producer_id=metadata.producer_id,
        transaction_state=metadata.state.label,
    )


API = Api(ApiKey.LIST_TRANSACTIONS, 0, 2, ListTransactionsRequest, handle)
