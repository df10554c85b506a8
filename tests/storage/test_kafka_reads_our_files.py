"""Apache Kafka's own dump tool finds no fault with our segments, indexes and snapshots.

Needs Java and the jars that /work/shared/tools/apache-kafka (or KAFKA_TOOL) fetches; skipped without.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from storage.log_types import LogConfig
from storage.producer_snapshot import Snapshot, load_producers, write_snapshot
from tests.storage.helpers import InlineDisk, append, new_log
from tests.storage.test_transactions import ABORT, Partition

TOOL = os.environ.get("KAFKA_TOOL", "/work/shared/tools/apache-kafka")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("java") is None or not Path(TOOL).exists(), reason="no Java, or no Kafka jars here"
    ),
]


def dump(*files: Path) -> str:
    names = ",".join(map(str, files))
    command = [TOOL, "tool", "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


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
    text = dump(*sorted(folder.glob("*.log")), *indexes, *times, *folder.glob("*.snapshot"))
    offsets = [int(found) for found in re.findall(r"\| offset: (\d+)", text)]
    assert offsets == list(range(end_offset))
    assert "isvalid: false" not in text
    for fault in ("mismatch", "out of order", "not found", "found timestamp", "non-consecutive"):
        assert fault not in text.lower(), text[text.lower().index(fault) - 300 :][:900]
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
    assert [line for line in dump(index).splitlines() if line.startswith("version")] == [expected]
    partition.commit()
    partition.snapshot()
    (snapshot,) = Path(partition.log.directory).glob("*.snapshot")
    assert "producerId: 8" in dump(snapshot)
    partition.log.close(is_clean=True)
    assert (
        "COMMIT" not in (dumped := dump(*Path(partition.log.directory).glob("*.log"))) and "ABORT" in dumped
    )
