"""Section 3 of the specification, sentence by sentence: when a record goes, and what is left of its batch."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import (
    ATTR_DELETE_HORIZON,
    ATTR_TRANSACTIONAL,
    Compression,
    parse_header,
    renew_crc,
)
from protocol.records.control import ATTR_WAS_ABORT, ATTR_WAS_COMMIT, read_marker, remnant_is_commit
from storage.compaction import rewriting
from storage.compaction.batch_filter import BatchFilter
from storage.compaction.producers import last_offsets
from storage.compaction.rewriting import emptied
from storage.producer_state import BATCHES_KEPT, ProducerStates
from tests.storage.compaction.model import (
    EXPIRATION_MS,
    FOREVER,
    RETENTION_MS,
    UNSET,
    History,
    Replica,
    assert_well_formed,
    data_of,
    horizon_of,
    identity,
    read_committed,
    records_of,
)

A, B, C, END = b"a", b"b", b"c", b"end"


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def replica(history: History) -> Replica:
    return history.replica()


def churn(replica: Replica, wait_ms: int = 0, **changes: Any) -> BatchFilter:
    """Time passes, something is written and sealed, and a pass runs. What is written is the end of the log then, which
    stays in any case, so no test looks at it."""
    history = replica.history
    history.now_ms += wait_ms
    history.write((END, b"v"))
    history.roll()
    batch_filter = replica.compact(**changes)
    assert batch_filter is not None
    return batch_filter


def only(replica: Replica, offset: int) -> bytes | None:
    """The batch that began at this offset, or None if it is gone."""
    found = [batch for batch in replica.batches if parse_header(batch).base_offset == offset]
    assert len(found) <= 1
    return found[0] if found else None


def present(replica: Replica, offset: int) -> bytes:
    batch = only(replica, offset)
    assert batch is not None
    return batch


def keys_at(replica: Replica) -> dict[int, bytes | None]:
    return {seen.offset: seen.key for seen in data_of(replica.batches) if seen.key != END}


# -- which records stay


def test_a_record_stays_iff_no_newer_one_of_its_key_exists_below_the_end_of_the_map(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"1"), (B, b"1"), (A, b"2"))
    history.write((C, b"1"), (B, b"2"))
    batch_filter = churn(replica)
    assert keys_at(replica) == {2: A, 3: C, 4: B}
    assert batch_filter.counts.superseded_records == 2


def test_a_record_at_or_above_the_end_of_the_map_stays(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"1"))
    history.write((B, b"1"))
    history.write((C, b"1"), (A, b"2"), (A, None))
    churn(replica, key_count=2)
    assert replica.cleaned_end == 2
    assert keys_at(replica) == {0: A, 1: B, 2: C, 3: A, 4: A}
    assert horizon_of(present(replica, 2)) is None, "a tombstone there gets no horizon"
    churn(replica)
    assert keys_at(replica) == {1: B, 2: C, 4: A}


def test_a_value_of_zero_bytes_is_a_value(replica: Replica) -> None:
    replica.history.write((A, b""))
    for _ in range(4):
        churn(replica, 2000)
    assert keys_at(replica) == {0: A}
    assert replica.history.view()[A] == b""


def test_a_key_of_zero_bytes_is_a_key(replica: Replica) -> None:
    replica.history.write((b"", b"1"), (b"", b"2"))
    churn(replica)
    assert keys_at(replica) == {1: b""}


def test_a_record_without_a_key_goes(replica: Replica) -> None:
    """The topic was not compacted when it was written."""
    replica.history.write((None, b"1"), (A, b"1"))
    batch_filter = churn(replica)
    assert keys_at(replica) == {1: A}
    assert batch_filter.counts.keyless_records == 1


def test_aborted_data_goes_and_does_not_supersede(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"good"))
    history.write((A, b"poison"), pid=1, is_transactional=True)
    history.end(1, is_commit=False)
    history.write((A, b"of another transaction"), pid=1, is_transactional=True)
    history.end(1, is_commit=False)
    batch_filter = churn(replica, producers_last_offsets=frozenset())
    assert keys_at(replica) == {0: A}
    assert batch_filter.counts.aborted_records == 2


def test_an_aborted_transaction_may_begin_below_and_end_above_what_is_filtered(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"good"))
    history.write((A, b"poison"), pid=1, is_transactional=True)
    history.roll()
    history.write((B, b"1"), (C, b"1"))
    history.write((A, b"poison too"), pid=1, is_transactional=True)
    history.end(1, is_commit=False)
    churn(replica, key_count=2, producers_last_offsets=frozenset())
    assert replica.cleaned_end == 2
    assert keys_at(replica) == {0: A, 2: B, 3: C, 4: A}
    assert [seen.value for seen in read_committed(replica.batches, history.end_offset) if seen.key == A] == [
        b"good"
    ]
    churn(replica, producers_last_offsets=frozenset())
    assert keys_at(replica) == {0: A, 2: B, 3: C}


def test_control_batches_are_never_deduplicated(replica: Replica) -> None:
    history = replica.history
    commit_key = b"\0\0\0\1"
    history.write((commit_key, b"v"))
    for _ in range(2):
        history.write((A, b"v"), pid=1, is_transactional=True)
        history.end(1, is_commit=True)
    churn(replica)
    assert only(replica, 2) is not None
    assert only(replica, 4) is not None
    assert keys_at(replica) == {0: commit_key, 3: A}


def test_a_record_of_an_open_transaction_is_not_reached(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"1"))
    history.roll()
    history.write((B, b"1"), pid=1, is_transactional=True)
    history.write((A, b"2"))
    churn(replica)
    assert replica.cleaned_end == 1
    assert keys_at(replica) == {0: A, 1: B, 2: A}


# -- tombstones


def test_the_first_pass_that_keeps_a_tombstone_fixes_its_horizon(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"v"), (A, None), (B, b"v"), timestamps_ms=(5, 6, 7))
    before = {seen.offset: seen for seen in data_of(replica.batches)}
    batch_filter = churn(replica)
    passed_ms = history.now_ms
    batch = present(replica, 0)
    assert horizon_of(batch) == passed_ms + RETENTION_MS
    assert records_of(batch) == [before[1], before[2]]
    assert parse_header(batch).max_timestamp == 7
    assert batch_filter.counts.tombstones.count == 1
    assert batch_filter.counts.tombstones.first == (passed_ms + RETENTION_MS, 3)
    churn(replica, 100)
    assert present(replica, 0) == batch, "a later pass leaves the horizon as it is"


def test_a_later_pass_removes_a_tombstone_iff_its_horizon_is_reached(replica: Replica) -> None:
    replica.history.write((A, None))
    churn(replica)
    churn(replica, RETENTION_MS - 1)
    assert keys_at(replica) == {0: A}
    batch_filter = churn(replica, 1)
    assert keys_at(replica) == {}
    assert batch_filter.counts.expired_tombstones == 1


def test_a_tombstone_goes_only_below_mtro(replica: Replica) -> None:
    history = replica.history
    history.write((B, b"v"), (A, None))
    churn(replica)
    for bound in (UNSET, 0, 1):
        held = churn(replica, 2000, max_tombstone_remove_offset=bound).counts.tombstones
        assert keys_at(replica) == {0: B, 1: A}
        assert (held.count, held.expired_count) == (1, 1)
        assert held.size_bytes == held.expired_bytes > 0
    churn(replica, max_tombstone_remove_offset=2)
    assert keys_at(replica) == {0: B}


def test_a_tombstone_goes_only_after_the_pass_that_removed_the_older_value_is_durable(
    replica: Replica,
) -> None:
    """That pass died behind its second segment, which holds the tombstone. The older value is still there."""
    history = replica.history
    history.write((A, b"v"), *[(b"%d" % number, b"v" * 90) for number in range(7)])
    history.roll()
    history.write((A, None), *[(b"more %d" % number, b"v" * 90) for number in range(6)])
    history.roll()
    assert replica.compact(dies_with=0b10) is not None
    assert keys_at(replica)[0] == A
    assert horizon_of(present(replica, 8)) is not None
    history.now_ms += 2000
    first = replica.compact(dies_with=0b10, max_tombstone_remove_offset=FOREVER)
    assert first is not None
    assert keys_at(replica)[8] == A, "or the value would be back"
    churn(replica)
    assert 0 not in keys_at(replica)
    churn(replica)
    assert 8 not in keys_at(replica)


def test_a_superseded_tombstone_goes_at_once(replica: Replica) -> None:
    history = replica.history
    history.write((A, None))
    churn(replica)
    history.write((A, b"v"))
    churn(replica, max_tombstone_remove_offset=UNSET)
    assert list(keys_at(replica).values()) == [A]
    assert only(replica, 0) is None


def test_a_retention_for_ever_is_a_horizon_too(replica: Replica) -> None:
    replica.history.write((A, None))
    churn(replica, delete_retention_ms=2**63 - 1)
    before = [written.record for written in replica.history.written][:1]
    batch = present(replica, 0)
    assert horizon_of(batch) == 2**63 - 1
    assert records_of(batch) == before
    assert_well_formed(batch)


# -- markers


def write_transaction(history: History, *, is_commit: bool, key: bytes = A) -> int:
    history.write((key, b"v"), pid=1, is_transactional=True)
    return history.end(1, is_commit=is_commit)


@pytest.mark.parametrize("is_commit", [False, True])
def test_a_marker_gets_a_horizon_then_is_emptied_then_goes(replica: Replica, is_commit: bool) -> None:
    history = replica.history
    offset = write_transaction(history, is_commit=is_commit)
    original = present(replica, offset)
    before = records_of(original)
    held = churn(replica).counts.markers
    marked = present(replica, offset)
    assert held.first == (horizon_of(marked), offset + 1) == (history.now_ms + RETENTION_MS, offset + 1)
    assert records_of(marked) == before
    assert read_marker(memoryview(marked)) == read_marker(memoryview(original))

    churn(replica, RETENTION_MS - 1)
    assert present(replica, offset) == marked
    batch_filter = churn(replica, 1)
    empty = present(replica, offset)
    assert batch_filter.counts.expired_markers == 1
    assert (parse_header(empty).count, len(empty)) == (0, 61)
    assert horizon_of(empty) == history.now_ms + EXPIRATION_MS

    churn(replica, EXPIRATION_MS - 1)
    assert present(replica, offset) == empty
    batch_filter = churn(replica, 1)
    assert only(replica, offset) is None
    assert batch_filter.counts.expired_remnants == 1


@pytest.mark.parametrize("is_commit", [False, True])
def test_an_emptied_marker_keeps_producer_epoch_and_commit_or_abort(
    replica: Replica, is_commit: bool
) -> None:
    offset = write_transaction(replica.history, is_commit=is_commit)
    original = parse_header(present(replica, offset))
    assert remnant_is_commit(original) is None, "a marker is no remnant"
    churn(replica)
    churn(replica, RETENTION_MS)
    empty = present(replica, offset)
    header = parse_header(empty)
    assert identity(header) == identity(original)
    assert header.max_timestamp == original.max_timestamp
    assert header.is_control
    assert header.is_transactional
    assert remnant_is_commit(header) is is_commit
    assert bool(header.attributes & ATTR_WAS_COMMIT) is not bool(header.attributes & ATTR_WAS_ABORT)
    assert_well_formed(empty)


def test_a_marker_and_its_remnant_go_only_below_mxro(replica: Replica) -> None:
    offset = write_transaction(replica.history, is_commit=True)
    churn(replica)
    for bound in (UNSET, 0, offset):
        held = churn(replica, 2000, max_transaction_remove_offset=bound).counts.markers
        assert parse_header(present(replica, offset)).count == 1
        assert held.expired_count == held.count == 1
    churn(replica, max_transaction_remove_offset=offset + 1)
    assert parse_header(present(replica, offset)).count == 0
    for bound in (UNSET, 0, offset):
        held = churn(replica, 2000, max_transaction_remove_offset=bound).counts.remnants
        assert held.expired_count == held.count == 1
    churn(replica, max_transaction_remove_offset=offset + 1)
    assert only(replica, offset) is None


def test_a_marker_goes_only_after_the_pass_that_removed_its_data_is_durable(replica: Replica) -> None:
    """That pass died behind its second segment, which holds the marker. The aborted data is still there."""
    history = replica.history
    history.write((A, b"poison" * 120), pid=1, is_transactional=True)
    history.roll()
    offset = history.end(1, is_commit=False)
    history.write((END, b"v"))
    history.roll()
    replica.compact(dies_with=0b10)
    assert horizon_of(present(replica, offset)) is not None
    history.now_ms += 2000
    replica.compact(dies_with=0b10, max_transaction_remove_offset=FOREVER)
    assert parse_header(present(replica, offset)).count == 1
    assert A not in [record.key for record in read_committed(replica.batches, history.end_offset)]


def test_a_marker_above_the_end_of_the_map_gets_no_horizon(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"v"), pid=1, is_transactional=True)
    history.write((B, b"v"), (C, b"v"))
    offset = history.end(1, is_commit=True)
    churn(replica, key_count=2)
    assert replica.cleaned_end == 1
    assert horizon_of(present(replica, offset)) is None


def test_a_remnant_of_kafkas_has_no_kind_and_gets_a_horizon(replica: Replica) -> None:
    offset = write_transaction(replica.history, is_commit=True)
    marker = parse_header(present(replica, offset))
    at = next(index for index, batch in enumerate(replica.segments[0]) if parse_header(batch).is_control)
    # As Kafka writes it: neither a horizon nor a kind.
    kafkas = emptied(marker)
    kafkas[22] = 0x30
    renew_crc(kafkas)
    replica.segments[0][at] = bytes(kafkas)
    churn(replica)
    ours = present(replica, offset)
    assert remnant_is_commit(parse_header(ours)) is None
    assert horizon_of(ours) == replica.history.now_ms + EXPIRATION_MS
    churn(replica, EXPIRATION_MS)
    assert only(replica, offset) is None


def test_a_control_record_that_this_build_does_not_know_stays(replica: Replica) -> None:
    offset = write_transaction(replica.history, is_commit=True)
    at = next(index for index, batch in enumerate(replica.segments[0]) if parse_header(batch).is_control)
    unknown = bytearray(replica.segments[0][at])
    unknown[-9] = 9  # The type, at the end of the key.
    renew_crc(unknown)
    assert read_marker(memoryview(unknown)) is None
    replica.segments[0][at] = bytes(unknown)
    for _ in range(3):
        churn(replica, 2000)
    assert present(replica, offset) == unknown


# -- transactional data


@pytest.mark.parametrize("compression", list(Compression))
def test_the_transactional_bit_of_committed_data_is_cleared(
    replica: Replica, compression: Compression
) -> None:
    history = replica.history
    history.write((A, b"v"), (B, b"v" * 200), pid=1, is_transactional=True, compression=compression)
    history.end(1, is_commit=True)
    original = present(replica, 0)
    batch_filter = churn(replica)
    batch = present(replica, 0)
    header, before = parse_header(batch), parse_header(original)
    assert header == before._replace(crc=header.crc, attributes=before.attributes & ~ATTR_TRANSACTIONAL)
    assert batch[61:] == original[61:]
    assert batch_filter.counts.is_transaction_free
    assert_well_formed(batch)


def test_the_bit_is_cleared_also_where_records_go(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"v"), (B, b"v"), pid=1, is_transactional=True)
    history.write((C, None), pid=1, is_transactional=True)
    history.end(1, is_commit=True)
    history.write((A, b"w"))
    churn(replica)
    assert keys_at(replica) == {1: B, 2: C, 4: A}
    assert not parse_header(present(replica, 0)).is_transactional
    assert not parse_header(present(replica, 2)).is_transactional


def test_a_second_half_keeps_the_bit_until_it_is_below_the_end(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"v"), pid=1, is_transactional=True)
    history.write((B, b"v"), (C, b"v"), pid=1, is_transactional=True)
    history.end(1, is_commit=True)
    churn(replica, key_count=2)
    assert not parse_header(present(replica, 0)).is_transactional
    assert parse_header(present(replica, 1)).is_transactional
    seen = read_committed(replica.batches, history.end_offset)
    assert [record.key for record in seen] == [A, B, C, END]


# -- batches without records


def test_the_remembered_batches_of_an_active_producer_are_kept_emptied(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"1"))
    history.write((A, b"2"), (A, b"3"), pid=1, compression=Compression.ZSTD)
    history.write((A, b"4"))
    original = parse_header(present(replica, 1))
    batch_filter = churn(replica)
    assert only(replica, 0) is None
    empty = present(replica, 1)
    header = parse_header(empty)
    assert identity(header) == identity(original)
    assert (header.count, header.last_sequence, len(empty)) == (0, 1, 61)
    assert header.max_timestamp == header.base_timestamp == original.max_timestamp
    assert batch_filter.counts.records_out == 2
    assert batch_filter.counts.pinned_batches == 1
    replayed = ProducerStates()
    replayed.record_stored(memoryview(empty), header)
    assert replayed.entries[1].batches == history.states.entries[1].batches
    churn(replica)
    assert present(replica, 1) == empty
    churn(replica, producers_last_offsets=frozenset())
    assert only(replica, 1) is None


def test_aborted_data_of_an_active_producer_is_kept_emptied_and_without_the_bit(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"poison"), pid=1, is_transactional=True)
    history.end(1, is_commit=False)
    churn(replica)
    header = parse_header(present(replica, 0))
    assert (header.count, header.is_transactional, header.last_sequence) == (0, False, 0)


def test_a_marker_that_raised_the_epoch_of_an_active_producer_is_kept_emptied(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"v"), pid=1, is_transactional=True)
    offset = history.end(1, is_commit=True, bumps_epoch=True)
    assert last_offsets(history.states) == {offset}
    for _ in range(5):
        batch_filter = churn(replica, 2000)
    header = parse_header(present(replica, offset))
    assert (header.count, header.producer_epoch) == (0, 1)
    assert batch_filter.counts.remnants.count == 0, "it waits for no horizon"
    assert batch_filter.counts.pinned_batches == 1


def test_all_batches_that_are_remembered_of_a_producer_stay(replica: Replica) -> None:
    """A new leader that copied the log answers a retry of any of them."""
    history = replica.history
    offsets = [history.write((A, b"1"), pid=1) for _ in range(BATCHES_KEPT + 2)]
    history.write((A, b"4"))
    churn(replica)
    assert [only(replica, offset) is not None for offset in offsets] == [False] * 2 + [True] * BATCHES_KEPT
    replayed = ProducerStates()
    for offset in offsets[2:]:
        batch = memoryview(present(replica, offset))
        replayed.record_stored(batch, parse_header(batch))
    assert replayed.entries[1].batches == history.states.entries[1].batches


def test_of_older_batches_an_earlier_state_remembers_all_that_a_later_one_does(replica: Replica) -> None:
    """So what stays for a committed state is enough, whatever is written after it and cut off again."""
    history = replica.history
    for _ in range(BATCHES_KEPT):
        history.write((A, b"1"), pid=1)
    history.write((A, b"1"), pid=2)
    committed = history.end_offset
    at_committed = last_offsets(history.states)
    assert at_committed == set(range(committed))
    for _ in range(BATCHES_KEPT):
        history.write((A, b"2"), pid=1)
        assert {x for x in last_offsets(history.states) if x < committed} < at_committed
    assert {x for x in last_offsets(history.states) if x < committed} == {committed - 1}


def test_the_last_batch_of_the_log_is_never_removed(replica: Replica) -> None:
    """The active segment is empty, and nothing is left of what was written last."""
    history = replica.history
    history.write((A, b"v"), (A, None))
    history.roll()
    for _ in range(3):
        history.now_ms += 2000
        replica.compact()
    header = parse_header(present(replica, 0))
    assert (header.count, header.next_offset) == (0, 2)
    assert len(replica.batches) == 1
    assert replica.plan().trigger is None


def test_a_marker_at_the_end_of_the_log_is_never_removed(replica: Replica) -> None:
    history = replica.history
    offset = write_transaction(history, is_commit=False)
    history.roll()
    for _ in range(5):
        history.now_ms += 2000
        replica.compact(producers_last_offsets=frozenset())
    assert remnant_is_commit(parse_header(present(replica, offset))) is False
    assert len(replica.batches) == 1
    assert replica.plan().trigger is None, "it is not worth a pass"


# -- how a batch is written


def test_a_batch_of_which_everything_stays_is_given_back_as_it_is(replica: Replica) -> None:
    replica.history.write((A, b"v"), compression=Compression.GZIP)
    replica.history.write((END, b"v"))
    replica.history.roll()
    plan = replica.plan()
    batch_filter = replica.new_filter(replica.key_map(0, plan.first_uncleanable_offset))
    view = memoryview(present(replica, 0))
    assert batch_filter.filter(view) is view
    assert batch_filter.counts.batches_changed == 0


def test_the_largest_timestamp_is_that_of_the_surviving_records(replica: Replica) -> None:
    replica.history.write((A, b"v"), (B, b"v"), (A, b"v"), (C, b"v"), timestamps_ms=(90, 70, 40, 60))
    replica.history.write((C, b"v"))
    churn(replica)
    header = parse_header(present(replica, 0))
    assert (header.count, header.base_timestamp, header.max_timestamp) == (2, 90, 70)


def test_what_would_be_too_large_to_be_read_is_not_compressed(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch may be compressed to so little only because what made it large is gone."""
    monkeypatch.setattr(rewriting, "max_payload_bytes", lambda compressed_bytes: 16 * compressed_bytes)
    replica.history.write((A, bytes(5000)), (B, b"v"), compression=Compression.GZIP)
    replica.history.write((B, b"v"))
    churn(replica)
    batch = present(replica, 0)
    assert parse_header(batch).compression_id == Compression.NONE
    assert [seen.value for seen in records_of(batch)] == [bytes(5000)]
    assert_well_formed(batch)


@pytest.mark.parametrize("is_control", [False, True])
def test_a_corrupt_batch_ends_the_pass(replica: Replica, is_control: bool) -> None:
    """A new CRC would make it look right."""
    offset = write_transaction(replica.history, is_commit=False)
    replica.history.roll()
    replica.history.write((A, b"v"))
    batch_filter = replica.new_filter(replica.key_map(0, offset + 1))
    damaged = bytearray(present(replica, offset if is_control else 0))
    damaged[50] ^= 1  # The producer epoch: aborted data would be taken for data.
    with pytest.raises(KafkaError) as caught:
        batch_filter.filter(memoryview(damaged))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_counts_of_a_pass(replica: Replica) -> None:
    history = replica.history
    history.write((A, b"1"))
    history.write((A, b"2"), (B, None))
    history.write((END, b"v"))
    history.roll()
    size_bytes = sum(map(len, replica.batches))
    batch_filter = replica.compact()
    assert batch_filter is not None
    counts = batch_filter.counts
    assert (counts.batches_in, counts.batches_out, counts.batches_changed) == (3, 2, 2)
    assert (counts.records_in, counts.records_out) == (4, 3)
    assert (counts.bytes_in, counts.bytes_out) == (size_bytes, sum(map(len, replica.batches)))
    assert parse_header(present(replica, 1)).attributes & ATTR_DELETE_HORIZON
