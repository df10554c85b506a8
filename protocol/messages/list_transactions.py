"""ListTransactions (66): those of the coordinator that is asked."""

from __future__ import annotations

from protocol.schema import INT16, INT32, INT64, STRING, Message, array, field


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = field(array(STRING), default_factory=list)
    producer_id_filters: list[int] = field(array(INT64), default_factory=list)
    duration_filter: int = field(INT64, versions="1+", default=-1)
    """Milliseconds: transactions that have been open for longer."""
    transactional_id_pattern: str | None = field(STRING, versions="2+", nullable="2+", default=None)
    """A regular expression in RE2's syntax (KIP-1152)."""


class TransactionState(Message):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    unknown_state_filters: list[str] = field(array(STRING), default_factory=list)
    transaction_states: list[TransactionState] = field(array(TransactionState), default_factory=list)
