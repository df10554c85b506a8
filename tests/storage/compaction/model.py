"""A partition by definition, and replicas of it that are compacted: what the tests of compaction compare.

`History` is what was written, and what became of each transaction. `Replica` holds the same as batches in segments, and
runs passes over them as a worker would, on lists instead of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from protocol.records.batch import (
    ATTR_DELETE_HORIZON,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
    check_crc,
    parse_header,
    stamp,
)
from protocol.records.builder import NewRecord, build_batch, build_filler
from protocol.records.control import Marker, build_marker, read_marker
from protocol.records.record import iter_records
from protocol.records.validate import set_log_append_time
from protocol.records.walk import walk_in_steps
from protocol.records.walk_twin import Walk as TwinWalk
from storage.aborted_index import AbortedTransaction
from storage.compaction.aborted_data import AbortedData
from storage.compaction.batch_filter import BatchFilter, PassRules
from storage.compaction.counts import PassCounts
from storage.compaction.held_back import HeldBack
from storage.compaction.key_map import ENTRY_BYTES, KeyMap
from storage.compaction.plan import (
    CompactionSettings,
    LogFacts,
    Plan,
    SegmentFacts,
    group_segments,
    make_plan,
)
from storage.compaction.producers import last_offsets
from storage.producer_state import ProducerStates

UNSET = -1
FOREVER = 2**62
RETENTION_MS = 500
EXPIRATION_MS = 1000
SEGMENT_BYTES = 700
#: Always due.
EAGER = CompactionSettings(
    is_compacted=True, min_compaction_lag_ms=0, max_compaction_lag_ms=2**63 - 1, min_cleanable_dirty_ratio=0.0
)


class Seen(NamedTuple):
    """A record as a reader gets it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(eq=False)
class Transaction:
    first_offset: int
    #: None: it is open.
    is_committed: bool | None = None


@dataclass(eq=False)
class Written:
    record: Seen
    transaction: Transaction | None

    @property
    def is_committed(self) -> bool:
        return self.transaction is None or self.transaction.is_committed is True


@dataclass
class Producer:
    epoch: int = 0
    next_sequence: int = 0
    transaction: Transaction | None = None


def key_buffer(key_count: int) -> int:
    """Bytes of a key map for so many keys."""
    return (key_count * 10 // 9 + 1) * ENTRY_BYTES


@dataclass
class History:
    now_ms: int = 10_000
    end_offset: int = 0
    written: list[Written] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)
    states: ProducerStates = field(default_factory=ProducerStates)
    replicas: list[Replica] = field(default_factory=list)

    def replica(self) -> Replica:
        replica = Replica(self)
        self.replicas.append(replica)
        return replica

    def write(
        self,
        *pairs: tuple[bytes | None, bytes | None],
        pid: int = NO_PRODUCER_ID,
        is_transactional: bool = False,
        compression: Compression = Compression.NONE,
        is_append_time: bool = False,
        timestamps_ms: Sequence[int] = (),
    ) -> int:
        """Append one batch of (key, value). Returns its base offset."""
        base_offset = self.end_offset
        times = timestamps_ms or [self.now_ms + index for index in range(len(pairs))]
        records = [
            NewRecord(key, value, time, [("h", b"x" * (index % 3)), ("n", None)][: index % 3])
            for index, ((key, value), time) in enumerate(zip(pairs, times, strict=True))
        ]
        sequence, epoch = -1, -1
        transaction = None
        if pid != NO_PRODUCER_ID:
            producer = self.producers.setdefault(pid, Producer())
            sequence, epoch = producer.next_sequence, producer.epoch
            producer.next_sequence += len(pairs)
            if is_transactional:
                producer.transaction = producer.transaction or Transaction(base_offset)
                transaction = producer.transaction
        batch = build_batch(
            records,
            base_offset=base_offset,
            leader_epoch=3,
            compression=compression,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        if is_append_time:
            set_log_append_time(batch, self.now_ms)
        for index, record in enumerate(records):
            time = self.now_ms if is_append_time else record.timestamp_ms
            headers = tuple((name, None if value is None else bytes(value)) for name, value in record.headers)
            seen = Seen(base_offset + index, time, *pairs[index], headers)
            self.written.append(Written(seen, transaction))
        self._append(batch, None)
        return base_offset

    def end(self, pid: int, *, is_commit: bool, bumps_epoch: bool = False) -> int:
        """Append the marker that ends a transaction. Returns its offset."""
        producer = self.producers[pid]
        if producer.transaction is not None:
            producer.transaction.is_committed = is_commit
            producer.transaction = None
        if bumps_epoch:
            producer.epoch += 1
            producer.next_sequence = 0
        marker = Marker(is_commit, 4)
        batch = build_marker(pid, producer.epoch, marker, self.now_ms, leader_epoch=3)
        stamp(batch, parse_header(batch), self.end_offset, 3)
        self._append(batch, marker)
        return self.end_offset - 1

    def _append(self, batch: bytearray, marker: Marker | None) -> None:
        header = parse_header(batch)
        self.states.record(header, marker)
        self.end_offset = header.next_offset
        for replica in self.replicas:
            replica.segments[-1].append(bytes(batch))

    def roll(self) -> None:
        """Begin a segment on every replica."""
        for replica in self.replicas:
            if replica.segments[-1]:
                replica.bases.append(self.end_offset)
                replica.segments.append([])

    @property
    def last_stable_offset(self) -> int:
        return self.states.last_stable_offset(self.end_offset)

    def view(self, *, below: int | None = None) -> dict[bytes, bytes]:
        """The last value of each key, by definition."""
        end = self.last_stable_offset if below is None else below
        return last_values(
            written.record for written in self.written if written.is_committed and written.record.offset < end
        )

    def newest_below(self, end_offset: int) -> dict[bytes, Written]:
        """The newest record of each key that is not of an aborted transaction."""
        return {
            written.record.key: written
            for written in self.written
            if written.record.offset < end_offset and written.is_committed and written.record.key is not None
        }

    @property
    def mtro(self) -> int:
        return min(replica.cleaned_end for replica in self.replicas)

    @property
    def mxro(self) -> int:
        return min(replica.transaction_free_end for replica in self.replicas)


def last_values(records: Iterable[Seen]) -> dict[bytes, bytes]:
    values: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values


class Replica:
    def __init__(self, history: History) -> None:
        self.history = history
        #: Invariant: as many as segments. The last one is the active segment.
        self.bases = [0]
        self.segments: list[list[bytes]] = [[]]
        self.cleaned_end = UNSET
        self.transaction_free_end = UNSET
        #: How far any pass came, also one that died.
        self.reached = 0
        self.counts: PassCounts | None = None

    @property
    def stored(self) -> list[bytes]:
        return [batch for segment in self.segments for batch in segment]

    @property
    def batches(self) -> list[bytes]:
        """Without the fillers."""
        return [batch for batch in self.stored if not is_filler(batch)]

    # -- compaction, as a worker does it

    def plan(self, settings: CompactionSettings = EAGER) -> Plan:
        history = self.history
        counts = self.counts or PassCounts()
        facts = LogFacts(
            self._segment_facts(),
            0,
            self.cleaned_end,
            history.end_offset,
            history.last_stable_offset,
            history.mtro,
            history.mxro,
            HeldBack.by(counts),
        )
        return make_plan(facts, settings, history.now_ms)

    def _segment_facts(self) -> list[SegmentFacts]:
        ends = [*self.bases[1:], self.history.end_offset]
        facts = []
        for base, end, batches in zip(self.bases, ends, self.segments, strict=True):
            headers = [parse_header(batch) for batch in batches]
            dirty = [header.max_timestamp for header in headers if header.next_offset > self.cleaned_end]
            newest_ms = max((header.max_timestamp for header in headers), default=-1)
            facts.append(SegmentFacts(base, end, sum(map(len, batches)), newest_ms, (dirty or [-1])[0]))
        return facts

    def key_map(self, first_dirty: int, first_uncleanable: int, key_count: int = 1000) -> KeyMap:
        key_map = KeyMap(key_buffer(key_count), first_dirty)
        aborted = AbortedData(aborted_in(self.batches))
        for batch in self.stored:
            header = parse_header(batch)
            if header.next_offset <= first_dirty:
                continue
            if header.next_offset > first_uncleanable:
                break
            if not key_map.add_batch(memoryview(batch), aborted):
                break
        return key_map

    def new_filter(self, key_map: KeyMap, **changes: Any) -> BatchFilter:
        history = self.history
        rules = PassRules(
            now_ms=history.now_ms,
            delete_retention_ms=RETENTION_MS,
            producer_id_expiration_ms=EXPIRATION_MS,
            cleaned_end_offset=self.cleaned_end,
            max_tombstone_remove_offset=history.mtro,
            max_transaction_remove_offset=history.mxro,
            log_last_offset=history.end_offset - 1,
            producers_last_offsets=last_offsets(history.states),
        )
        return BatchFilter(key_map, AbortedData(aborted_in(self.batches)), rules._replace(**changes))

    def compact(
        self, key_count: int = 1000, *, dies_with: int | None = None, **changes: Any
    ) -> BatchFilter | None:
        """One pass, if anything is due. `dies_with`: the merged segments that are in place when it dies, as bits. The
        checkpoint is the old one then."""
        plan = self.plan()
        if not plan.is_due:
            return None
        key_map = self.key_map(plan.first_dirty_offset, plan.first_uncleanable_offset, key_count)
        self.reached = max(self.reached, key_map.end_offset)
        batch_filter = self.new_filter(key_map, **changes)
        groups = list(
            group_segments(
                self._segment_facts(), plan.first_uncleanable_offset, key_map.end_offset, SEGMENT_BYTES
            )
        )
        for at, group in enumerate(groups):
            first = self.bases.index(group[0].base_offset)
            behind = first + len(group)
            kept = filtered(batch_filter, chain.from_iterable(self.segments[first:behind]))
            merged = with_fillers(kept, group[0].base_offset, group[-1].end_offset)
            if dies_with is None or dies_with >> at & 1:
                self.segments[first:behind] = [merged]
                self.bases[first:behind] = [group[0].base_offset]
        if dies_with is not None:
            return batch_filter
        self.counts = batch_filter.counts
        self.cleaned_end = max(self.cleaned_end, key_map.end_offset)
        assert batch_filter.counts.is_transaction_free
        self._assert_headers_tell(HeldBack.by(batch_filter.counts))
        self.transaction_free_end = self.cleaned_end
        return batch_filter

    def _assert_headers_tell(self, held: HeldBack) -> None:
        """After a restart, what is held back is found in the headers; of tombstones, perhaps more than there are."""
        history = self.history
        pinned = last_offsets(history.states) | {history.end_offset - 1}
        found = HeldBack()
        for batch in self.stored:
            header = parse_header(batch)
            if header.next_offset <= self.cleaned_end:
                found = found.with_batch(header, pinned)
        assert (found.markers, found.remnants) == (held.markers, held.remnants)
        if held.tombstones is not None:
            assert found.tombstones is not None
            assert found.tombstones.end_offset <= held.tombstones.end_offset


def filtered(batch_filter: BatchFilter, batches: Iterable[bytes]) -> list[bytes]:
    outputs = (batch_filter.filter(memoryview(batch)) for batch in batches)
    return [bytes(output) for output in outputs if output is not None]


def with_fillers(batches: Iterable[bytes], base_offset: int, end_offset: int) -> list[bytes]:
    """As a segment has them: every offset is in some batch (storage/README.md)."""
    filled, next_offset = [], base_offset
    for batch in batches:
        header = parse_header(batch)
        if header.base_offset > next_offset:
            filled.append(bytes(build_filler(next_offset, header.base_offset, header.leader_epoch)))
        filled.append(batch)
        next_offset = header.next_offset
    if next_offset < end_offset:
        filled.append(bytes(build_filler(next_offset, end_offset, 3)))
    return filled


def is_filler(batch: bytes) -> bool:
    """An emptied batch of no producer, at the end of the log, has the time of its last record."""
    header = parse_header(batch)
    return header.is_filler and header.max_timestamp == NO_TIMESTAMP


# -- readers


def aborted_in(batches: Iterable[bytes]) -> list[AbortedTransaction]:
    """The aborted transactions of a log, found by a replay."""
    states = ProducerStates()
    for batch in batches:
        states.record_stored(memoryview(batch), parse_header(batch))
    return states.take_aborted()


def records_of(batch: bytes) -> list[Seen]:
    return [
        Seen(
            record.offset,
            record.timestamp_ms,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            tuple((name, None if value is None else bytes(value)) for name, value in record.headers),
        )
        for record in iter_records(memoryview(batch))
    ]


def data_of(batches: Iterable[bytes]) -> list[Seen]:
    """All records, of whichever transactions."""
    return [seen for batch in batches if not parse_header(batch).is_control for seen in records_of(batch)]


def read_committed(
    batches: Sequence[bytes], end_offset: int, aborted: Sequence[AbortedTransaction] | None = None
) -> list[Seen]:
    """What a consumer makes of a log: it is sent the aborted transactions beside the batches (KIP-98). None: those that
    a replay finds."""
    known = aborted_in(batches) if aborted is None else aborted
    waiting = sorted(known, key=lambda aborted: aborted.first_offset)
    aborted_pids: set[int] = set()
    seen: list[Seen] = []
    for batch in batches:
        header = parse_header(batch)
        if header.next_offset > end_offset:
            break
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborted_pids.add(waiting.pop(0).producer_id)
        if header.is_control:
            marker = read_marker(memoryview(batch))
            if marker is not None and not marker.is_commit:
                aborted_pids.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted_pids):
            seen += records_of(batch)
    return seen


def assert_well_formed(batch: bytes) -> None:
    """Every client can read it: as both walks and the CRC say."""
    view = memoryview(batch)
    header = parse_header(view)
    assert header.size_bytes == len(batch)
    assert check_crc(view, 0, header)
    if not header.count:
        assert header.length == 49
        assert header.compression_id == Compression.NONE
        return
    walk = TwinWalk(header.count, header.base_timestamp, is_consecutive=False)
    for _ in walk_in_steps(walk, view, header):
        pass
    if not header.attributes & 0x08:
        assert header.max_timestamp == walk.max_timestamp_ms


def horizon_of(batch: bytes) -> int | None:
    header = parse_header(batch)
    return header.base_timestamp if header.attributes & ATTR_DELETE_HORIZON else None


def identity(header: BatchHeader) -> tuple[int, ...]:
    """What of a batch no pass changes."""
    return (
        header.base_offset,
        header.last_offset_delta,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )
