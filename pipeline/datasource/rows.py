"""Which columns of a frame become which part of a record, checked before the first one is sent."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from pipeline.datasource.errors import InvalidFrame


class Record(NamedTuple):
    topic: str
    key: bytes | str | None
    value: bytes | str | None
    partition: int
    """-1: the producer's partitioner decides."""
    headers: list[tuple[str, str | bytes | None]] | None


class Contents:
    """What a task has written of its batch, in any order: tells a replay from the records of another task."""

    def __init__(self) -> None:
        self.records = 0
        self._checksum = 0
        """The sum of the records' CRC-32, so that a shuffle may change the order within a task."""

    def counted(self, rows: Iterable[Record]) -> Iterator[Record]:
        for record in rows:
            self.records += 1
            self._checksum += zlib.crc32(repr(record).encode())
            yield record

    def __str__(self) -> str:
        return f"records={self.records} checksum={self._checksum:x}"


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raises InvalidFrame. Columns with other names are left alone, as the official sink does."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise InvalidFrame(f"the column value is missing; the frame has {', '.join(types) or 'none'}")
    if topic is None and "topic" not in types:
        raise InvalidFrame("neither the option topic nor a column topic says where to write")
    expected: dict[str, tuple[str, type[DataType] | tuple[type[DataType], ...]]] = {
        "key": ("string or binary", (StringType, BinaryType)),
        "value": ("string or binary", (StringType, BinaryType)),
        "topic": ("string", StringType),
        "partition": ("int", IntegerType),
    }
    for name, (words, allowed) in expected.items():
        if name in types and not isinstance(types[name], allowed):
            raise InvalidFrame(f"the column {name} must be {words}, not {types[name].simpleString()}")
    if "headers" in types and not _are_headers(types["headers"]):
        raise InvalidFrame(
            "the column headers must be array<struct<key:string,value:binary>>,"
            f" not {types['headers'].simpleString()}"
        )


def _are_headers(kind: DataType) -> bool:
    if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def records(batch: pa.RecordBatch, topic: str | None) -> Iterator[Record]:
    """The batch's rows. The option `topic` wins over the column. Raises InvalidFrame where a row has no topic."""
    present = set(batch.schema.names)

    def column(name: str, default: Any) -> list[Any]:
        return batch.column(name).to_pylist() if name in present else [default] * batch.num_rows

    topics = [topic] * batch.num_rows if topic is not None else column("topic", None)
    columns = zip(
        topics,
        column("key", None),
        column("value", None),
        column("partition", None),
        column("headers", None),
        strict=True,
    )
    for to, key, value, partition, headers in columns:
        if to is None:
            raise InvalidFrame("a row has null in the column topic")
        pairs = [(each["key"], each["value"]) for each in headers] if headers else None
        yield Record(to, key, value, -1 if partition is None else partition, pairs)
