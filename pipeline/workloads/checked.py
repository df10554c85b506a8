"""Values that prove themselves: JSON text, so that any viewer can show it::

    {"sequence":1234,"crc32":"89abcdef","payload":"<hexadecimal digits up to the record size>"}

`crc32` is the checksum of the payload's characters. It lets a record be judged from itself alone, also where
its sequence number is damaged; comparison with the recomputed value is a separate, stricter check.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.workloads.spec import MAX_SEQUENCE_DIGITS, MIN_RECORD_SIZE_BYTES, RunSpec

_OPEN = '{"sequence":'
_CHECKSUM = ',"crc32":"'
_PAYLOAD = '","payload":"'
_CLOSE = '"}'
_CHECKSUM_DIGITS = 8
# Without the digits of the sequence number.
_OVERHEAD_BYTES = len(_OPEN + _CHECKSUM + _PAYLOAD + _CLOSE) + _CHECKSUM_DIGITS
# One SHA-512 in hexadecimal.
_BLOCK_BYTES = 128
_TOMBSTONE_STEPS = 1_000_000

assert _OVERHEAD_BYTES + MAX_SEQUENCE_DIGITS + 8 <= MIN_RECORD_SIZE_BYTES


def value_column(spec: RunSpec, sequence: Column) -> Column:
    """The record's value, binary, exactly `record_size_bytes` long; null for a tombstone."""
    digits = sequence.cast("string")
    payload_length = F.lit(spec.record_size_bytes - _OVERHEAD_BYTES) - F.length(digits)
    random_bytes = int(spec.record_size_bytes * spec.random_share)
    last_block = max(-(-random_bytes // _BLOCK_BYTES), 1) - 1
    blocks = F.transform(
        F.sequence(F.lit(0), F.lit(last_block)),
        lambda block: F.sha2(F.concat_ws(":", F.lit(str(spec.seed)), digits, block.cast("string")), 512),
    )
    random = F.array_join(blocks, "")
    if spec.random_share < 1:
        random = F.rpad(F.substring(random, 1, random_bytes), spec.record_size_bytes, "0")
    payload = F.substring(random, F.lit(1), payload_length)
    value = F.concat(
        F.lit(_OPEN),
        digits,
        F.lit(_CHECKSUM),
        checksum_column(payload),
        F.lit(_PAYLOAD),
        payload,
        F.lit(_CLOSE),
    ).cast("binary")
    is_tombstone = _is_tombstone(spec, sequence)
    return value if is_tombstone is None else F.when(~is_tombstone, value)


def _is_tombstone(spec: RunSpec, sequence: Column) -> Column | None:
    """None: no record is."""
    conditions = []
    if spec.tombstone_share:
        drawn = F.pmod(F.xxhash64(F.lit(spec.seed), F.lit("tombstone"), sequence), F.lit(_TOMBSTONE_STEPS))
        conditions.append(drawn < int(spec.tombstone_share * _TOMBSTONE_STEPS))
    if spec.tombstone_tail:
        conditions.append(sequence >= spec.records - spec.tombstone_tail)
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else conditions[0] | conditions[1]


def is_intact(value: Column) -> Column:
    """Whether a value, binary, carries the checksum of its payload; null where it is not of this kind at all."""
    text = value.cast("string")
    return F.get_json_object(text, "$.crc32") == checksum_column(F.get_json_object(text, "$.payload"))


def checksum_column(payload: Column) -> Column:
    """CRC-32 (ISO 3309) of a string's characters, eight hexadecimal digits."""
    return F.lower(F.lpad(F.hex(F.crc32(payload.cast("binary"))), _CHECKSUM_DIGITS, "0"))
