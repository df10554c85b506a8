"""How a message is declared: one class per message, for all of its versions.

    class FetchPartition(Message):
        partition: int = field(INT32)
        current_leader_epoch: int = field(INT32, versions="9+", default=-1)

    class FetchRequest(Message, api_key=1, versions="4-16", flexible="12+"):
        ...

The fields of a nested struct name versions of the message that holds it, which also says what is `flexible` (KIP-482:
compact lengths and tagged fields). `protocol.codec` generates straight-line code from a declaration when a version is
first used. Nothing is generated at import, not even `__init__`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, NamedTuple, dataclass_transform
from uuid import UUID as Uuid

Buffer = bytes | bytearray | memoryview
"""Any bytes-like object. A memoryview must be contiguous and of format "B"."""

NIL_UUID = Uuid(int=0)
"""The id that Kafka sends for no id."""

MISSING: Any = object()
_LATEST = 32767


class Versions(NamedTuple):
    """A range of versions, with both ends. Empty if last < first."""

    first: int
    last: int

    def includes(self, version: int) -> bool:
        return self.first <= version <= self.last

    @classmethod
    @cache  # Hundreds of fields have few different ranges, and this saves time at the start.
    def parse(cls, text: str) -> Versions:
        """Parses "none", "3", "3+" or "3-11"."""
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), _LATEST)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


class Fixed(NamedTuple):
    """A type of fixed width: its struct code, its width, and the value of a field that a version lacks."""

    name: str
    code: str
    size_bytes: int
    zero: Any


class Variable(NamedTuple):
    """Length-prefixed bytes. `length_code` is the struct code of the prefix in non-flexible versions."""

    name: str
    length_code: str
    length_size_bytes: int
    zero: Any


class Array(NamedTuple):
    """A counted sequence of elements, which are not arrays."""

    element: FieldType


FieldType = Fixed | Variable | Array | type["Message"]

BOOLEAN = Fixed("BOOLEAN", "?", 1, False)
INT8 = Fixed("INT8", "b", 1, 0)
INT16 = Fixed("INT16", "h", 2, 0)
UINT16 = Fixed("UINT16", "H", 2, 0)
INT32 = Fixed("INT32", "i", 4, 0)
INT64 = Fixed("INT64", "q", 8, 0)
FLOAT64 = Fixed("FLOAT64", "d", 8, 0.0)
UUID = Fixed("UUID", "16s", 16, NIL_UUID)
STRING = Variable("STRING", "h", 2, "")
BYTES = Variable("BYTES", "i", 4, b"")
RECORDS = Variable("RECORDS", "i", 4, None)
"""Record batches: decoded as a slice of the input, encoded from one buffer or a sequence of them."""


def array(element: FieldType) -> Array:
    assert not isinstance(element, Array), "Kafka has no arrays of arrays"
    return Array(element)


class Field:
    """One declared field. `tag` is None for fields that are not tagged."""

    __slots__ = ("default", "default_factory", "name", "nullable", "tag", "type", "versions")

    def __init__(
        self,
        type_: FieldType,
        *,
        versions: Versions,
        nullable: Versions,
        default: Any,
        default_factory: Callable[[], Any] | None,
        tag: int | None,
    ) -> None:
        self.name = ""
        self.type = type_
        self.versions = versions
        self.nullable = nullable
        self.default = default
        self.default_factory = default_factory
        self.tag = tag
        if tag is not None and isinstance(type_, type):
            assert default is None, "an absent tagged struct is None"
        if isinstance(type_, type) and nullable.first <= nullable.last:
            assert default is None, "a struct that may be None is None by default"

    @property
    def required(self) -> bool:
        """Whether the constructor needs a value."""
        return self.default is MISSING and self.default_factory is None

    @property
    def absent_value(self) -> Any:
        """The value of the field in a decoded message whose version lacks it. A new list for arrays."""
        if self.default is not MISSING:
            return self.default
        if isinstance(self.type, Array):
            return []
        assert isinstance(self.type, Fixed | Variable), "a struct in the sequence is in every version"
        return self.type.zero


def field(
    type_: FieldType,
    *,
    versions: str = "0+",
    nullable: str = "none",
    default: Any = MISSING,
    default_factory: Callable[[], Any] | None = None,
    tag: int | None = None,
) -> Any:
    """Declares a field. A field with a default may be left out of the constructor.

    `versions` are those that have the field, `nullable` those in which it may be None, `tag` its number if it is a
    tagged field. A tagged field is encoded only if it differs from its default. The default of a tagged struct is None.
    """
    return Field(
        type_,
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        default=default,
        default_factory=default_factory,
        tag=tag,
    )


class Schema:
    """The declaration of a message class. `api_key` is None for nested structs and peer messages."""

    __slots__ = ("api_key", "fields", "flexible", "versions")

    def __init__(
        self, fields: tuple[Field, ...], api_key: int | None, versions: Versions, flexible: Versions
    ) -> None:
        self.fields = fields
        self.api_key = api_key
        self.versions = versions
        self.flexible = flexible

    def at(self, version: int) -> list[Field]:
        """The untagged fields of a version, in wire order."""
        return [each for each in self.fields if each.tag is None and each.versions.includes(version)]

    def tagged_at(self, version: int) -> list[Field]:
        """The tagged fields of a version, in the order of their tags, as KIP-482 requires."""
        tagged = [each for each in self.fields if each.tag is not None and each.versions.includes(version)]
        return sorted(tagged, key=lambda each: each.tag or 0)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class MessageType(type):
    """Makes slots of the declared fields of a class, and keeps the declaration as `__schema__`."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int | None = None,
        versions: str = "0",
        flexible: str = "none",
    ) -> MessageType:
        fields = []
        for key, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
                del namespace[key]
        namespace["__slots__"] = tuple(each.name for each in fields)
        namespace["__schema__"] = Schema(
            tuple(fields), api_key, Versions.parse(versions), Versions.parse(flexible)
        )
        return super().__new__(mcs, name, bases, namespace)


class Message(metaclass=MessageType):
    """A message or a nested struct: mutable, slotted, compared by value, constructed with keywords only."""

    __schema__: ClassVar[Schema]
    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]  # Messages are mutable.

    def __init__(self, **values: Any) -> None:
        # This is the first instance of the class: replace this constructor with the generated one.
        cls = type(self)
        cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


def _constructor(cls: type[Message]) -> Callable[..., None]:
    """Generates `__init__(self, *, a, b=...)`, which is as fast as a handwritten one."""
    parameters: list[str] = []
    lines: list[str] = []
    names: dict[str, Any] = {"MISSING": MISSING}
    for each in cls.__schema__.fields:
        value = each.name
        if each.required:
            parameters.append(each.name)
        elif each.default_factory is not None:
            names[f"make_{each.name}"] = each.default_factory
            parameters.append(f"{each.name}=MISSING")
            value = f"make_{each.name}() if {each.name} is MISSING else {each.name}"
        else:
            names[f"default_{each.name}"] = each.default
            parameters.append(f"{each.name}=default_{each.name}")
        lines.append(f"    self.{each.name} = {value}\n")
    star = ", *, " if parameters else ""
    source = f"def __init__(self{star}{', '.join(parameters)}):\n{''.join(lines) or '    pass'}"
    exec(source, names)
    return names["__init__"]  # type: ignore[no-any-return]
