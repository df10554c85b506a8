"""What a run sends: every record is a pure function of the run's `RunSpec` and the record's sequence number.

The verifier therefore recomputes each record instead of storing what was sent, so a run of any size needs no
copy of its data. The expressions are Spark SQL, evaluated in the JVM both when loading and when verifying.

A value is JSON text, so that any viewer can show it::

    {"sequence":1234,"crc32":"89abcdef","payload":"<hexadecimal digits up to the record size>"}

`crc32` is the checksum of the payload's characters. It lets a record be judged from itself alone, also where
its sequence number is damaged; comparison with the recomputed value is a separate, stricter check.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.run_files import CONFIG

HEADER_RUN = "run"
HEADER_SEED = "seed"
HEADER_SEQUENCE = "sequence"

_VALUE_OPEN = '{"sequence":'
_VALUE_CHECKSUM = ',"crc32":"'
_VALUE_PAYLOAD = '","payload":"'
_VALUE_CLOSE = '"}'
_CHECKSUM_DIGITS = 8
# Without the digits of the sequence number.
_VALUE_OVERHEAD_BYTES = len(_VALUE_OPEN + _VALUE_CHECKSUM + _VALUE_PAYLOAD + _VALUE_CLOSE) + _CHECKSUM_DIGITS
# One SHA-512 in hexadecimal.
_PAYLOAD_BLOCK_BYTES = 128
MAX_SEQUENCE_DIGITS = 12
# Room for the longest sequence number and some payload.
MIN_RECORD_SIZE_BYTES = _VALUE_OVERHEAD_BYTES + MAX_SEQUENCE_DIGITS + 8


@dataclasses.dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that decides which records a run sends. Stored as `config.json` under "spec"."""

    topic: str
    records: int
    """Sequence numbers are 0 <= sequence < records."""
    seed: int
    record_size_bytes: int
    """Length of each value; keys and headers come on top."""
    keys: int
    """Distinct keys, shared out evenly over the producers."""
    producers: int
    """Producer p sends the sequences with sequence % producers == p, and owns its keys alone: order per key is
    a promise that Kafka makes to one producer, and means nothing for two."""
    rate_per_s: float | None
    """Records per second over all producers; None: as fast as the cluster takes them."""
    start_timestamp_ms: int
    """Record timestamps count from here. Near the present, since a broker deletes by record timestamp."""

    def __post_init__(self) -> None:
        if not 1 <= self.records < 10**MAX_SEQUENCE_DIGITS:
            raise ValueError(f"records must be 1 to 10^{MAX_SEQUENCE_DIGITS}, not {self.records}")
        if self.producers < 1:
            raise ValueError(f"producers must be at least 1, not {self.producers}")
        if self.keys < self.producers:
            raise ValueError(f"{self.producers} producers need at least as many keys, not {self.keys}")
        if self.record_size_bytes < MIN_RECORD_SIZE_BYTES:
            raise ValueError(f"record size must be at least {MIN_RECORD_SIZE_BYTES} bytes")
        if self.rate_per_s is not None and self.rate_per_s <= 0:
            raise ValueError(f"rate must be above 0, not {self.rate_per_s}")

    @property
    def run_id(self) -> str:
        """Marks the run's records, so that another run on the same topic is told apart."""
        return f"{self.seed}-{self.start_timestamp_ms}"

    @property
    def records_per_producer(self) -> int:
        """Rounded up: the last producers may have one record less."""
        return -(-self.records // self.producers)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RunSpec:
        return cls(**fields)

    @classmethod
    def of_run(cls, run: Path) -> RunSpec:
        """Read the specification of a run's folder."""
        return cls.from_json(json.loads((run / CONFIG).read_text())["spec"])


def key_column(spec: RunSpec, sequence: Column) -> Column:
    """The record's key, binary. Its number modulo `producers` is the producer that owns it."""
    keys_per_producer = spec.keys // spec.producers
    rank = F.pmod(F.xxhash64(F.lit(spec.seed), F.lit("key"), sequence), F.lit(keys_per_producer))
    number = rank * spec.producers + sequence % spec.producers
    return F.concat(F.lit("key-"), number.cast("string")).cast("binary")


def value_column(spec: RunSpec, sequence: Column) -> Column:
    """The record's value, binary, exactly `record_size_bytes` long."""
    digits = sequence.cast("string")
    payload_length = F.lit(spec.record_size_bytes - _VALUE_OVERHEAD_BYTES) - F.length(digits)
    last_block = -(-spec.record_size_bytes // _PAYLOAD_BLOCK_BYTES) - 1
    blocks = F.transform(
        F.sequence(F.lit(0), F.lit(last_block)),
        lambda block: F.sha2(F.concat_ws(":", F.lit(str(spec.seed)), digits, block.cast("string")), 512),
    )
    payload = F.substring(F.array_join(blocks, ""), F.lit(1), payload_length)
    return F.concat(
        F.lit(_VALUE_OPEN),
        digits,
        F.lit(_VALUE_CHECKSUM),
        checksum_column(payload),
        F.lit(_VALUE_PAYLOAD),
        payload,
        F.lit(_VALUE_CLOSE),
    ).cast("binary")


def checksum_column(payload: Column) -> Column:
    """CRC-32 (ISO 3309) of a string's characters, eight hexadecimal digits."""
    return F.lower(F.lpad(F.hex(F.crc32(payload.cast("binary"))), _CHECKSUM_DIGITS, "0"))


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
