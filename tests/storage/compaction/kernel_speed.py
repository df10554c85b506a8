"""How fast map and filter are on one core, in C and in Python: the command of scripts/bench-compaction.

Batches are uncompressed and in memory, so no file and no flush counts. The twin is measured with a
twentieth of the records and of the keys.
MB are those of the log that is read, in millions of bytes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple

import click

from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from storage.compaction import table_twin
from storage.compaction.aborted_data import AbortedData
from storage.compaction.batch_filter import BatchFilter, PassRules
from storage.compaction.key_map import KeyMap
from storage.compaction.key_table import KeyTable, NativeKeyTable
from storage.compaction.native_module import native

MAP_BUFFER_BYTES = 128 << 20
TWIN_SHARE = 20
NONE_ABORTED = AbortedData()


class DataSet(NamedTuple):
    name: str
    record_count: int
    key_count: int
    record_bytes: int
    goal_mb_per_s: int


DATA_SETS = (
    DataSet("100 B", 5_000_000, 1_000_000, 100, 200),
    DataSet("1 KB", 1_500_000, 500_000, 1024, 700),
)
#: What a record of these sizes has beside key and value.
FRAME_BYTES = 10


class Speed(NamedTuple):
    """In MB/s."""

    map: float
    filter: float
    both: float
    kept_share: float


def log_of(data: DataSet, share: float, batch_bytes: int, tombstone_percent: float) -> list[memoryview]:
    """Keys are chosen at random."""
    rng = random.Random(1)
    record_count, key_count = int(data.record_count * share), max(1, int(data.key_count * share))
    per_batch = max(1, batch_bytes // data.record_bytes)
    log = bytearray()
    for base_offset in range(0, record_count, per_batch):
        records = []
        for index in range(min(per_batch, record_count - base_offset)):
            key = b"key-%010d" % rng.randrange(key_count)
            is_tombstone = rng.random() * 100 < tombstone_percent
            value = None if is_tombstone else b"v" * (data.record_bytes - len(key) - FRAME_BYTES)
            records.append(NewRecord(key, value, 1000 + index))
        log += build_batch(records, base_offset=base_offset)
    view = memoryview(log)
    return [view[position : position + header.size_bytes] for position, header in iter_batches(view)]


def measure(batches: list[memoryview], table: Callable[[int], KeyTable]) -> Speed:
    """One pass over everything."""
    started = time.process_time()
    key_map = KeyMap(MAP_BUFFER_BYTES, 0, table=table)
    for batch in batches:
        assert key_map.add_batch(batch, NONE_ABORTED)
    mapped = time.process_time()
    rules = PassRules(5000, 86_400_000, 86_400_000, 0, 0, 0, key_map.end_offset - 1, frozenset())
    batch_filter = BatchFilter(key_map, NONE_ABORTED, rules)
    for batch in batches:
        batch_filter.filter(batch)
    ended = time.process_time()
    counts = batch_filter.counts
    size_mb = counts.bytes_in / 1e6
    return Speed(
        size_mb / (mapped - started),
        size_mb / (ended - mapped),
        size_mb / (ended - started),
        counts.records_out / counts.records_in,
    )


@click.command()
@click.option("--share", default=0.1, show_default=True, help="How much of each data set: 1 for all of it.")
@click.option("--batch-bytes", default=16_384, show_default=True)
@click.option("--tombstones", "tombstone_percent", default=0.0, show_default=True, help="Percent of records.")
@click.option("--runs", default=3, show_default=True, help="The best one counts.")
def main(share: float, batch_bytes: int, tombstone_percent: float, runs: int) -> None:
    """Measures the map and the filter of a compaction pass, in seconds of CPU."""
    for data in DATA_SETS:
        batches = log_of(data, share, batch_bytes, tombstone_percent)
        size_mb = sum(map(len, batches)) / 1e6
        click.echo(f"{data.name}: {size_mb:.0f} MB in {len(batches)} batches, goal {data.goal_mb_per_s} MB/s")
        few = log_of(data, share / TWIN_SHARE, batch_bytes, tombstone_percent)
        kinds: list[tuple[str, list[memoryview], Callable[[int], KeyTable]]] = [
            ("twin", few, table_twin.KeyTable)
        ]
        if native is not None:
            kinds.insert(0, ("native", batches, NativeKeyTable))
        for name, chosen, table in kinds:
            best = max((measure(chosen, table) for _ in range(runs)), key=lambda speed: speed.both)
            click.echo(
                f"  {name:6}  map {best.map:5.0f}  filter {best.filter:5.0f}  both {best.both:5.0f} MB/s,"
                f" {best.kept_share:.0%} of the records kept"
            )


if __name__ == "__main__":
    main()
