"""Apache Kafka's own dump tool finds no fault with our segments, indexes and snapshots.

Needs Java and the jars that /work/shared/tools/apache-kafka (or KAFKA_TOOL) fetches; skipped without.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from protocol.records.batch import Compression, parse_header
from storage.log_types import LogConfig
from storage.producer_snapshot import Snapshot, load_producers, newest_snapshot, write_snapshot
from tests.storage.compaction.model import data_of, horizon_of
from tests.storage.helpers import InlineDisk, append, new_log
from tests.storage.kill_points.journaled_log import (
    data_directory,
    load_task,
    open_journaled,
    run_recorded_pass,
)
from tests.storage.kill_points.prepared_log import log_state, prepare
from tests.storage.test_transactions import ABORT, Partition

TOOL = os.environ.get("KAFKA_TOOL", "/work/shared/tools/apache-kafka")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("java") is None or not Path(TOOL).exists(), reason="no Java, or no Kafka jars here"
    ),
]


class Dump(NamedTuple):
    text: str
    complaints: Sequence[str]
    """What the tool finds wrong; it ends with 0 all the same. Of the first record of most segments it says that the
    offset does not follow -1: that does not count."""


def dump(*files: Path) -> Dump:
    names = ",".join(map(str, files))
    command = [TOOL, "tool", "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    of_segments = ("Non-consecutive offsets in", "  -1 is followed by")
    lines = [line for line in finished.stderr.splitlines() if line and not line.startswith(of_segments)]
    return Dump(finished.stdout, lines)


def test_kafka_dump_log_finds_no_fault(tmp_path: Path) -> None:
    disk = InlineDisk(str(tmp_path))
    log = new_log(disk, LogConfig(segment_bytes=30_000, index_interval_bytes=500))
    rng = random.Random(11)
    sequences = {1: 0, 2: 0}
    for _ in range(300):
        producer = rng.choice([1, 2])
        header = append(
            log,
            count=rng.randint(1, 6),
            value_bytes=rng.randint(0, 100),
            timestamp_ms=rng.randrange(10**6),
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer],
        )
        sequences[producer] += header.last_offset_delta + 1
    log.flush()
    write_snapshot(log, Snapshot.of(load_producers(log)), log.end_offset)
    end_offset = log.end_offset
    log.close(is_clean=True)

    folder = Path(log.directory)
    indexes, times = sorted(folder.glob("*.index")), sorted(folder.glob("*.timeindex"))
    assert len(indexes) == len(times) == len(list(folder.glob("*.log"))) > 2
    text, complaints = dump(*sorted(folder.glob("*.log")), *indexes, *times, *folder.glob("*.snapshot"))
    offsets = [int(found) for found in re.findall(r"\| offset: (\d+)", text)]
    assert offsets == list(range(end_offset))
    assert "isvalid: false" not in text
    assert not complaints
    assert len(re.findall(r"producerId: \d producerEpoch: 0 coordinatorEpoch", text)) == 2
    disk.close()


def test_kafka_reads_the_index_of_aborted_transactions(tmp_path: Path) -> None:
    partition = Partition(InlineDisk(str(tmp_path)))
    first = partition.write(7)
    marker = partition.end(7, ABORT)
    while not list(Path(partition.log.directory).glob("*.txnindex")):
        partition.write(8)
    (index,) = Path(partition.log.directory).glob("*.txnindex")
    expected = (
        f"version: 0 producerId: 7 firstOffset: {first} lastOffset: {marker} lastStableOffset: {marker + 1}"
    )
    assert [line for line in dump(index).text.splitlines() if line.startswith("version")] == [expected]
    partition.commit()
    partition.snapshot()
    (snapshot,) = Path(partition.log.directory).glob("*.snapshot")
    assert "producerId: 8" in dump(snapshot).text
    partition.log.close(is_clean=True)
    dumped = dump(*Path(partition.log.directory).glob("*.log")).text
    assert "COMMIT" not in dumped and "ABORT" in dumped


# -- compacted

BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) .*producerId: (-?\d+)"
    r" producerEpoch: (-?\d+) partitionLeaderEpoch: (\d+) isTransactional: (\w+) isControl: (\w+)"
    r" deleteHorizonMs: OptionalLong[.\[](\w+)\]? .*CreateTime: (-?\d+) size: (\d+) magic: 2"
    r" compresscodec: (\w+) crc: (\d+) isvalid: true$",
    re.MULTILINE,
)
RECORD = re.compile(r"^\| offset: (\d+) CreateTime: (\d+) keySize: (\d+) valueSize: (-?\d+) ", re.MULTILINE)
ABORTED = re.compile(
    r"^version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)$",
    re.MULTILINE,
)
TIME_ENTRY = re.compile(r"^timestamp: (\d+) offset: (\d+)$", re.MULTILINE)
PRODUCER = re.compile(
    r"^producerId: (\d+) .* lastSequence: (\d+) lastOffset: (\d+) offsetDelta: (\d+) ", re.MULTILINE
)


def batch_line(batch: bytes) -> tuple[str, ...]:
    """What BATCH finds for it."""
    header = parse_header(batch)
    horizon_ms = horizon_of(batch)
    return (
        *map(str, (header.base_offset, header.last_offset, header.count, header.base_sequence)),
        *map(str, (header.producer_id, header.producer_epoch, header.leader_epoch)),
        *(str(flag).lower() for flag in (header.is_transactional, header.is_control)),
        "empty" if horizon_ms is None else str(horizon_ms),
        *map(str, (header.max_timestamp, header.size_bytes)),
        Compression(header.compression_id).name.lower(),
        str(header.crc),
    )


def test_kafka_reads_a_compacted_directory(tmp_path: Path) -> None:
    """Fillers and emptied batches are batches with `count: 0` to it. Of two things it complains, about logs that Kafka
    has compacted, too: of offsets that are not consecutive, and of time index entries that name an emptied batch, whose
    time it looks for in records."""
    prepared = prepare(tmp_path / "prepared")
    disk = InlineDisk(str(data_directory(prepared.folder)))
    journal, log = open_journaled(disk)
    run_recorded_pass(log, journal, load_task(prepared.folder))
    _, batches, aborted, _ = log_state(log, prepared.replica.history.last_stable_offset)
    producers = newest_snapshot(log, log.end_offset).entries
    log.close(is_clean=True)
    disk.close()
    headers = [parse_header(batch) for batch in batches]
    fillers = [header for header in headers if header.is_filler]
    emptied = [header for header in headers if not (header.count or header.is_control or header.is_filler)]
    remnants = [header for header in headers if header.is_control and not header.count]
    assert fillers and emptied and remnants
    assert {header.compression_id for header in headers if header.count} == set(Compression)

    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    text, complaints = dump(
        *(path for path in sorted(Path(log.directory).iterdir()) if path.suffix in suffixes)
    )
    assert BATCH.findall(text) == [batch_line(batch) for batch in batches]
    seen = [
        (
            record.offset,
            record.timestamp_ms,
            len(record.key or b""),
            -1 if record.value is None else len(record.value),
        )
        for record in data_of(batches)
    ]
    markers = {header.base_offset for header in headers if header.is_control and header.count}
    found = [tuple(map(int, each)) for each in RECORD.findall(text)]
    assert [each for each in found if each[0] not in markers] == seen
    assert len(re.findall("endTxnMarker: (?:COMMIT|ABORT) coordinatorEpoch: 4", text)) == len(markers) > 2
    expected = [(each.producer_id, *each[1:]) for each in aborted]
    assert [tuple(map(int, each)) for each in ABORTED.findall(text)] == expected != []
    last = [(pid, *entry.batches[-1][:3]) for pid, entry in producers.items()]
    assert [tuple(map(int, each)) for each in PRODUCER.findall(text)] == last != []
    empty = {header.last_offset for header in headers if not header.count}
    named = sum(int(offset) in empty for _, offset in TIME_ENTRY.findall(text))
    assert (
        sum(bool(re.match(r"  Index timestamp: \d+, log timestamp: -1$", x)) for x in complaints) == named > 0
    )
    kinds = {re.sub(r" in :.*|\d+", "", line) for line in complaints}
    assert kinds == {
        "Found timestamp mismatch",
        "  Index timestamp: , log timestamp: -",
        "   is followed by ",
    }
