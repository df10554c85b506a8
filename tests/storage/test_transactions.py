"""What a partition knows of transactions: the last stable offset, and the aborted transactions, through rolls,
truncations, restarts and damage. A plain walk over the whole log says what is right."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import parse_header, stamp
from protocol.records.control import Marker, build_marker, read_marker
from storage.aborted_index import AbortedIndex, AbortedIndexDamagedError, AbortedTransaction
from storage.aborted_loading import load_aborted
from storage.aborted_transactions import AbortedIndexMissingError
from storage.log import Log
from storage.producer_snapshot import (
    Snapshot,
    SnapshotDamagedError,
    decode_snapshot,
    encode_snapshot,
    load_producers,
    write_snapshot,
)
from storage.producer_state import MAX_ENDED_IN_HEAP, ProducerStates
from storage.segment_swap import SegmentBuild
from tests.storage.helpers import SMALL, InlineDisk, batch_at, fresh_disk, new_log, reopen, segment_bases

ABORT, COMMIT = Marker(False, 3), Marker(True, 3)


class Partition:
    """A log and its producers, as a replica keeps them."""

    def __init__(self, disk: InlineDisk) -> None:
        self.disk = disk
        self.log = new_log(disk)
        self.producers = load_producers(self.log)
        self.high_watermark = 0
        self._sequences: dict[int, int] = {}

    def write(self, producer_id: int, *, is_transactional: bool = True, count: int = 2) -> int:
        """Append a batch; returns its base offset."""
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + count
        batch = batch_at(
            self.log.end_offset,
            self.log.lineage.last_term,
            count=count,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        return self._append(batch, None)

    def end(self, producer_id: int, marker: Marker, *, epoch: int = 0) -> int:
        return self._append(build_marker(producer_id, epoch, marker, 1000), marker)

    def _append(self, batch: bytearray, marker: Marker | None) -> int:
        log = self.log
        header = stamp(batch, parse_header(batch), log.end_offset, log.lineage.last_term)
        self.producers.record(header, marker)
        log.append_batches([batch], [header])
        log.note_aborted(self.producers.take_aborted())
        return header.base_offset

    def commit(self) -> None:
        self.log.flush()
        self.high_watermark = self.log.end_offset

    def snapshot(self) -> None:
        if self.producers.end_offset == self.high_watermark:
            write_snapshot(
                self.log, Snapshot.of(self.producers, self.log.active_aborted), self.high_watermark
            )

    def truncate(self, offset: int) -> None:
        self.log.truncate(self.log.end_index - (self.log.end_offset - offset), 0)
        self.producers = load_producers(self.log)

    def restart(self, *, is_clean: bool) -> None:
        self.log.flush()
        end = self.log.end
        self.log.close(is_clean=is_clean)
        self.log = reopen(self.disk, recorded=end if is_clean else None, is_clean=is_clean)
        self.producers = load_producers(self.log)

    @property
    def last_stable_offset(self) -> int:
        return self.producers.last_stable_offset(self.high_watermark)

    def aborted(self, from_offset: int, below_offset: int) -> list[AbortedTransaction]:
        while True:
            try:
                return self.log.aborted_between(from_offset, below_offset)
            except AbortedIndexMissingError as missing:
                for _ in load_aborted(self.log, missing.base_offset):
                    pass


def walk(log: Log, high_watermark: int) -> tuple[int, list[tuple[int, int, int]]]:
    """(last stable offset, [(producer id, first offset, offset of the marker) of every aborted transaction])."""
    unfinished: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    aborted: list[tuple[int, int, int]] = []
    for header, batch in log.checked_batches(0, log.end_offset):
        if header.is_control:
            marker = read_marker(batch)
            assert marker is not None
            first = unfinished.pop(header.producer_id, None)
            if first is not None:
                ended.append((header.base_offset, first))
                if not marker.is_commit:
                    aborted.append((header.producer_id, first, header.base_offset))
        elif header.is_transactional:
            unfinished.setdefault(header.producer_id, header.base_offset)
    uncommitted = [first for at, first in ended if at >= high_watermark]
    return min([high_watermark, *unfinished.values(), *uncommitted]), aborted


def check(partition: Partition, rng: random.Random) -> None:
    stable, aborted = walk(partition.log, partition.high_watermark)
    assert partition.last_stable_offset == stable
    for _ in range(3):
        low, high = sorted(rng.randrange(stable + 1) for _ in range(2))
        found = partition.aborted(low, high)
        expected = [each for each in aborted if each[1] < high and each[2] >= low]
        assert [each[:3] for each in found if each.last_offset >= low] == expected
    assert [each[:3] for each in partition.aborted(0, stable)] == [
        each for each in aborted if each[1] < stable
    ]


@pytest.mark.parametrize("seed", range(40))
def test_index_and_last_stable_offset_are_those_of_the_log(seed: int) -> None:
    rng = random.Random(seed)
    with fresh_disk() as disk:
        partition = Partition(disk)
        for _ in range(60):
            producer_id = rng.randrange(1, 5)
            match rng.randrange(12):
                case 0 | 1 | 2 | 3:
                    partition.write(producer_id, count=rng.randint(1, 4))
                case 4:
                    partition.write(producer_id + 100, is_transactional=False)
                case 5 | 6:
                    partition.end(producer_id, ABORT)
                case 7:
                    partition.end(producer_id, COMMIT)
                case 8:
                    partition.commit()
                    partition.snapshot()
                case 9:
                    partition.commit()
                case 10:
                    cut = rng.choice([*(b.header.base_offset for b in partition.log.batches(0)), 0])
                    if cut >= partition.high_watermark:
                        partition.truncate(cut)
                case 11:
                    partition.restart(is_clean=rng.random() < 0.5)
            check(partition, rng)
            if rng.random() < 0.1:
                _damage_an_index(partition, rng)


def _damage_an_index(partition: Partition, rng: random.Random) -> None:
    """Of a sealed segment, which is then read again."""
    files = sorted(Path(partition.log.directory).glob("*.txnindex"))
    if files:
        path = rng.choice(files)
        data = bytearray(path.read_bytes())
        if rng.random() < 0.5:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
        else:
            path.unlink()
        partition.log.aborted._known.pop(int(path.stem), None)


def test_an_end_is_stable_when_its_marker_is_committed(tmp_path: Path) -> None:
    """Until then a new leader may not have the marker, and the outcome may be another one."""
    partition = Partition(InlineDisk(str(tmp_path)))
    first = partition.write(1)
    partition.commit()
    partition.end(1, COMMIT)
    assert partition.last_stable_offset == first
    partition.commit()
    assert partition.last_stable_offset == partition.high_watermark


def test_transactions_that_have_ended_take_no_memory() -> None:
    states = ProducerStates()
    for number in range(2 * MAX_ENDED_IN_HEAP):
        for offset, marker in ((2 * number, None), (2 * number + 1, COMMIT)):
            batch = batch_at(
                offset,
                1,
                count=1,
                producer_id=number % 3,
                producer_epoch=0,
                is_transactional=True,
                is_control=marker is not None,
            )
            states.record(parse_header(batch), marker)
        states.forget_ended(2 * number + 1)  # the marker just written is not committed
        assert states.last_stable_offset(2 * number + 1) == 2 * number
    assert len(states._ending) == 1
    assert len(states._open_heap) <= MAX_ENDED_IN_HEAP


def test_who_may_append_in_a_transaction() -> None:
    def refused(states: ProducerStates, offset: int, **fields: object) -> ErrorCode:
        with pytest.raises(KafkaError) as raised:
            states.check(parse_header(batch_at(offset, 1, **fields)))  # type: ignore[arg-type]
        return raised.value.code

    states = ProducerStates()
    begin = parse_header(
        batch_at(0, 1, producer_id=1, producer_epoch=4, base_sequence=0, is_transactional=True)
    )
    assert states.begins_transaction(1, 4)
    states.record(begin)
    following = {"producer_id": 1, "producer_epoch": 4, "base_sequence": 3}
    assert not states.begins_transaction(1, 4)
    assert refused(states, 3, **following) == ErrorCode.INVALID_TXN_STATE
    newer = {"producer_id": 1, "producer_epoch": 5, "base_sequence": 0, "is_transactional": True}
    assert refused(states, 3, **newer) == ErrorCode.INVALID_TXN_STATE
    states.record(
        parse_header(batch_at(3, 1, count=1, producer_id=1, producer_epoch=5, is_control=True)), COMMIT
    )
    assert refused(states, 4, **following, is_transactional=True) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.begins_transaction(1, 5)


def test_markers_of_older_coordinators_and_older_epochs_are_refused() -> None:
    states = ProducerStates()
    states.check_marker(1, 0, 0)
    states.record(
        parse_header(batch_at(0, 1, count=1, producer_id=1, producer_epoch=4, is_control=True)), COMMIT
    )
    states.check_marker(1, 4, 3)
    states.check_marker(1, 5, 4)
    for epoch, coordinator_epoch, error in (
        (4, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (3, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
    ):
        with pytest.raises(KafkaError) as raised:
            states.check_marker(1, epoch, coordinator_epoch)
        assert raised.value.code == error


def test_a_marker_that_was_sent_again_is_refused_when_the_copy_is_recorded() -> None:
    states = ProducerStates()
    states.check_marker(1, 0, 3, 7)
    states.record(
        parse_header(batch_at(0, 1, count=1, producer_id=1, producer_epoch=4, is_control=True)), COMMIT
    )
    states.note_marker_attempt(1, 7)
    states.check_marker(1, 4, 3, 7)
    states.check_marker(1, 4, 3, 8)
    states.check_marker(1, 4, 4, 1)  # a later coordinator counts anew
    states.check_marker(1, 4, 3)  # an administrator's
    with pytest.raises(KafkaError) as raised:
        states.check_marker(1, 5, 3, 6)
    assert raised.value.code == ErrorCode.REQUEST_TIMED_OUT


def test_the_attempts_of_a_coordinator_say_nothing_of_its_successor() -> None:
    """The first marker was appended here, the second one came from another leader."""
    states = ProducerStates()
    for offset, coordinator_epoch in ((0, 5), (1, 6)):
        batch = batch_at(offset, 1, count=1, producer_id=1, producer_epoch=4, is_control=True)
        states.record(parse_header(batch), Marker(is_commit=True, coordinator_epoch=coordinator_epoch))
        if coordinator_epoch == 5:
            states.note_marker_attempt(1, 1_000_000)
    states.check_marker(1, 4, 6, 3)


def test_every_wrong_bit_of_an_index_is_noticed() -> None:
    index = AbortedIndex()
    for number in range(3):
        index.add(AbortedTransaction(number, 10 * number, 10 * number + 5, 10 * number + 6))
    data = index.encode()
    assert list(AbortedIndex.decode(data)) == list(index)
    for at in range(len(data) * 8):
        wrong = bytearray(data)
        wrong[at // 8] ^= 1 << (at % 8)
        with pytest.raises(AbortedIndexDamagedError):
            AbortedIndex.decode(wrong)
    for size in range(len(data)):
        with pytest.raises(AbortedIndexDamagedError):
            AbortedIndex.decode(data[:size])


def _with_a_sealed_abort(tmp_path: Path) -> tuple[Partition, list[tuple[int, int, int]], Path]:
    """A partition, its aborted transactions, and the index file of the segment that has the marker of one."""
    partition = Partition(InlineDisk(str(tmp_path)))
    partition.write(7)
    partition.end(7, ABORT)
    partition.write(8)
    partition.end(8, COMMIT)
    while not list(Path(partition.log.directory).glob("*.txnindex")):
        partition.write(9, is_transactional=False)
    partition.commit()
    (path,) = Path(partition.log.directory).glob("*.txnindex")
    return partition, walk(partition.log, partition.high_watermark)[1], path


@pytest.mark.parametrize(
    "wrong", ["a commit", "another producer", "no marker", "no batch", "another segment"]
)
def test_a_whole_index_that_the_log_contradicts_is_not_believed(tmp_path: Path, wrong: str) -> None:
    """It may be a file of another log, or of this one before it was cut."""
    partition, aborted, path = _with_a_sealed_abort(tmp_path)
    producer_id, first, marker = aborted[0]
    entry = {
        "a commit": AbortedTransaction(8, marker + 1, marker + 3, marker + 4),
        "another producer": AbortedTransaction(8, first, marker, marker + 1),
        "no marker": AbortedTransaction(producer_id, first, marker - 1, marker),
        "no batch": AbortedTransaction(producer_id, first, marker + 2, marker + 3),
        "another segment": AbortedTransaction(producer_id, first, partition.log.end_offset, marker + 1),
    }[wrong]
    index = AbortedIndex()
    index.add(entry)
    path.write_bytes(index.encode())
    partition.restart(is_clean=True)
    found = partition.aborted(0, partition.high_watermark)
    assert [each[:3] for each in found] == aborted
    assert [each[:3] for each in AbortedIndex.decode(path.read_bytes())] == aborted, "the file is right again"


def test_loading_stops_where_the_log_is_cut_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.aborted_loading.BATCHES_PER_STEP", 1)
    partition, aborted, path = _with_a_sealed_abort(tmp_path)
    path.unlink()
    partition.restart(is_clean=False)
    base_offset = int(path.stem)
    loading = load_aborted(partition.log, base_offset)
    next(loading)
    partition.truncate(aborted[0][2])
    assert list(loading) == []
    assert partition.aborted(0, partition.log.end_offset) == []


@pytest.mark.parametrize("has_file", [True, False])
def test_loading_stops_where_a_merged_segment_takes_the_place_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_file: bool
) -> None:
    """Its index has what was aborted in both segments, and is known."""
    monkeypatch.setattr("storage.aborted_loading.BATCHES_PER_STEP", 1)
    partition, _, path = _with_a_sealed_abort(tmp_path)
    partition.write(7)
    partition.end(7, ABORT)
    partition.log.roll()
    partition.commit()
    partition.restart(is_clean=True)
    if not has_file:
        path.unlink()
    log = partition.log
    aborted = walk(log, partition.high_watermark)[1]
    first, second, active = segment_bases(log)
    assert [each[2] < second for each in aborted] == [True, False]

    loading = load_aborted(log, first)
    next(loading)
    merged = AbortedIndex()
    for each in aborted:
        merged.add(AbortedTransaction(*each, each[2] + 1))
    build = SegmentBuild(log.disk, log.directory, [first, second], SMALL.index_interval_bytes)
    for header, batch in log.checked_batches(first, active):
        build.append([batch], [header])
    build.finish(active, merged)
    log.swap([first, second], merged)
    assert list(loading) == []
    assert [each[:3] for each in log.aborted_between(0, partition.high_watermark)] == aborted
    assert [each[:3] for each in AbortedIndex.decode(path.read_bytes())] == aborted


def test_the_state_of_a_producer_is_equal_however_it_came_about(tmp_path: Path) -> None:
    """Recorded when it was written, by a follower or a replay, and from a snapshot."""
    partition = Partition(InlineDisk(str(tmp_path)))
    partition.write(1)
    partition.end(1, ABORT)
    partition.write(2)
    partition.end(2, Marker(True, 9))
    partition.write(2)
    partition.end(3, COMMIT)  # its first entry is a marker
    states = partition.producers
    assert states.entries[2].coordinator_epoch == 9
    assert states.entries[3].last_offset == partition.log.end_offset - 1
    replayed = load_producers(partition.log)
    restored = decode_snapshot(encode_snapshot(states, partition.log.active_aborted), states.end_offset)
    assert states.entries == replayed.entries == restored.entries
    assert states.first_open_offset == replayed.first_open_offset == restored.first_open_offset is not None
    known = partition.log.active_aborted
    assert known is not None and restored.aborted_in_segment is not None
    assert list(restored.aborted_in_segment[1]) == list(known[1])


def test_a_marker_counts_as_the_last_write_of_a_producer_also_after_a_snapshot(tmp_path: Path) -> None:
    """A producer between two transactions, whose epoch rises with each marker, has no batches."""
    partition = Partition(InlineDisk(str(tmp_path)))
    partition.write(1)
    partition.write(2, is_transactional=False)
    marker = partition.end(1, COMMIT, epoch=1)
    for states in (
        partition.producers,
        decode_snapshot(encode_snapshot(partition.producers), partition.producers.end_offset),
    ):
        assert not states.entries[1].batches and states.entries[1].last_offset == marker
        assert states.drop_least_recent(2, below_offset=marker) == 1
        assert list(states.entries) == [1], "its marker is not committed"
        assert states.drop_least_recent(2, below_offset=marker + 1) == 1


@pytest.mark.parametrize("cut", ["an entry", "a marker", "an aborted transaction"])
def test_a_snapshot_that_speaks_of_what_is_above_it_is_damaged(tmp_path: Path, cut: str) -> None:
    partition = Partition(InlineDisk(str(tmp_path)))
    partition.write(1)
    marker = partition.end(1, ABORT)
    states = ProducerStates() if cut == "an aborted transaction" else partition.producers
    data = encode_snapshot(states, partition.log.active_aborted if cut == "an aborted transaction" else None)
    decode_snapshot(data, marker + 1)
    with pytest.raises(SnapshotDamagedError):
        decode_snapshot(data, 1 if cut == "an entry" else marker)
