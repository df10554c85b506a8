"""Generates the source of a decoder for one version of a message.

The result is straight-line code: adjacent fields of fixed width, with the length prefix behind them, become one
`struct.unpack_from`. `python -m protocol.codec Fetch 11` prints an example.

Every read is checked. `unpack_from` and indexing raise beyond the end, and the end of a slice is compared with the
length of the buffer. A count is compared with the least size of its elements, and with how many elements the message
may still hold (`room`, which begins with the caller's limit), before anything is created.

With `in_steps` the decoder is a generator. It yields after every `wire.ELEMENTS_PER_STEP` elements of arrays, and its
return value is the result.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import Any

from protocol import wire
from protocol.errors import ProtocolError
from protocol.schema import NIL_UUID, RECORDS, STRING, UUID, Array, Field, Fixed, Message, Variable


def decoder_source(cls: type[Message], version: int, *, in_steps: bool = False) -> tuple[str, dict[str, Any]]:
    """Returns the source of `decode(buf, pos, room) -> (message, next position)` and the names it needs. `room`: how
    many elements the message may hold."""
    return _DecoderWriter(cls, version, in_steps).write()


class _DecoderWriter:
    def __init__(self, cls: type[Message], version: int, in_steps: bool) -> None:
        self.cls = cls
        self.version = version
        self.in_steps = in_steps
        self.flexible = cls.__schema__.flexible.includes(version)
        self.lines: list[str] = []
        self.indent = 2
        # Fields that will be unpacked together: (struct code, size, local variable).
        self.run: list[tuple[str, int, str]] = []
        self.counter = 0
        self.names: dict[str, Any] = {
            "new": object.__new__,
            "NIL_UUID": NIL_UUID,
            "StructError": struct_error,
            "ProtocolError": ProtocolError,
        }
        for helper in (
            wire.long_uvarint, wire.read_tag, wire.skip_tags, wire.check_tag_count,
            wire.uuid_of, wire.bad_length, wire.too_many, wire.undecodable,
        ):  # fmt: skip
            self.names[helper.__name__] = helper

    def write(self) -> tuple[str, dict[str, Any]]:
        title = f"{self.cls.__name__} v{self.version}"
        result = self._struct(self.cls)
        self._flush()
        head = [
            f"def decode(buf, pos, room={wire.MAX_ELEMENTS}):",
            "    limit = len(buf)",
            "    most = room",
        ]
        if self.in_steps:
            head += [f"    ahead = {wire.ELEMENTS_PER_STEP}", "    yield"]
        head.append("    try:")
        tail = [
            f"        return {result}, pos",
            "    except (IndexError, StructError, UnicodeDecodeError) as error:",
            f"        raise undecodable({title!r}, error) from None",
        ]
        return "\n".join(head + self.lines + tail) + "\n", self.names

    def _emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def _local(self, hint: str) -> str:
        self.counter += 1
        return f"{hint}_{self.counter}"

    def _flush(self) -> None:
        """Emit the pending run as one read."""
        if not self.run:
            return
        size = sum(each[1] for each in self.run)
        targets = [each[2] for each in self.run]
        codes = "".join(each[0] for each in self.run)
        self.run.clear()
        if codes == "B":
            self._emit(f"{targets[0]} = buf[pos]")
        else:
            unpack = "unpack_" + codes.replace("?", "o")
            self.names[unpack] = Struct(">" + codes).unpack_from
            comma = "," if len(targets) == 1 else ""
            self._emit(f"{', '.join(targets)}{comma} = {unpack}(buf, pos)")
        self._emit(f"pos += {size}")

    def _struct(self, cls: type[Message]) -> str:
        """Emit the code that reads a struct. Returns the local variable that holds it."""
        values: dict[str, str] = {}
        uuids: list[str] = []
        for each in cls.__schema__.at(self.version):
            values[each.name] = self._field(each, f"{cls.__name__}.{each.name}")
            if each.type is UUID:
                uuids.append(values[each.name])
        count = ""
        if self.flexible:
            count = self._local("tags")
            self.run.append(("B", 1, count))
        self._flush()
        for name in uuids:
            self._emit(f"{name} = uuid_of({name})")
        result = self._local("struct")
        self.names[cls.__name__] = cls
        self._emit(f"{result} = new({cls.__name__})")
        for each in cls.__schema__.fields:
            value = values.get(each.name) or self._constant(each, cls)
            self._emit(f"{result}.{each.name} = {value}")
        if self.flexible:
            self._tags(cls, count, result)
        return result

    def _constant(self, declared: Field, cls: type[Message]) -> str:
        value = declared.absent_value
        if value is None or isinstance(value, bool | int | str) or value in ([], b""):
            return repr(value)
        if value == NIL_UUID:
            return "NIL_UUID"
        raise TypeError(f"{cls.__name__}.{declared.name}: no such default: {value!r}")

    def _field(self, declared: Field, title: str) -> str:
        nullable = declared.nullable.includes(self.version)
        kind = declared.type
        if isinstance(kind, Fixed):
            local = self._local(declared.name)
            self.run.append((kind.code, kind.size_bytes, local))
            return local
        if isinstance(kind, Variable):
            return self._variable(kind, declared.name, nullable, title)
        if isinstance(kind, Array):
            return self._array(kind, declared.name, nullable, title)
        return self._nullable_struct(kind, declared.name) if nullable else self._struct(kind)

    def _nullable_struct(self, cls: type[Message], name: str) -> str:
        marker, local = self._local("marker"), self._local(name)
        self.run.append(("b", 1, marker))
        self._flush()
        self._emit(f"{local} = None")
        self._emit(f"if {marker} >= 0:")
        self.indent += 1
        value = self._struct(cls)
        self._emit(f"{local} = {value}")
        self.indent -= 1
        return local

    def _length(self, name: str, code: str, size_bytes: int) -> str:
        """Emit the code that reads a length or count. -1 is null, in compact form, too."""
        local = self._local(f"n_{name}")
        if not self.flexible:
            self.run.append((code, size_bytes, local))
            self._flush()
            return local
        self.run.append(("B", 1, local))
        self._flush()
        self._emit(f"if {local} > 127:")
        self._emit(f"    {local}, pos = long_uvarint(buf, pos, {local})")
        self._emit(f"{local} -= 1")
        return local

    def _variable(self, kind: Variable, name: str, nullable: bool, title: str) -> str:
        length = self._length(name, kind.length_code, kind.length_size_bytes)
        local, end = self._local(name), self._local("end")
        if nullable:
            self._emit(f"if {length} == -1:")
            self._emit(f"    {local} = None")
            self._emit("else:")
            self.indent += 1
        self._emit(f"{end} = pos + {length}")
        self._emit(f"if {length} < 0 or {end} > limit:")
        self._emit(f"    raise bad_length({title!r}, {length})")
        piece = f"buf[pos:{end}]"
        if kind is STRING:
            self._emit(f"{local} = str({piece}, 'utf-8')")
        else:
            self._emit(f"{local} = {piece if kind is RECORDS else f'bytes({piece})'}")
        self._emit(f"pos = {end}")
        if nullable:
            self.indent -= 1
        return local

    def _array(self, kind: Array, name: str, nullable: bool, title: str) -> str:
        count = self._length(name, "i", 4)
        local = self._local(name)
        if nullable:
            self._emit(f"if {count} == -1:")
            self._emit(f"    {local} = None")
            self._emit("else:")
            self.indent += 1
        least = min_size_bytes(kind.element, self.version, self.flexible)
        assert least > 0, f"{title}: elements of no size cannot be bounded"
        self._emit(f"if {count} < 0 or {count} > (limit - pos) // {least}:")
        self._emit(f"    raise bad_length({title!r}, {count})")
        if isinstance(kind.element, Fixed) and kind.element is not UUID:
            self._emit(f"room -= {count} // {wire.NUMBERS_PER_ELEMENT}")
            self._emit("if room < 0:")
            self._emit(f"    raise too_many({title!r}, most)")
            self.names["unpack_many"] = _unpack_many
            self._emit(f"{local} = unpack_many({kind.element.code!r}, {count}, buf, pos)")
            self._emit(f"pos += {count} * {least}")
        else:
            self._emit(f"room -= {count}")
            self._emit("if room < 0:")
            self._emit(f"    raise too_many({title!r}, most)")
            self._emit(f"{local} = []")
            self._emit(f"for _ in range({count}):")
            self.indent += 1
            if self.in_steps:
                self._emit("ahead -= 1")
                self._emit("if not ahead:")
                self._emit(f"    ahead = {wire.ELEMENTS_PER_STEP}")
                self._emit("    yield")
            element = self._element(kind, name, title)
            self._emit(f"{local}.append({element})")
            self.indent -= 1
        if nullable:
            self.indent -= 1
        return local

    def _element(self, kind: Array, name: str, title: str) -> str:
        element = kind.element
        if isinstance(element, Variable):
            return self._variable(element, name, nullable=False, title=title)
        if isinstance(element, Fixed):
            local = self._local(name)
            self.run.append((element.code, element.size_bytes, local))
            self._flush()
            return f"uuid_of({local})"
        assert not isinstance(element, Array)
        return self._struct(element)

    def _tags(self, cls: type[Message], count: str, result: str) -> None:
        known = cls.__schema__.tagged_at(self.version)
        self._emit(f"if {count}:")
        self.indent += 1
        if not known:
            self._emit(f"pos, room = skip_tags(buf, pos, {count}, room)")
            self.indent -= 1
            return
        tag, end = self._local("tag"), self._local("end")
        self._emit(f"if {count} > 127:")
        self._emit(f"    {count}, pos = long_uvarint(buf, pos, {count})")
        self._emit(f"check_tag_count(buf, pos, {count})")
        self._emit(f"room -= {count}")
        self._emit("if room < 0:")
        self._emit(f"    raise too_many('{cls.__name__}, tagged fields', most)")
        self._emit(f"for _ in range({count}):")
        self.indent += 1
        self._emit(f"{tag}, pos, {end} = read_tag(buf, pos)")
        for each in known:
            title = f"{cls.__name__}.{each.name}"
            self._emit(f"if {tag} == {each.tag}:")
            self.indent += 1
            value = self._field(each, title)
            self._flush()
            if each.type is UUID:
                value = f"uuid_of({value})"
            self._emit(f"if pos != {end}:")
            self._emit(f"    raise ProtocolError('{title} does not fill its tagged field')")
            self._emit(f"{result}.{each.name} = {value}")
            self.indent -= 1
        self._emit(f"pos = {end}")
        self.indent -= 2


def _unpack_many(code: str, count: int, buf: memoryview, pos: int) -> list[Any]:
    """Reads adjacent numbers. `count` was checked against the rest of the buffer."""
    return list(Struct(f">{count}{code}").unpack_from(buf, pos))


def min_size_bytes(kind: Any, version: int, flexible: bool) -> int:
    """The least size of a value of this type. It bounds a count before anything is created."""
    if isinstance(kind, Fixed):
        return kind.size_bytes
    if isinstance(kind, Array):
        return 1 if flexible else 4
    if isinstance(kind, Variable):
        return 1 if flexible else kind.length_size_bytes
    fields = kind.__schema__.at(version)
    return sum(_min_field_bytes(each, version, flexible) for each in fields) + (1 if flexible else 0)


def _min_field_bytes(declared: Field, version: int, flexible: bool) -> int:
    if isinstance(declared.type, type) and declared.nullable.includes(version):
        return 1
    return min_size_bytes(declared.type, version, flexible)
