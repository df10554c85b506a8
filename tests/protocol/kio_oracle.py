"""Our messages as messages of kio, an independent codec that is generated from Kafka's JSON schemas."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import sys
import typing
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from protocol.schema import NIL_UUID, Message

_UTC = datetime.UTC


def kio_class(cls: type[Message], version: int) -> type[Any]:
    api = cls.__module__.rpartition(".")[2]
    direction = "request" if cls.__name__.endswith("Request") else "response"
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{direction}")
    return typing.cast(type[Any], getattr(module, cls.__name__))


def to_kio(message: Message, target: type[Any]) -> Any:
    hints = typing.get_type_hints(target, vars(sys.modules[target.__module__]))
    values = {}
    for each in dataclasses.fields(target):
        name = each.name if hasattr(message, each.name) else f"{each.name}_ms"
        values[each.name] = _value(getattr(message, name), hints[each.name], each)
    return target(**values)


def kio_encode(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_decode(target: type[Any], data: bytes) -> Any:
    entity, size_bytes = entity_reader(target)(data, 0)
    assert size_bytes == len(data)
    return entity


def _value(value: Any, hint: Any, declared: dataclasses.Field[Any]) -> Any:
    if value is None and declared.metadata.get("tag") is not None and dataclasses.is_dataclass(hint):
        return hint()  # type: ignore[operator]
    if isinstance(value, list):
        element = next(arg for arg in _flat_arguments(hint) if arg is not Ellipsis)
        return tuple(to_kio(item, element) if isinstance(item, Message) else item for item in value)
    if isinstance(value, Message):
        return to_kio(value, next(iter(_flat_arguments(hint)), hint))
    if isinstance(value, memoryview):
        return bytes(value)
    if value == NIL_UUID:
        return None
    match declared.metadata.get("kafka_type"):
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            epoch = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
            return None if value == -1 else epoch + datetime.timedelta(milliseconds=value)
    return value


def _flat_arguments(hint: Any) -> list[Any]:
    """X of `tuple[X, ...]`, of `tuple[X, ...] | None` and of `X | None`; nothing for a plain class."""
    arguments = list(typing.get_args(hint))
    if type(None) in arguments:
        arguments = list(typing.get_args(arguments[0])) or [arguments[0]]
    return arguments
