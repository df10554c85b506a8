from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader, parse_header
from protocol.records.builder import NewRecord, build_batch
from protocol.records.control import Marker, build_marker
from storage.aborted_index import AbortedTransaction
from storage.compaction.rewriting import remnant
from storage.errors import CorruptLogError
from storage.log import Log
from storage.log_types import FlushedEnd
from storage.producer_snapshot import (
    Snapshot,
    SnapshotDamagedError,
    decode_snapshot,
    encode_snapshot,
    load_producers,
    write_snapshot,
)
from storage.producer_state import APPEND, Duplicate, Gap, ProducerStates, is_ahead
from tests.storage.helpers import InlineDisk, append, batch_at, delete_below, log_files, new_log, reopen


def header(
    sequence: int, *, offset: int = 0, epoch: int = 0, count: int = 3, producer: int = 9
) -> BatchHeader:
    return parse_header(
        batch_at(offset, 1, count=count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    )


def refused(states: ProducerStates, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        states.check(batch)
    return error.value.code


def behind_a_gap(states: ProducerStates, batch: BatchHeader) -> tuple[int, ErrorCode | None]:
    """The sequence that is expected, and the error unless what is missing comes."""
    gap = states.check(batch)
    assert isinstance(gap, Gap), gap
    return gap.expected, None if gap.error is None else gap.error.code


def marker(log: Log, producer: int, epoch: int, coordinator_epoch: int) -> None:
    batch = build_batch(
        [NewRecord(struct.pack(">hh", 0, 1), struct.pack(">hi", 0, coordinator_epoch), 2000)],
        base_offset=log.end_offset,
        leader_epoch=1,
        producer_id=producer,
        producer_epoch=epoch,
        is_control=True,
        is_transactional=True,
    )
    log.append_batches([batch], [parse_header(batch)])


def test_the_table_of_the_idempotent_producer() -> None:
    """client-behaviour.md B.3, in its order."""
    states = ProducerStates()
    for number in range(6):
        batch = header(number * 3, offset=100 + number * 3)
        assert states.check(batch) is APPEND
        states.record(batch)
    assert states.check(header(15)) == Duplicate(115, 117, 1002)
    assert states.check(header(3)) == Duplicate(103, 105, 1002), "the fifth batch back is still known"
    assert behind_a_gap(states, header(21)) == (18, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert refused(states, header(0)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "older than the last five"
    assert refused(states, header(15, count=2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "partial overlap"
    assert behind_a_gap(states, header(18, epoch=1)) == (0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    new_epoch = header(0, epoch=1, offset=118)
    assert states.check(new_epoch) is APPEND
    states.record(new_epoch)
    assert refused(states, header(18)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert behind_a_gap(states, header(77, producer=10)) == (0, None), (
        "an unknown producer may begin anywhere"
    )
    assert states.check(header(0, producer=10)) is APPEND
    assert states.check(header(-1, producer=-1)) is APPEND


def test_those_that_wrote_nothing_for_longest_are_dropped_and_found_out_when_they_come_back() -> None:
    states = ProducerStates()
    for number in range(6):
        states.record(header(0, offset=3 * number, producer=number))
    states.record(header(3, offset=18, producer=1))
    assert behind_a_gap(states, header(5, producer=3)) == (3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert states.drop_least_recent(3, below_offset=21) == 3
    assert sorted(states.entries) == [1, 4, 5]
    assert states.check(header(3, producer=1)) == Duplicate(18, 20, 1002)
    assert refused(states, header(3, producer=0)) == ErrorCode.UNKNOWN_PRODUCER_ID, "perhaps a retry"
    assert states.check(header(0, producer=0)) is APPEND, "a new epoch or a new producer"
    assert refused(states, header(3, producer=3)) == ErrorCode.UNKNOWN_PRODUCER_ID
    assert behind_a_gap(states, header(3, producer=99)) == (0, None), "ids rise: it was not among the dropped"
    states.record(header(0, offset=21, producer=0))
    assert states.drop_least_recent(2, below_offset=24) == 2, "4 and 5"
    assert refused(states, header(3, producer=5)) == ErrorCode.UNKNOWN_PRODUCER_ID


def test_what_is_not_committed_or_not_over_is_not_dropped() -> None:
    states = ProducerStates()
    opened = batch_at(0, 1, count=3, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    states.record(parse_header(opened))
    for number in range(6, 9):
        states.record(header(0, offset=3 * (number - 5), producer=number))
    assert states.drop_least_recent(10, below_offset=8) == 1, "the second ends at 8"
    assert sorted(states.entries) == [5, 7, 8]
    assert states.drop_least_recent(10, below_offset=12) == 2
    assert sorted(states.entries) == [5] and states.first_open_offset == 0
    untouched = ProducerStates()
    assert untouched.drop_least_recent(10, below_offset=12) == 0
    assert behind_a_gap(untouched, header(5, producer=0)) == (0, None), "nothing was dropped here"


def test_sequences_wrap_to_zero() -> None:
    states = ProducerStates()
    states.record(header(2**31 - 2, count=2))
    assert states.check(header(0)) is APPEND
    states.record(header(2**31 - 1, count=3, producer=10))
    assert refused(states, header(0, producer=10)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(2, producer=10)) is APPEND
    assert behind_a_gap(states, header(3, producer=10)) == (2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert is_ahead(0, 2**31 - 1) and not is_ahead(2**31 - 1, 0) and not is_ahead(2, 2)
    assert states.check(header(2**31 - 1, count=3, producer=10)) == Duplicate(0, 2, 1002)


def test_open_transactions_hold_the_last_stable_offset(disk: InlineDisk) -> None:
    log = new_log(disk)
    append(log)
    append(log, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    append(log, producer_id=6, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert load_producers(log).first_open_offset == 3
    marker(log, 5, 0, 12)
    states = load_producers(log)
    assert states.first_open_offset == 6
    assert states.entries[5].coordinator_epoch == 12
    marker(log, 6, 1, 12)
    states = load_producers(log)
    assert states.first_open_offset is None
    assert refused(states, header(3, producer=6)) == ErrorCode.INVALID_PRODUCER_EPOCH, "the marker raised it"
    assert states.check(header(0, epoch=1, producer=6)) is APPEND


@pytest.mark.parametrize("is_commit", [False, True])
def test_a_marker_that_was_compacted_still_says_how_the_transaction_ended(is_commit: bool) -> None:
    states = ProducerStates()
    states.record(
        parse_header(batch_at(0, 1, producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True))
    )
    marker = parse_header(build_marker(9, 0, Marker(is_commit, 12), 2000))._replace(base_offset=3)
    batch = remnant(marker, is_commit, horizon_ms=5000)
    states.record_stored(memoryview(batch), parse_header(batch))
    assert states.first_open_offset is None
    assert states.take_aborted() == ([] if is_commit else [AbortedTransaction(9, 0, 3, 4)])


def test_a_snapshot_and_the_tail_give_the_same_state_as_a_full_replay(disk: InlineDisk) -> None:
    log = new_log(disk)
    rng = random.Random(3)
    sequences = dict.fromkeys(range(5), 0)
    for _ in range(40):
        producer = rng.randrange(5)
        is_transactional = producer == 4
        batch = append(
            log,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer],
            timestamp_ms=rng.randrange(1000, 9000),
            is_transactional=is_transactional,
        )
        sequences[producer] = batch.last_sequence + 1
    marker(log, 4, 0, 3)
    log.flush()
    expected = load_producers(log)
    for offset in (log._segments[1].base_offset, log._segments[2].base_offset, log.end_offset):
        states = load_producers(log, offset)
        assert decode_snapshot(encode_snapshot(states), offset).entries == states.entries
        write_snapshot(log, Snapshot.of(states), high_watermark=log.end_offset)
        assert load_producers(log).entries == expected.entries
    delete_below(log, log._segments[2].base_offset, log.end_offset)
    assert log.snapshot_offsets() == [log.start_offset, log.end_offset]
    assert load_producers(log).entries == expected.entries, "all five batches outlive the bytes below them"


def test_a_damaged_snapshot_gives_way_to_an_older_one(disk: InlineDisk) -> None:
    log = new_log(disk)
    append(log, producer_id=5, producer_epoch=0, base_sequence=0)
    write_snapshot(log, Snapshot.of(load_producers(log)), log.end_offset)
    append(log, producer_id=5, producer_epoch=0, base_sequence=3)
    expected = load_producers(log)
    write_snapshot(log, Snapshot.of(expected), log.end_offset)
    path = Path(log.snapshot_path(log.end_offset))
    data = bytearray(path.read_bytes())
    for at in range(len(data)):
        data[at] ^= 4
        with pytest.raises(SnapshotDamagedError):
            decode_snapshot(bytes(data), 6)
        with pytest.raises(SnapshotDamagedError):
            decode_snapshot(bytes(data[:at]), 6)
        data[at] ^= 4
    data[-1] ^= 4
    path.write_bytes(data)
    assert load_producers(log).entries == expected.entries


def test_snapshots_are_of_committed_state_only_and_go_with_a_truncation(disk: InlineDisk) -> None:
    log = new_log(disk)
    append(log, producer_id=5, producer_epoch=0, base_sequence=0)
    with pytest.raises(AssertionError):
        write_snapshot(log, Snapshot.of(load_producers(log)), high_watermark=2)
    write_snapshot(log, Snapshot.of(load_producers(log)), high_watermark=3)
    append(log, producer_id=5, producer_epoch=0, base_sequence=3)
    end = log.end
    log.truncate(5, known_commit=0)
    assert end == FlushedEnd(8, 2)
    assert log.snapshot_offsets() == [3]
    log.truncate(2, known_commit=0)
    assert log.snapshot_offsets() == []
    assert load_producers(log).entries == {}


def log_of_one_producer(disk: InlineDisk) -> Log:
    log = new_log(disk)
    append(log, producer_id=6, producer_epoch=0, base_sequence=0)
    for number in range(30):
        append(log, producer_id=5, producer_epoch=0, base_sequence=number * 3)
    log.flush()
    return log


def test_segments_go_only_when_a_snapshot_is_durable(disk: InlineDisk) -> None:
    log = log_of_one_producer(disk)
    start = log.active_segment_base
    expected = load_producers(log)
    for _ in range(2):
        delete_below(log, start, high_watermark=start + 3)
        assert log.snapshot_offsets() == [start]
    log.close(is_clean=False)
    log = reopen(disk, recorded=log.end, log_start=start)
    assert load_producers(log).entries == expected.entries


def test_what_an_install_sends_knows_the_producers_below_the_log_start(disk: InlineDisk) -> None:
    log = log_of_one_producer(disk)
    start = log.active_segment_base
    expected = load_producers(log, start)
    delete_below(log, start, log.end_offset)
    assert load_producers(log, start).entries == expected.entries
    assert expected.entries.keys() == {5, 6}


def test_producers_outlive_the_loss_of_what_a_majority_committed_and_this_disk_had_not_flushed(
    disk: InlineDisk,
) -> None:
    """A follower learns the commit index before its own flush; the log start rises; power goes."""
    log = log_of_one_producer(disk)
    start, durable, size = log.active_segment_base, log.end, log.active_segment_bytes
    expected = load_producers(log)
    append(log, producer_id=5, producer_epoch=0, base_sequence=90)
    delete_below(log, start, high_watermark=log.end_offset)
    log.close(is_clean=False)
    path = log_files(disk.root)[-1]
    path.write_bytes(path.read_bytes()[:size])
    log = reopen(disk, recorded=durable, log_start=start)
    assert load_producers(log).entries == expected.entries


def test_a_log_whose_producers_are_lost_is_corrupt(disk: InlineDisk) -> None:
    """Below the log start nothing can be replayed: without a whole snapshot a retry would be appended again."""
    log = log_of_one_producer(disk)
    start = log.active_segment_base
    delete_below(log, start, log.end_offset)
    write_snapshot(log, Snapshot.of(load_producers(log)), log.end_offset)
    expected, newest = load_producers(log), Path(log.snapshot_path(log.end_offset))
    log.close(is_clean=True)
    newest.write_bytes(newest.read_bytes()[:-1])
    log = reopen(disk, recorded=log.end, log_start=start)
    assert load_producers(log).entries == expected.entries, "the one at the log start and the tail will do"
    log.close(is_clean=True)
    path = Path(log.snapshot_path(start))
    path.write_bytes(bytes(reversed(path.read_bytes())))
    for is_clean in (False, True):
        with pytest.raises(CorruptLogError, match="producer"):
            reopen(disk, recorded=log.end, log_start=start, is_clean=is_clean)
