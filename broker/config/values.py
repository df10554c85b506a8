"""Settings as data: a `Key` has a name, a parser, a default and a paragraph. And the parsers.

`NodeConfig`, `TopicConfig` and `GroupConfig` are dataclasses whose fields carry a `Key`.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ConfigType(IntEnum):
    """The type of a value, by Kafka's numbers (`config_type` of DescribeConfigs)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True)
class Parser(Generic[T_co]):
    """Parses one value. Raises ValueError with a message for the user."""

    read: Callable[[str], T_co]
    type: ConfigType

    def __call__(self, text: str) -> T_co:
        return self.read(text)


def typed(type_: ConfigType) -> Callable[[Callable[[str], T]], Parser[T]]:
    """Decorator: makes a parser of a function."""
    return lambda read: Parser(read, type_)


class ConfigError(ValueError):
    """A setting cannot be used. The message is for the user and names the setting."""


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(NamedTuple):
    """A socket to listen on. An empty host is every address of the machine."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{Address(self.host, self.port)}"


@dataclass(frozen=True)
class Key:
    """One setting.

    `scaled` are other names of the same setting, with the factor of their unit: ("log.roll.hours", 3600000). They are
    used if `name` is not set. A factor of 1 is a synonym. Clients can change a setting that `is_dynamic` while the node
    runs (KIP-226).
    """

    name: str
    parse: Parser[Any]
    default: str
    doc: str
    scaled: tuple[tuple[str, int], ...] = ()
    is_dynamic: bool = False


def setting(
    name: str,
    parse: Parser[T],
    default: str,
    doc: str,
    *,
    scaled: Sequence[tuple[str, int]] = (),
    dynamic: bool = False,
) -> T:
    """A dataclass field that declares a key. The default is written as in a properties file."""
    key = Key(name, parse, default, " ".join(doc.split()), tuple(scaled), dynamic)
    value: T = dataclasses.field(default_factory=lambda: parse(default), metadata={"key": key})
    return value


def keys_of(config_class: type) -> dict[str, Key]:
    """Attribute name -> key, in the order of declaration."""
    return {
        field.name: field.metadata["key"]
        for field in dataclasses.fields(config_class)
        if "key" in field.metadata
    }


def integer(low: int, high: int = INT32_MAX) -> Parser[int]:
    """A whole number from `low` to `high`, both allowed."""

    @typed(ConfigType.INT if high <= INT32_MAX else ConfigType.LONG)
    def parse(text: str) -> int:
        if not text.strip().lstrip("+-").isdecimal():
            raise ValueError(f"expected a whole number, not {text!r}")
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"expected a whole number from {low} to {high}, not {value}")
        return value

    return parse


def long(low: int) -> Parser[int]:
    return integer(low, INT64_MAX)


def number(low: float, high: float) -> Parser[float]:
    @typed(ConfigType.DOUBLE)
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"expected a number, not {text!r}") from None
        if not (math.isfinite(value) and low <= value <= high):
            raise ValueError(f"expected a number from {low:g} to {high:g}, not {text}")
        return value

    return parse


@typed(ConfigType.BOOLEAN)
def boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"expected true or false, not {text!r}")
    return lowered == "true"


def choice(*allowed: str) -> Parser[str]:
    @typed(ConfigType.STRING)
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}, not {text!r}")
        return text

    return parse


def choices(*allowed: str, may_be_empty: bool = True) -> Parser[tuple[str, ...]]:
    """A comma-separated list. A value that is named twice counts once, as in Kafka."""

    @typed(ConfigType.LIST)
    def parse(text: str) -> tuple[str, ...]:
        values = split_list(text)
        for value in values:
            if value not in allowed:
                raise ValueError(f"expected a list of {', '.join(allowed)}, not {value!r}")
        if not (values or may_be_empty):
            raise ValueError(f"expected at least one of {', '.join(allowed)}")
        return tuple(dict.fromkeys(values))

    return parse


@typed(ConfigType.STRING)
def text(value: str) -> str:
    return value


@typed(ConfigType.STRING)
def optional_text(value: str) -> str | None:
    return value or None


def split_list(value: str) -> tuple[str, ...]:
    """The parts of a comma-separated list, without spaces around them. An empty string has no parts."""
    return tuple(part.strip() for part in value.split(",")) if value.strip() else ()


def address(value: str) -> Address:
    """`host:port`, with an IPv6 address in brackets. The host may be empty."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"expected HOST:PORT, not {value!r}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"write an IPv6 address in brackets: [{host}]:{port}")
    return Address(host, int(port))


@typed(ConfigType.LIST)
def addresses(value: str) -> tuple[Address, ...]:
    return tuple(address(part) for part in split_list(value))


@typed(ConfigType.LIST)
def listeners(value: str) -> tuple[Listener, ...]:
    """`NAME://host:port,...`. Names are compared in upper case, as Kafka does."""
    found: dict[str, Listener] = {}
    for part in split_list(value):
        name, separator, rest = part.partition("://")
        if not separator or not name:
            raise ValueError(f"expected NAME://HOST:PORT, not {part!r}")
        if name.upper() in found:
            raise ValueError(f"the listener {name.upper()} stands twice")
        found[name.upper()] = Listener(name.upper(), *address(rest))
    return tuple(found.values())


@typed(ConfigType.LIST)
def advertised(value: str) -> dict[str, Address]:
    return {listener.name: Address(listener.host, listener.port) for listener in listeners(value)}


@typed(ConfigType.LIST)
def voters(value: str) -> dict[int, Address]:
    """`1@host:port,2@host:port,...`, in the order of the node ids."""
    found: dict[int, Address] = {}
    for part in split_list(value):
        node_id, separator, rest = part.partition("@")
        if not separator or not node_id.strip().isdecimal():
            raise ValueError(f"expected NODE_ID@HOST:PORT, not {part!r}")
        if int(node_id) in found:
            raise ValueError(f"node {int(node_id)} stands twice")
        found[int(node_id)] = address(rest)
        if not found[int(node_id)].host:
            raise ValueError(f"the host is missing in {part!r}")
    return dict(sorted(found.items()))


@typed(ConfigType.STRING)
def protocol_map(value: str) -> dict[str, str]:
    """`LISTENER:PROTOCOL,...`."""
    found: dict[str, str] = {}
    for part in split_list(value):
        name, separator, protocol = part.partition(":")
        if not separator or not name or not protocol:
            raise ValueError(f"expected LISTENER:PROTOCOL, not {part!r}")
        found[name.upper()] = protocol.upper()
    return found


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. Names other than localhost are not looked up: what they mean can
    change."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def format_value(value: object) -> str:
    """A typed value as it is written in a properties file."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        voters = all(isinstance(key, int) for key in value)
        return ",".join(
            f"{key}@{item}" if voters else _format_named(key, item) for key, item in value.items()
        )
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def _format_named(name: str, value: object) -> str:
    """`NAME://host:port` of an advertised listener, `NAME:PROTOCOL` of the protocol map."""
    return f"{name}:{value}" if isinstance(value, str) else f"{name}://{value}"
