"""How much is replayed to know the producers: a part of a segment, wherever one begins."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from broker.replication import producer_state_maintenance
from broker.replication.producer_state_maintenance import SEGMENT_PART, ProducerStateMaintenance
from protocol.records.batch import parse_header
from storage.log import Log
from storage.log_types import LogConfig
from storage.producer_snapshot import encode_snapshot, ensure_snapshot, load_producers
from storage.producer_state import ProducerStates
from tests.storage.helpers import batch_at, fresh_disk, new_log, segment_bases

CONFIG = LogConfig(segment_bytes=16_000, index_interval_bytes=400)


def _written(
    log: Log,
    states: ProducerStates,
    maintenance: ProducerStateMaintenance,
    rng: random.Random,
    *,
    committed: int | None = None,
) -> None:
    """One batch of one of three producers, committed at once unless that is said."""
    producer_id = rng.randint(1, 3)
    entry = states.entries.get(producer_id)
    sequence = entry.batches[-1].last_sequence + 1 if entry is not None else 0
    batch = batch_at(
        log.end_offset,
        log.lineage.last_term,
        count=rng.randint(1, 3),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    header = parse_header(batch)
    log.append_batches([batch], [header])
    states.record_stored(memoryview(batch), header)
    maintenance.batches_appended(log, states, 1)
    if maintenance.pending is not None:
        maintenance.high_watermark_advanced(log, log.end_offset if committed is None else committed)


def _replayed_bytes(log: Log, end_offset: int) -> int:
    newest = max((offset for offset in log.snapshot_offsets() if offset <= end_offset), default=0)
    return sum(stored.header.size_bytes for stored in log.batches(newest, end_offset))


def test_by_bytes_and_only_a_few_are_kept() -> None:
    rng = random.Random(3)
    with fresh_disk() as disk:
        log = new_log(disk, CONFIG)
        states, maintenance = ProducerStates(), ProducerStateMaintenance(log)
        largest = CONFIG.segment_bytes // SEGMENT_PART + 400
        while len(segment_bases(log)) < 5:
            _written(log, states, maintenance, rng)
            assert _replayed_bytes(log, log.end_offset) <= largest
        assert encode_snapshot(load_producers(log)) == encode_snapshot(states)
        for base_offset, end_offset in pairwise(segment_bases(log)):
            within = [x for x in log.snapshot_offsets() if base_offset < x <= end_offset]
            assert 1 <= len(within) <= 2
            # What deleting the segment replays.
            assert _replayed_bytes(log, end_offset) <= largest
        log.close(is_clean=False)


def test_by_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state_maintenance, "BATCHES_BETWEEN", 5)
    with fresh_disk() as disk:
        log = new_log(disk, LogConfig())
        states, maintenance = ProducerStates(), ProducerStateMaintenance(log)
        for _ in range(23):
            _written(log, states, maintenance, random.Random(1))
        assert len(list(log.batches(max(log.snapshot_offsets())))) == 3
        log.close(is_clean=False)


def test_what_is_not_committed_is_not_kept_and_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state_maintenance, "BATCHES_BETWEEN", 5)
    rng = random.Random(4)
    with fresh_disk() as disk:
        log = new_log(disk, LogConfig())
        states, maintenance = ProducerStates(), ProducerStateMaintenance(log)
        for _ in range(4):
            _written(log, states, maintenance, rng)
        committed = log.end_offset
        for _ in range(12):
            _written(log, states, maintenance, rng, committed=committed)
        assert maintenance.pending is not None and not log.snapshot_offsets()
        first = maintenance.pending.end_offset
        maintenance.high_watermark_advanced(log, log.end_offset)
        # Or nothing would ever be kept where the commit lags.
        assert log.snapshot_offsets() == [first] and first < log.end_offset
        log.close(is_clean=False)


def test_what_the_log_start_stands_on_stays() -> None:
    rng = random.Random(5)
    with fresh_disk() as disk:
        log = new_log(disk, CONFIG)
        states, maintenance = ProducerStates(), ProducerStateMaintenance(log)
        while len(segment_bases(log)) < 3 or log.active_segment_bytes < 3000:
            _written(log, states, maintenance, rng)
        log.flush()
        log.set_start_offset(log.end_offset)
        end_offset = log.whole_segments_end(log.start_offset)
        ensure_snapshot(log, end_offset, log.end_offset)
        log.delete_segments(end_offset)
        while len(segment_bases(log)) < 3:
            _written(log, states, maintenance, rng)
            assert log.install_offset in log.snapshot_offsets()
        log.close(is_clean=False)
