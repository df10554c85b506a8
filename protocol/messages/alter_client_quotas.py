"""AlterClientQuotas (49; KIP-546)."""

from __future__ import annotations

from protocol.messages.describe_client_quotas import EntityData
from protocol.schema import BOOLEAN, FLOAT64, INT16, INT32, STRING, Message, array, field


class OpData(Message):
    key: str = field(STRING)
    value: float = field(FLOAT64)
    """Ignored if the key is removed."""
    remove: bool = field(BOOLEAN)


class AlterEntry(Message):
    entity: list[EntityData] = field(array(EntityData))
    ops: list[OpData] = field(array(OpData))


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[AlterEntry] = field(array(AlterEntry))
    validate_only: bool = field(BOOLEAN, default=False)


class AlteredEntry(Message):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    entity: list[EntityData] = field(array(EntityData))


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, default=0)
    entries: list[AlteredEntry] = field(array(AlteredEntry))
