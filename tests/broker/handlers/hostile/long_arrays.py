"""Requests in which one array is long and everything else is short, made from the declarations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from uuid import UUID as Uuid

from protocol.schema import BOOLEAN, BYTES, FLOAT64, INT8, INT16, RECORDS, STRING, UUID, Array, Message
from tests.broker.handlers.hostile.requests import TOPIC, TOPIC_ID

#: Values with which a request passes its first checks. A member's request then waits or is refused, at the same cost.
_LIKELY: dict[str, Any] = {
    "group_id": "group",
    "protocol_type": "consumer",
    "session_timeout_ms": 10_000,
    "entity_type": "client-id",
    "key": "producer_byte_rate",
    "resource_type": 2,
    "member_epoch": 0,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "max_wait_ms": 0,
    "timeout_ms": 1000,
    "replication_factor": -1,
    "num_partitions": -1,
    "config_operation": 0,
    "acks": 1,
    "replica_id": -1,
}


def array_paths(cls: type[Message], version: int, path: str = "") -> Iterator[str]:
    """Every array of a message, as ".topics.partitions"."""
    for each in cls.__schema__.fields:
        if not each.versions.includes(version):
            continue
        here = f"{path}.{each.name}"
        kind = each.type
        if isinstance(kind, Array):
            yield here
            kind = kind.element
        if isinstance(kind, type):
            yield from array_paths(kind, version, here)


def long_request(cls: type[Message], version: int, path: str, count: int, *, distinct: bool) -> Message:
    """A request whose array at `path` has `count` elements, and whose other arrays have one. Without `distinct` all
    elements name the same thing."""
    return _Builder(version, path, count, distinct).struct(cls, "")


class _Builder:
    def __init__(self, version: int, path: str, count: int, distinct: bool) -> None:
        self._version = version
        self._path = path
        self._count = count
        self._distinct = distinct
        self._numbers = itertools.count()

    def struct(self, cls: type[Message], path: str) -> Message:
        values = {}
        for each in cls.__schema__.fields:
            here = f"{path}.{each.name}"
            if not each.versions.includes(self._version):
                values[each.name] = each.absent_value
            elif isinstance(each.type, Array):
                count = self._count if here == self._path else 1
                values[each.name] = [self._value(each.type.element, each.name, here) for _ in range(count)]
            else:
                values[each.name] = self._value(each.type, each.name, here)
        return cls(**values)

    def _value(self, kind: Any, name: str, path: str) -> Any:
        if isinstance(kind, type):
            return self.struct(kind, path)
        likely = _LIKELY.get(name)
        if likely is not None and isinstance(likely, str) == (kind is STRING):
            return likely
        number = next(self._numbers)
        if kind is STRING:
            return f"t{number}" if self._distinct else TOPIC
        if kind is UUID:
            return Uuid(int=1000 + number) if self._distinct else TOPIC_ID
        if kind in (BYTES, RECORDS):
            return b""
        if kind in (BOOLEAN, INT8, FLOAT64):
            return {BOOLEAN: False, INT8: 2, FLOAT64: 1000.0}[kind]
        number = number % 30_000 if kind is INT16 else number
        return number if self._distinct else 0
