"""Our messages as messages of kafka-python, a second independent codec, which reads Kafka's JSON schemas at import.

It has most APIs of clients, and also frames and headers. What it lacks is in `LACKS`.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from functools import cache
from typing import Any

from protocol.schema import Message

with warnings.catch_warnings():
    # kafka-python finds its JSON with a deprecated function of importlib.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol
    from kafka.protocol.api_message import ApiMessage

    for _module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        # Without its former codec and the script that generates its stubs.
        if ".old" not in _module.name and not _module.name.endswith("generate_stubs"):
            importlib.import_module(_module.name)

#: Messages of ours that kafka-python does not know (3.0.12).
LACKS = {
    f"{api}{direction}"
    for api in ("ConsumerGroupDescribe", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "UnregisterBroker")
    for direction in ("Request", "Response")
}


@cache
def classes() -> dict[str, Any]:
    """kafka-python's message classes by Kafka's names."""
    return {cls.__name__: cls for cls in _subclasses(ApiMessage)}


def _subclasses(cls: Any) -> list[Any]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_subclasses(sub))]


def theirs(message: Message, version: int) -> Any:
    """The same message as an object of kafka-python, in this version."""
    return _struct(message, classes()[type(message).__name__], version)


def reencoded(cls: type[Message], version: int, encoded: bytes) -> bytes:
    """Our bytes, decoded and encoded again by kafka-python."""
    # Not `decode` of the class: that of ApiVersions decodes every answer with an error as version 0.
    decoded = ApiMessage.decode.__func__(classes()[cls.__name__], encoded, version=version)
    decoded._header = None  # Its decoder leaves this out, and its encoder needs it.
    return bytes(decoded.encode(version=version))


def _struct(message: Message, target: Any, version: int) -> Any:
    ours = {each.name.removesuffix("_ms"): each for each in type(message).__schema__.fields}
    for name in [name for name in ours if name.endswith("_authorized_operations")]:
        ours.setdefault("authorized_operations", ours[name])  # It has this name for all of them.
    values = {}
    for name, declared in target.fields.items():
        if not declared.for_version_q(version):
            continue
        field = ours[name.removesuffix("_ms")]
        value = getattr(message, field.name)
        if field.tag is not None and value == field.absent_value:
            continue  # It encodes every tagged field that it was given, even with its default.
        values[name] = _value(value, declared, version)
    return target(version=version, **values)


def _value(value: Any, declared: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_value(item, declared, version) for item in value]
    if isinstance(value, Message):
        return _struct(value, declared.data_class, version)
    if declared.type_str == "bitfield":
        return {bit for bit in range(32) if value >> bit & 1}
    return bytes(value) if isinstance(value, memoryview) else value
