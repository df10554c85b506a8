"""Changes of a shop's tables as Debezium writes them: an envelope with the row before and after, its source, and the
operation.

Each row of a table lives through the same few changes: it is created, updated some times, and, if it is one of those,
deleted, with a tombstone behind the event. A producer changes as many rows at a time as it has keys, one after the
other; when all are through, it goes on to new ones. So the row before a change follows from the record's number alone.

| table | share | key |
|---|---|---|
| customers | 1 of 8 | {"id":N} |
| orders | 3 of 8 | {"id":N} |
| items | 4 of 8 | {"id":N} |
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.workloads.keys import turn_column
from pipeline.workloads.spec import RunSpec

#: Records of one row: created, three times updated, deleted, tombstone. A row that stays is updated instead.
CHANGES = 6
_DELETED_AT = CHANGES - 2
# One row in so many is deleted.
_DELETED_ONE_IN = 3
_CITIES = ("Berlin", "Lagos", "Lima", "Mumbai", "Osaka", "Oslo", "Quito", "Turin")
_STATES = ("placed", "paid", "packed", "shipped", "delivered", "returned")


def key_column(spec: RunSpec, sequence: Column) -> Column:
    return F.to_json(F.struct(_row_number(spec, sequence).alias("id"))).cast("binary")


def value_column(spec: RunSpec, sequence: Column) -> Column:
    """The envelope as JSON, binary; null for a tombstone."""
    number, change = _row_number(spec, sequence), _change(spec, sequence)
    is_deleted = _is_deleted(spec, number) & (change >= _DELETED_AT)
    before = F.when(change > 0, _row(spec, number, change - 1))
    after = F.when(~is_deleted, _row(spec, number, change))
    at_ms = F.lit(spec.start_timestamp_ms) + sequence
    source = F.to_json(
        F.struct(
            F.lit("3.0.0.Final").alias("version"),
            F.lit("postgresql").alias("connector"),
            F.lit("shop").alias("name"),
            at_ms.alias("ts_ms"),
            F.lit("shop").alias("db"),
            F.lit("public").alias("schema"),
            _table(number).alias("table"),
            sequence.alias("lsn"),
        )
    )
    operation = F.when(change == 0, "c").when(is_deleted, "d").otherwise("u")
    text = F.concat(
        F.lit('{"before":'),
        F.coalesce(before, F.lit("null")),
        F.lit(',"after":'),
        F.coalesce(after, F.lit("null")),
        F.lit(',"source":'),
        source,
        F.lit(',"op":"'),
        operation,
        F.lit('","ts_ms":'),
        at_ms.cast("string"),
        F.lit("}"),
    )
    return F.when(~(is_deleted & (change > _DELETED_AT)), text.cast("binary"))


def _rows_at_a_time(spec: RunSpec) -> int:
    return spec.keys // spec.producers


def _change(spec: RunSpec, sequence: Column) -> Column:
    return (F.floor(turn_column(spec, sequence) / _rows_at_a_time(spec)) % CHANGES).cast("int")


def _row_number(spec: RunSpec, sequence: Column) -> Column:
    """Over all tables. Its number modulo `producers` is the producer that changes it."""
    at_a_time = _rows_at_a_time(spec)
    turn = turn_column(spec, sequence)
    generation = F.floor(turn / (at_a_time * CHANGES))
    of_producer = generation * at_a_time + turn % at_a_time
    return (of_producer * spec.producers + sequence % spec.producers).cast("bigint")


def _table(number: Column) -> Column:
    eighth = number % 8
    return F.when(eighth == 0, "customers").when(eighth < 4, "orders").otherwise("items")


def _is_deleted(spec: RunSpec, number: Column) -> Column:
    return _draw(spec, "deleted", number, 0, _DELETED_ONE_IN) == 0


def _row(spec: RunSpec, number: Column, change: Column) -> Column:
    """The row after so many changes, as JSON text."""
    table = _table(number)

    def of(name: str, column: Column) -> Column:
        return F.when(table == name, column)

    def one_of(texts: tuple[str, ...], what: str, at: Column) -> Column:
        return F.element_at(F.array(*map(F.lit, texts)), _draw(spec, what, number, at, len(texts)) + 1)

    customer = F.to_json(
        F.struct(
            number.alias("id"),
            F.concat(F.lit("customer-"), number.cast("string")).alias("name"),
            one_of(_CITIES, "city", change).alias("city"),
            change.alias("logins"),
        )
    )
    order = F.to_json(
        F.struct(
            number.alias("id"),
            _draw(spec, "customer", number, 0, 1000).alias("customer_id"),
            F.element_at(F.array(*map(F.lit, _STATES)), F.least(change + 1, F.lit(len(_STATES)))).alias(
                "state"
            ),
            (_draw(spec, "total", number, change, 100_000) / 100).alias("total"),
        )
    )
    item = F.to_json(
        F.struct(
            number.alias("id"),
            _draw(spec, "order", number, 0, 100_000).alias("order_id"),
            F.concat(F.lit("sku-"), _draw(spec, "sku", number, 0, 5000).cast("string")).alias("sku"),
            (change + 1).alias("quantity"),
        )
    )
    return F.coalesce(of("customers", customer), of("orders", order), item)


def _draw(spec: RunSpec, what: str, number: Column, change: Column | int, below: int) -> Column:
    """A number from 0 to below - 1 that follows from the seed, the row and the change."""
    at = change if isinstance(change, Column) else F.lit(change)
    return F.pmod(F.xxhash64(F.lit(spec.seed), F.lit(what), number, at), F.lit(below)).cast("int")
