"""The keys of records, and the partition that each belongs on."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from pipeline.workloads.spec import KeyDistribution, RunSpec

_HASH_VALUES = 1 << 53


def turn_column(spec: RunSpec, sequence: Column) -> Column:
    """How many records its producer has sent before this one."""
    return F.floor(sequence / spec.producers).cast("bigint")


def key_column(spec: RunSpec, sequence: Column) -> Column:
    """The record's key, binary, or null. Its number modulo `producers` is the producer that owns it."""
    if spec.key_distribution is KeyDistribution.NONE:
        return F.lit(None).cast("binary")
    rank = _rank(spec, sequence)
    if spec.tombstone_tail:
        is_in_tail = sequence >= spec.records - spec.tombstone_tail
        rank = F.when(is_in_tail, turn_column(spec, sequence) % _keys_per_producer(spec)).otherwise(rank)
    number = rank * spec.producers + sequence % spec.producers
    return F.concat(F.lit("key-"), number.cast("string")).cast("binary")


def _rank(spec: RunSpec, sequence: Column) -> Column:
    """Which of its keys a producer takes, 0 up; with `ZIPF` the lower the likelier."""
    keys = _keys_per_producer(spec)
    if spec.key_distribution is KeyDistribution.ROUND_ROBIN:
        return turn_column(spec, sequence) % keys
    hashed = F.xxhash64(F.lit(spec.seed), F.lit("key"), sequence)
    if spec.key_distribution is KeyDistribution.UNIFORM or keys == 1:
        return F.pmod(hashed, F.lit(keys))
    return _zipf(F.pmod(hashed, F.lit(_HASH_VALUES)) / float(_HASH_VALUES), keys, spec.zipf_theta)


def _zipf(uniform: Column, keys: int, theta: float) -> Column:
    """Ranks 0 to keys - 1 by Zipf's law from numbers in [0, 1): the approximation of Gray et al., "Quickly generating
    billion-record synthetic databases" (1994), which YCSB uses, too."""
    zeta = sum(1 / rank**theta for rank in range(1, keys + 1))
    zeta_of_2 = 1 + 0.5**theta
    eta = (1 - (2 / keys) ** (1 - theta)) / (1 - zeta_of_2 / zeta) if keys > 2 else 0.0
    scaled = uniform * zeta
    beyond = F.floor(keys * F.pow(eta * uniform - eta + 1, F.lit(1 / (1 - theta)))).cast("bigint")
    return (
        F.when(scaled < 1, F.lit(0))
        .when(scaled < zeta_of_2, F.lit(1))
        .otherwise(F.least(beyond, F.lit(keys - 1)))
        .cast("bigint")
    )


def _keys_per_producer(spec: RunSpec) -> int:
    return spec.keys // spec.producers


def partition_of(key: bytes, partitions: int) -> int:
    """Where Java's default partitioner, and librdkafka's `murmur2_random`, put a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2 with 32 bits and Kafka's seed; unsigned."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    hashed = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        hashed = (hashed * factor & mask) ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * factor & mask
    hashed = (hashed ^ hashed >> 13) * factor & mask
    return hashed ^ hashed >> 15
