"""EndTxn (26). From version 5 on the answer names the producer id and epoch of the next transaction (KIP-890)."""

from __future__ import annotations

from protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Message, field


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOLEAN)


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    producer_id: int = field(INT64, versions="5+", default=-1)
    producer_epoch: int = field(INT16, versions="5+", default=-1)
