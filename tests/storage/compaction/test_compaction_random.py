"""Random histories, compacted on two replicas at random times, with deaths in the middle of passes: whatever the passes
were, each replica, and each mixture of a prefix of one and a suffix of the other, says what was written."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch import NO_PRODUCER_ID, Compression, parse_header
from storage.producer_state import ProducerStates
from tests.storage.compaction.model import (
    History,
    Replica,
    assert_well_formed,
    data_of,
    filtered,
    horizon_of,
    identity,
    last_values,
    read_committed,
)

THOROUGH = settings(max_examples=100, deadline=None, database=None)

#: One of them is also the key of a COMMIT marker.
KEYS = [
    b"a",
    b"",
    b"\0\0\0\1",
    b"a key of more than sixteen bytes",
    b"another key of more than sixteen bytes",
]
VALUES = [b"v", b"", b"w" * 90]
PIDS = [1, 2, 3]

pairs = st.tuples(st.just(b"a") | st.sampled_from(KEYS), st.none() | st.sampled_from(VALUES))
batches = st.lists(pairs, min_size=1, max_size=3)
codecs = st.just(Compression.NONE) | st.sampled_from(list(Compression))
writes = st.tuples(st.just("write"), batches, st.sampled_from([NO_PRODUCER_ID, *PIDS]), codecs, st.booleans())
transactional = st.tuples(st.just("in transaction"), batches, st.sampled_from(PIDS), codecs, st.booleans())
ends = st.tuples(st.just("end"), st.sampled_from(PIDS), st.booleans(), st.booleans())
#: Rolls, waits, and passes over one replica with a map of so many keys, which may die.
passes = st.tuples(
    st.just("pass"),
    st.integers(0, 1),
    st.sampled_from([600, 0, 2000]),
    st.sampled_from([9, 3, 4, 5]),
    st.sampled_from([None, None, None, None, 0b01, 0b10, 0b101, 0b1110]),
)
#: What is written between two passes. What can go wrong takes several passes, so an example is never short.
stretches = st.lists(st.one_of(writes, transactional, ends), min_size=2, max_size=5)
rounds = st.tuples(stretches, st.lists(passes, min_size=1, max_size=2)).map(lambda parts: parts[0] + parts[1])
steps = st.lists(rounds, min_size=4, max_size=8).map(lambda parts: [step for part in parts for step in part])


def apply(history: History, step: tuple[Any, ...]) -> None:
    match step:
        case ("write", pairs, pid, compression, is_append_time):
            producer = history.producers.get(pid)
            if (
                producer is None or producer.transaction is None
            ):  # Until its transaction ends, it writes nothing else.
                history.write(*pairs, pid=pid, compression=compression, is_append_time=is_append_time)
        case ("in transaction", pairs, pid, compression, is_append_time):
            history.write(
                *pairs,
                pid=pid,
                is_transactional=True,
                compression=compression,
                is_append_time=is_append_time,
            )
        case ("end", pid, is_commit, bumps_epoch):
            # Of the oldest one that is open, or an empty one: what stays open would keep all passes below it.
            open_pids = [
                pid for pid, producer in history.producers.items() if producer.transaction is not None
            ]
            if open_pids or pid in history.producers:
                history.end((open_pids or [pid])[0], is_commit=is_commit, bumps_epoch=bumps_epoch)
        case ("pass", index, wait_ms, key_count, dies_with):
            history.roll()
            history.now_ms += wait_ms
            replica = history.replicas[index]
            before = {parse_header(batch).base_offset: batch for batch in replica.batches}
            replica.compact(key_count, dies_with=dies_with)
            check_replica(replica, before)


def check_replica(replica: Replica, before: dict[int, bytes]) -> None:
    """Holds after every pass, also one that died."""
    history = replica.history
    batches = replica.batches
    for batch in batches:
        header = parse_header(batch)
        assert_well_formed(batch)
        assert identity(header) == identity(parse_header(before[header.base_offset]))
    assert [parse_header(batch).next_offset for batch in batches[-1:]] == [history.end_offset][: len(before)]
    everything = {written.record.offset: written for written in history.written}
    stored = data_of(batches)
    assert [seen.offset for seen in stored] == sorted({seen.offset for seen in stored})
    assert all(seen == everything[seen.offset].record for seen in stored)
    seen = read_committed(batches, history.last_stable_offset)
    assert all(everything[record.offset].is_committed for record in seen)
    assert last_values(seen) == history.view()
    offsets = {record.offset for record in stored}
    assert {offset for offset in everything if offset >= replica.reached} <= offsets
    newest = history.newest_below(history.end_offset)
    assert {
        written.record.offset for written in newest.values() if written.record.value is not None
    } <= offsets
    replayed = ProducerStates()
    for batch in batches:
        replayed.record_stored(memoryview(batch), parse_header(batch))
    for pid, entry in history.states.entries.items():
        known = replayed.entries[pid]
        assert (known.epoch, known.last_sequence) == (entry.epoch, entry.last_sequence)
    below = [record.key for record in stored if record.offset < replica.cleaned_end]
    assert len(below) == len(set(below))


def start() -> History:
    history = History()
    history.replica()
    history.replica()
    return history


@THOROUGH
@given(steps)
def test_every_replica_and_every_mixture_of_them_says_what_was_written(steps: list[tuple[Any, ...]]) -> None:
    history = start()
    bases = []
    for step in steps:
        before = history.end_offset
        apply(history, step)
        if history.end_offset != before:
            bases.append(before)
    for prefix, suffix in [history.replicas, history.replicas[::-1]]:
        for cut in bases:
            mixture = [b for b in prefix.batches if parse_header(b).next_offset <= cut]
            mixture += [b for b in suffix.batches if parse_header(b).base_offset >= cut]
            assert last_values(read_committed(mixture, history.last_stable_offset)) == history.view()


@THOROUGH
@given(steps)
def test_a_second_pass_with_the_same_inputs_changes_nothing(steps: list[tuple[Any, ...]]) -> None:
    history = start()
    for step in steps:
        apply(history, step)
    replica = history.replicas[0]
    plan = replica.plan()
    key_map = replica.key_map(plan.first_dirty_offset, plan.first_uncleanable_offset, 5)
    once = filtered(replica.new_filter(key_map), replica.batches)
    second = replica.new_filter(key_map)
    for batch in once:
        view = memoryview(batch)
        assert second.filter(view) is view
    assert second.counts.batches_changed == 0
    assert second.counts.bytes_in == second.counts.bytes_out


@THOROUGH
@given(steps, st.lists(st.integers(3, 9), max_size=5))
def test_any_division_into_passes_and_any_size_of_the_map_leaves_the_same_records(
    steps: list[tuple[Any, ...]], key_counts: list[int]
) -> None:
    """Without passes in between, and with bounds that let nothing expire."""
    history = start()
    for step in steps:
        if step[0] != "pass":
            apply(history, step)
    at_once, divided = history.replicas
    at_once.compact()
    for key_count in [*key_counts, *[3] * 100]:
        divided.compact(key_count)
    assert divided.cleaned_end == at_once.cleaned_end
    assert data_of(divided.batches) == data_of(at_once.batches)


@THOROUGH
@given(steps)
def test_everything_that_may_expire_goes_when_all_replicas_are_clean(steps: list[tuple[Any, ...]]) -> None:
    """All members up and passes running: what is left below the cleaned end is one value of each key, and batches
    without records that producers or the end of the log need."""
    history = start()
    for step in steps:
        apply(history, step)
    for pid in sorted(history.producers):
        history.end(pid, is_commit=True)
    if not history.end_offset:
        history.write((b"a", None))
    history.roll()
    for _ in range(6):
        history.now_ms += 2000
        for replica in history.replicas:
            replica.compact(key_count=100, producers_last_offsets=frozenset())
    newest = history.newest_below(history.end_offset)
    left = sorted(w.record.offset for w in newest.values() if w.record.value is not None)
    for replica in history.replicas:
        assert replica.cleaned_end == history.end_offset
        assert [record.offset for record in data_of(replica.batches)] == left
        *others, last = map(parse_header, replica.batches)
        assert all(header.count and not header.is_control for header in others)
        assert last.next_offset == history.end_offset
        assert not any(header.is_transactional and not header.is_control for header in [*others, last])
        assert replica.counts is not None
        assert replica.counts.tombstones.count == replica.counts.markers.count == 0


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("is_append_time", [False, True])
def test_each_codec_and_timestamp_type_keeps_every_record_as_it_was(
    compression: Compression, is_append_time: bool
) -> None:
    history = start()
    history.write(
        *[(b"k%d" % (index % 40), None if index % 7 == 0 else b"v" * index) for index in range(100)],
        compression=compression,
        is_append_time=is_append_time,
    )
    history.write((b"end", b"v"))
    history.roll()
    replica = history.replicas[0]
    replica.compact()
    written = {each.record.offset: each.record for each in history.written}
    batch = replica.batches[0]
    assert horizon_of(batch) is not None
    assert parse_header(batch).compression_id == compression
    kept = data_of([batch])
    assert len(kept) == 40
    assert all(record == written[record.offset] for record in kept)
    assert_well_formed(batch)
