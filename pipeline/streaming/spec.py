"""What a run feeds and what its queries must make of it: pure functions of the specification and a sequence number.

The feeder computes records in Python, the queries transform them in the JVM, and the judge recomputes both sides.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

#: Room for the fields of the longest record.
MIN_RECORD_SIZE_BYTES = 160
TAX_PERCENT = 19
WINDOW_S = 10
_AMOUNTS = 1_000_003
_STEP = 7_919

INPUT_SCHEMA_SQL = "run string, sequence bigint, account string, amount bigint"
#: What the first query keeps and adds; the source's place tells the judge which batch a record belongs to.
OUTPUT_SCHEMA_SQL = (
    "run string, sequence bigint, amount bigint, with_tax bigint, source_partition int, source_offset bigint"
)
#: What the second query counts: records of a key by the window of their timestamps.
COUNT_SCHEMA_SQL = "key string, window_start_s bigint, records bigint"


@dataclass(frozen=True, slots=True)
class Topics:
    """Three topics of one run."""

    source: str
    sink: str
    counts: str

    @classmethod
    def named(cls, name: str) -> Topics:
        return cls(f"{name}-in", f"{name}-out", f"{name}-counts")

    @property
    def all(self) -> tuple[str, str, str]:
        return self.source, self.sink, self.counts


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """Everything that decides the records of a run. Stored in `config.json` under "spec"."""

    topic: str
    """What the names of the run's topics begin with."""
    records: int
    rate_per_s: float
    record_size_bytes: int
    """Of each value that is fed."""
    keys: int
    seed: int
    start_timestamp_ms: int
    """When the first record is meant to be sent; record timestamps count from here."""

    @property
    def run_id(self) -> str:
        return f"{self.topic}-{self.start_timestamp_ms}"

    @property
    def topics(self) -> Topics:
        return Topics.named(self.topic)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    # -- the feeder's side -----------------------------------------------------------------------------------

    def key(self, sequence: int) -> bytes:
        return b"account-%d" % (sequence % self.keys)

    def value(self, sequence: int) -> bytes:
        """JSON, filled up to the size asked for with what the query does not keep."""
        fields = {
            "run": self.run_id,
            "sequence": sequence,
            "account": self.key(sequence).decode(),
            "amount": (sequence * _STEP + self.seed) % _AMOUNTS,
        }
        text = json.dumps(fields, separators=(",", ":"))
        return (text[:-1] + ',"note":"').encode().ljust(self.record_size_bytes - 2, b".") + b'"}'

    def timestamp_ms(self, sequence: int) -> int:
        """When the record is meant to be sent."""
        return self.start_timestamp_ms + int(sequence * 1000 / self.rate_per_s)

    # -- the judge's side ------------------------------------------------------------------------------------

    def amount_column(self, sequence: Column) -> Column:
        return (sequence * _STEP + self.seed) % _AMOUNTS

    def key_column(self, sequence: Column) -> Column:
        return F.concat(F.lit("account-"), (sequence % self.keys).cast("string"))

    def timestamp_ms_column(self, sequence: Column) -> Column:
        elapsed_ms = F.floor(sequence.cast("double") * 1000.0 / self.rate_per_s).cast("bigint")
        return F.lit(self.start_timestamp_ms).cast("bigint") + elapsed_ms

    def input_column(self, sequence: Column) -> Column:
        """The value that was fed, as text."""
        unfilled = F.concat(
            F.lit(f'{{"run":"{self.run_id}","sequence":'),
            sequence.cast("string"),
            F.lit(',"account":"'),
            self.key_column(sequence),
            F.lit('","amount":'),
            self.amount_column(sequence).cast("string"),
            F.lit(',"note":"'),
        )
        return F.concat(F.rpad(unfilled, self.record_size_bytes - 2, "."), F.lit('"}'))

    def output_column(self, sequence: Column, partition: Column, offset: Column) -> Column:
        """What the first query must make of the record at that place, as text."""
        amount = self.amount_column(sequence)
        # Written out rather than by to_json: the query uses that, and would be compared with itself.
        return F.concat(
            F.lit(f'{{"run":"{self.run_id}","sequence":'),
            sequence.cast("string"),
            F.lit(',"amount":'),
            amount.cast("string"),
            F.lit(',"with_tax":'),
            F.floor(amount * (100 + TAX_PERCENT) / 100).cast("string"),
            F.lit(',"source_partition":'),
            partition.cast("string"),
            F.lit(',"source_offset":'),
            offset.cast("string"),
            F.lit("}"),
        )
