"""Generates the source of an encoder for one version of a message. It mirrors `protocol.decoder_source`.

The code appends pieces to a list: one `struct.pack` for adjacent fields of fixed width and the length prefix behind
them, and one piece for each string. With `joined` the encoder returns bytes. Otherwise it returns a list that holds
record buffers as they were given, and the joined pieces between them. With `in_steps` it is a generator that
yields after every `wire.ELEMENTS_PER_STEP` elements of arrays, and its return value is the list.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Any

from protocol import wire
from protocol.schema import NIL_UUID, RECORDS, STRING, UUID, Array, Buffer, Field, Fixed, Message, Variable


def encoder_source(
    cls: type[Message], version: int, *, joined: bool, in_steps: bool = False
) -> tuple[str, dict[str, Any]]:
    """Returns the source of `encode(message)` and the names it needs. `joined` and `in_steps` exclude each other."""
    assert not (joined and in_steps), "steps give a list of buffers"
    return _EncoderWriter(cls, version, joined, in_steps).write()


class _EncoderWriter:
    def __init__(self, cls: type[Message], version: int, joined: bool, in_steps: bool) -> None:
        self.cls = cls
        self.version = version
        self.joined = joined
        self.in_steps = in_steps
        self.flexible = cls.__schema__.flexible.includes(version)
        self.lines: list[str] = []
        self.indent = 1
        # Fields that will be packed together: (struct code, expression or None for a zero byte).
        self.run: list[tuple[str, str | None]] = []
        self.counter = 0
        self.sink = "out"
        self.names: dict[str, Any] = {
            "uvarint": wire.uvarint,
            "SHORT": wire.SHORT_UVARINTS,
            "pack_many": _pack_many,
            "record_buffers": _record_buffers,
            "NIL_UUID": NIL_UUID,
        }

    def write(self) -> tuple[str, dict[str, Any]]:
        self._struct(self.cls, "message")
        self._flush()
        head = ["def encode(message):", "    out = []", "    add = out.append"]
        if self.in_steps:
            head += [f"    ahead = {wire.ELEMENTS_PER_STEP}", "    yield"]
        if self.joined:
            tail = ["    return b''.join(out)"]
        else:
            head.append("    parts = []")
            tail = ["    if out:", "        parts.append(b''.join(out))", "    return parts"]
        return "\n".join(head + self.lines + tail) + "\n", self.names

    def _emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def _local(self, hint: str) -> str:
        self.counter += 1
        return f"{hint}_{self.counter}"

    def _add(self, expression: str) -> None:
        add = "add" if self.sink == "out" else f"{self.sink}.append"
        self._emit(f"{add}({expression})")

    def _flush(self) -> None:
        """Emit the pending run as one pack."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        values = ", ".join(value for _, value in self.run if value is not None)
        self.run.clear()
        if not values:
            self._add(repr(bytes(len(codes))))
            return
        pack = "pack_" + codes.replace("?", "o")
        self.names[pack] = Struct(">" + codes).pack
        self._add(f"{pack}({values})")

    def _struct(self, cls: type[Message], value: str) -> None:
        for each in cls.__schema__.at(self.version):
            self._field(each, f"{value}.{each.name}")
        if self.flexible:
            self._tags(cls, value)

    def _field(self, declared: Field, value: str) -> None:
        nullable = declared.nullable.includes(self.version)
        kind = declared.type
        if isinstance(kind, Fixed):
            self.run.append((kind.code, _uuid_bytes(value) if kind is UUID else value))
        elif kind is RECORDS:
            self._records(value, nullable)
        elif isinstance(kind, Variable):
            self._variable(kind, value, declared.name, nullable)
        elif isinstance(kind, Array):
            self._array(kind, value, declared.name, nullable)
        elif nullable:
            self._nullable_struct(kind, value)
        else:
            self._struct(kind, value)

    def _nullable_struct(self, cls: type[Message], value: str) -> None:
        self._flush()
        self._emit(f"if {value} is None:")
        self.indent += 1
        self._add(repr(b"\xff"))
        self.indent -= 1
        self._emit("else:")
        self.indent += 1
        self._add(repr(b"\x01"))
        self._struct(cls, value)
        self._flush()
        self.indent -= 1

    def _length(self, code: str, length: str) -> None:
        """Emit the code that writes a length or count, which is in the local variable `length`. -1 is null."""
        if not self.flexible:
            self.run.append((code, length))
            self._flush()
            return
        self._flush()
        self._emit(f"{length} += 1")
        self._add(f"SHORT[{length}] if {length} < 128 else uvarint({length})")

    def _variable(self, kind: Variable, value: str, name: str, nullable: bool) -> None:
        raw, length = self._local(name), self._local("n")
        encode = ".encode()" if kind is STRING else ""
        if nullable:
            self._emit(f"{raw} = {value}")
            self._emit(f"if {raw} is None:")
            self._emit(f"    {raw} = b''")
            self._emit(f"    {length} = -1")
            self._emit("else:")
            if encode:
                self._emit(f"    {raw} = {raw}{encode}")
            self._emit(f"    {length} = len({raw})")
        else:
            self._emit(f"{raw} = {value}{encode}")
            self._emit(f"{length} = len({raw})")
        self._length(kind.length_code, length)
        self._add(raw)

    def _records(self, value: str, nullable: bool) -> None:
        assert nullable, "Kafka's record fields are nullable in all versions"
        assert self.sink == "out", "no record field is tagged"
        buffers, length = self._local("buffers"), self._local("n")
        self._emit(f"{buffers}, {length} = record_buffers({value})")
        self._length("i", length)
        if self.joined:
            self._emit(f"out += {buffers}")
            return
        self._emit(f"if {buffers}:")
        self._emit("    parts.append(b''.join(out))")
        self._emit("    out.clear()")
        self._emit(f"    parts += {buffers}")

    def _array(self, kind: Array, value: str, name: str, nullable: bool) -> None:
        items, length = self._local(name), self._local("n")
        self._emit(f"{items} = {value}")
        if nullable:
            self._emit(f"if {items} is None:")
            self._emit(f"    {items} = ()")
            self._emit(f"    {length} = -1")
            self._emit("else:")
            self._emit(f"    {length} = len({items})")
        else:
            self._emit(f"{length} = len({items})")
        self._length("i", length)
        element = kind.element
        if isinstance(element, Fixed) and element is not UUID:
            self._add(f"pack_many({element.code!r}, {items})")
            return
        item = self._local("item")
        self._emit(f"for {item} in {items}:")
        self.indent += 1
        if self.in_steps:
            self._emit("ahead -= 1")
            self._emit("if not ahead:")
            self._emit(f"    ahead = {wire.ELEMENTS_PER_STEP}")
            self._emit("    parts.append(b''.join(out))")
            self._emit("    out.clear()")
            self._emit("    yield")
        if isinstance(element, Variable):
            self._variable(element, item, name, nullable=False)
        elif isinstance(element, Fixed):
            self._add(_uuid_bytes(item))
        else:
            assert not isinstance(element, Array)
            self._struct(element, item)
        self._flush()
        self.indent -= 1

    def _tags(self, cls: type[Message], value: str) -> None:
        known = cls.__schema__.tagged_at(self.version)
        if not known:
            self.run.append(("x", None))
            return
        self._flush()
        self._emit(f"if {' and '.join(_is_default(each, value) for each in known)}:")
        self.indent += 1
        self._add("b'\\0'")
        self.indent -= 1
        self._emit("else:")
        self.indent += 1
        outer, inner, tags = self.sink, self._local("inner"), self._local("tags")
        self._emit(f"{tags} = []")
        for each in known:
            self._emit(f"if not ({_is_default(each, value)}):")
            self.indent += 1
            self._emit(f"{inner} = []")
            self.sink = inner
            self._field(each, f"{value}.{each.name}")
            self._flush()
            self._emit(f"{inner} = b''.join({inner})")
            self._emit(f"{tags}.append(uvarint({each.tag}) + uvarint(len({inner})) + {inner})")
            self.indent -= 1
        self.sink = outer
        self._add(f"uvarint(len({tags}))")
        self._emit(f"{outer} += {tags}")
        self.indent -= 1


def _is_default(declared: Field, value: str) -> str:
    """The condition under which a tagged field is left out."""
    name = f"{value}.{declared.name}"
    if isinstance(declared.type, Array):
        return f"not {name}"
    default = declared.absent_value
    if default == NIL_UUID:
        return f"{name} == NIL_UUID"
    return f"{name} is None" if default is None else f"{name} == {default!r}"


def _uuid_bytes(value: str) -> str:
    """The expression of `UUID.bytes`, without the call."""
    return f"{value}.int.to_bytes(16, 'big')"


def _pack_many(code: str, values: Sequence[int]) -> bytes:
    # struct.pack caches the parsed format. Constructing a Struct takes twice as long as packing three numbers.
    return struct.pack(f">{len(values)}{code}", *values)


def _record_buffers(records: Buffer | Sequence[Buffer] | None) -> tuple[Sequence[Buffer], int]:
    """Returns the buffers of a record field and the sum of their lengths. The length is -1 for null."""
    if records is None:
        return (), -1
    if isinstance(records, bytes | bytearray | memoryview):
        return (records,), len(records)
    return records, sum(map(len, records))
