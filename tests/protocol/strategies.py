"""Random messages of any declared class and version, generated from the declaration."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import strategies as st

from protocol.api_keys import FIRST_OWN_KEY
from protocol.errors import ErrorCode
from protocol.messages import ALL_MESSAGES
from protocol.schema import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NIL_UUID,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Message,
)  # fmt: skip

#: Those that other projects know, too.
KAFKA_MESSAGES = [cls for cls in ALL_MESSAGES if cls.__schema__.api_key not in range(FIRST_OWN_KEY, 1 << 15)]

_BITS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
_YEAR_2500_S = 16_725_225_600


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Messages of `cls` that `version` can hold without loss: fields that it lacks have their default."""

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        return _draw_struct(draw, cls, version)

    return build()


def all_versions(cls: type[Message]) -> range:
    return range(cls.__schema__.versions.first, cls.__schema__.versions.last + 1)


def _draw_struct(draw: st.DrawFn, cls: type[Message], version: int) -> Message:
    values = {}
    for each in cls.__schema__.fields:
        if each.versions.includes(version):
            value = _draw_field(draw, each, version)
            # Kafka does not encode a tagged struct of default values. That equals no struct.
            is_default = each.tag is not None and isinstance(value, Message) and value == type(value)()
            values[each.name] = None if is_default else value
        else:
            values[each.name] = each.absent_value
    return cls(**values)


def _draw_field(draw: st.DrawFn, declared: Field, version: int) -> Any:
    tagged_struct = declared.tag is not None and isinstance(declared.type, type)
    if (tagged_struct or declared.nullable.includes(version)) and draw(st.booleans()):
        return None
    if isinstance(declared.type, Array):
        size = draw(st.integers(0, 3))
        return [_draw_value(draw, declared.type.element, declared.name, version) for _ in range(size)]
    return _draw_value(draw, declared.type, declared.name, version)


def _draw_value(draw: st.DrawFn, kind: Any, name: str, version: int) -> Any:
    if isinstance(kind, type):
        return _draw_struct(draw, kind, version)
    if name.endswith("error_code") and name != "topic_config_error_code":
        return int(draw(st.sampled_from(ErrorCode)))
    if name == "log_append_time_ms":
        # Whole seconds, because kio uses floats and sometimes loses a millisecond.
        return draw(st.integers(0, _YEAR_2500_S).map(lambda s: s * 1000) | st.just(-1))
    if name == "transaction_start_time_ms":
        return draw(st.integers(0, _YEAR_2500_S).map(lambda s: s * 1000))  # kio knows no -1 here
    if name == "retention_time_ms":
        # What kio's timedelta can hold without loss.
        return draw(st.integers(-1, _YEAR_2500_S * 1000))
    if kind in _BITS:
        half = 1 << (_BITS[kind] - 1)
        return draw(st.integers(-half, half - 1) | st.sampled_from((-half, -1, 0, 1, half - 1)))
    if kind == UINT16:
        return draw(st.integers(0, 65535))
    if kind == FLOAT64:
        return draw(st.floats(allow_nan=False))
    if kind == BOOLEAN:
        return draw(st.booleans())
    if kind == UUID:
        return draw(st.just(NIL_UUID) | st.integers(1, 2**128 - 1).map(lambda n: uuid.UUID(int=n)))
    if kind == STRING:
        # Lengths on both sides of the two-byte varint.
        return draw(st.text(max_size=12) | st.integers(125, 131).map(lambda n: "x" * n))
    raw = draw(st.binary(max_size=24) | st.sampled_from((b"r" * 127, b"r" * 20_000)))
    return memoryview(raw) if kind == RECORDS else raw
