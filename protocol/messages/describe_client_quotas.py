"""DescribeClientQuotas (48; KIP-546)."""

from __future__ import annotations

from protocol.schema import BOOLEAN, FLOAT64, INT8, INT16, INT32, STRING, Message, array, field


class ComponentData(Message):
    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    """0: the name in `match`; 1: the default; 2: any name."""
    match: str | None = field(STRING, nullable="0+", default=None)


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = field(array(ComponentData))
    strict: bool = field(BOOLEAN, default=False)
    """Leave out entities that have a type that no component names."""


class EntityData(Message):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable="0+", default=None)
    """None: the default of this type."""


class ValueData(Message):
    key: str = field(STRING)
    value: float = field(FLOAT64)


class EntryData(Message):
    entity: list[EntityData] = field(array(EntityData))
    values: list[ValueData] = field(array(ValueData))


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    entries: list[EntryData] | None = field(array(EntryData), nullable="0+", default=None)
