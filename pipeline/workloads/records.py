"""What a run sends: every record is a pure function of the run's `RunSpec` and the record's sequence number.

The verifier therefore recomputes each record instead of storing what was sent, so a run of any size needs no
copy of its data. The expressions are Spark SQL, evaluated in the JVM both when loading and when verifying.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.workloads import auction, checked, keys, shop
from pipeline.workloads.spec import RunSpec, ValueKind

HEADER_RUN = "run"
HEADER_SEED = "seed"
HEADER_SEQUENCE = "sequence"

_KEYS = {
    ValueKind.CHECKED: keys.key_column,
    ValueKind.SHOP: shop.key_column,
    ValueKind.AUCTION: auction.key_column,
}
_VALUES = {
    ValueKind.CHECKED: checked.value_column,
    ValueKind.SHOP: shop.value_column,
    ValueKind.AUCTION: auction.value_column,
}


def key_column(spec: RunSpec, sequence: Column) -> Column:
    """The record's key, binary. No two producers have one in common."""
    return _KEYS[spec.values](spec, sequence)


def value_column(spec: RunSpec, sequence: Column) -> Column:
    """The record's value, binary; null for a tombstone."""
    return _VALUES[spec.values](spec, sequence)


def topic_column(spec: RunSpec, sequence: Column) -> Column:
    """As `RunSpec.topic_number`, by name."""
    names = spec.topic_names
    if len(names) == 1:
        return F.lit(names[0])
    number = keys.turn_column(spec, sequence) % len(names)
    return F.element_at(F.array(*map(F.lit, names)), (number + 1).cast("int"))


def timestamp_ms_column(spec: RunSpec, sequence: Column) -> Column:
    """The record's CreateTime: when a paced run intends to send it; otherwise a thousand records a millisecond."""
    rate_per_s = spec.rate_per_s if spec.rate_per_s is not None else 1_000_000.0
    elapsed_ms = F.floor(sequence.cast("double") * (1000.0 / rate_per_s)).cast("bigint")
    return F.lit(spec.start_timestamp_ms).cast("bigint") + elapsed_ms


def headers_column(spec: RunSpec, sequence: Column) -> Column:
    """The record's headers in order, in the shape of Spark's connector."""

    def header(name: str, value: Column) -> Column:
        return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))

    return F.array(
        header(HEADER_RUN, F.lit(spec.run_id)),
        header(HEADER_SEED, F.lit(str(spec.seed))),
        header(HEADER_SEQUENCE, sequence.cast("string")),
    )


def headers_of(spec: RunSpec, sequence: int) -> list[tuple[str, str | bytes | None]]:
    """The same headers for the producer, which adds them as it sends."""
    return [
        (HEADER_RUN, spec.run_id.encode()),
        (HEADER_SEED, b"%d" % spec.seed),
        (HEADER_SEQUENCE, b"%d" % sequence),
    ]
