"""What becomes of each batch in a pass of compaction: it stays, is written anew, or goes.

A pass covers a log from its start to the end of the key map. Whatever lies above that end stays as it is.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from protocol.records.batch import BatchHeader, parse_header
from protocol.records.control import read_marker, remnant_is_commit
from protocol.schema import Buffer
from storage.compaction.aborted_data import AbortedData
from storage.compaction.counts import PassCounts
from storage.compaction.key_map import KeyMap
from storage.compaction.key_table import Split
from storage.compaction.rewriting import (
    emptied,
    has_horizon,
    horizon_after,
    remnant,
    rewritten,
    timestamp_of,
    without_transactional_bit,
)
from storage.compaction.scan import check_batch, payload_of, scan_records


class PassRules(NamedTuple):
    """What holds for a whole pass. Offsets are exclusive upper bounds, but for the last offset."""

    now_ms: int
    """When the pass began."""
    delete_retention_ms: int
    producer_id_expiration_ms: int
    cleaned_end_offset: int
    """How far the log was cleaned, durably, when this pass began. Above it, an older value that a tombstone deletes may
    still be on disk, or may be again after a crash. So no tombstone and no marker goes there."""
    max_tombstone_remove_offset: int
    """MTRO: every member of the group is cleaned below it."""
    max_transaction_remove_offset: int
    """MXRO: no member of the group has transactional data below it."""
    log_last_offset: int
    """The last offset of the last batch of the log, wherever that lies. A reader must be able to reach the end."""
    producers_last_offsets: AbstractSet[int]
    """The last offsets of the batches from which a replay learns what the active producers wrote last
    (`producers.last_offsets`)."""


class BatchFilter:
    """One pass. Give it the batches of the log in order; `counts` says what it did."""

    def __init__(self, key_map: KeyMap, aborted: AbortedData, rules: PassRules) -> None:
        self.counts = PassCounts()
        self._key_map = key_map
        self._aborted = aborted
        self._rules = rules
        self._tombstones_go_below = min(rules.max_tombstone_remove_offset, rules.cleaned_end_offset)
        self._markers_go_below = min(rules.max_transaction_remove_offset, rules.cleaned_end_offset)

    def filter(self, batch: memoryview) -> Buffer | None:
        """What is written in place of a complete batch: the very same object if nothing changes; None for nothing.

        Raises KafkaError CORRUPT_MESSAGE, and what `decompress` raises. The pass has failed then.
        """
        header = parse_header(batch)
        self.counts.count_in(header)
        if header.next_offset > self._key_map.end_offset:
            output: Buffer | None = batch
        else:
            check_batch(batch, header)
            output = (self._filter_control if header.is_control else self._filter_data)(batch, header)
        self.counts.count_out(batch, output, self._key_map.end_offset)
        return output

    # -- data

    def _filter_data(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        if self._aborted.covers(header):
            self.counts.aborted_records += header.count
            return self._without_records(batch, header)
        if not header.count:
            return self._without_records(batch, header)
        split = self._split(batch, header)
        if not split.kept:
            return self._without_records(batch, header)
        horizon_ms = None
        if split.tombstones:
            if not has_horizon(header):
                horizon_ms = horizon_after(self._rules.now_ms, self._rules.delete_retention_ms)
            self._count_tombstones(header, split, horizon_ms)
        if split.kept < header.count or horizon_ms is not None:
            return rewritten(header, split.payload, split.kept, split.max_timestamp_ms, horizon_ms)
        return without_transactional_bit(batch, header) if header.is_transactional else batch

    def _split(self, batch: memoryview, header: BatchHeader) -> Split:
        tombstones_go = self._has_expired(header) and header.next_offset <= self._tombstones_go_below
        split = self._key_map.split(payload_of(batch, header), header, tombstones_go=tombstones_go)
        self.counts.keyless_records += split.keyless
        self.counts.superseded_records += split.superseded
        self.counts.expired_tombstones += split.expired
        return split

    def _count_tombstones(self, header: BatchHeader, split: Split, new_horizon_ms: int | None) -> None:
        horizon_ms = header.base_timestamp if new_horizon_ms is None else new_horizon_ms
        self.counts.tombstones.add(
            split.tombstones,
            split.tombstone_bytes,
            horizon_ms,
            header.next_offset,
            is_expired=horizon_ms <= self._rules.now_ms,
        )

    def _without_records(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        """No record of a data batch stays."""
        if not self._must_stay(header):
            return None
        self.counts.pinned_batches += 1
        empty = emptied(header)
        return batch if empty == batch else empty

    # -- markers

    def _filter_control(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        if not header.count:
            return self._filter_remnant(batch, header)
        marker = read_marker(batch)
        if marker is None:
            return batch  # This build does not know what it means.
        rules = self._rules
        if self._has_expired(header) and header.next_offset <= self._markers_go_below:
            self.counts.expired_markers += 1
            horizon_ms = horizon_after(rules.now_ms, rules.producer_id_expiration_ms)
            return self._count_remnant(header, remnant(header, marker.is_commit, horizon_ms), horizon_ms)
        output: Buffer = batch
        horizon_ms = header.base_timestamp
        if not has_horizon(header):
            # Of its transaction, all batches lie below it, hence in this pass: no data with the transactional bit is
            # left when the pass is over.
            horizon_ms = horizon_after(rules.now_ms, rules.delete_retention_ms)
            payload = bytes(payload_of(batch, header))
            latest_ms = max(timestamp_of(header, record[3]) for record in scan_records(payload, header))
            output = rewritten(header, payload, header.count, latest_ms, horizon_ms)
        self.counts.markers.add(
            1, len(output), horizon_ms, header.next_offset, is_expired=horizon_ms <= rules.now_ms
        )
        return output

    def _filter_remnant(self, batch: memoryview, header: BatchHeader) -> Buffer | None:
        rules = self._rules
        if not has_horizon(header):  # Kafka's remnants have none.
            horizon_ms = horizon_after(rules.now_ms, rules.producer_id_expiration_ms)
            return self._count_remnant(
                header, remnant(header, remnant_is_commit(header), horizon_ms), horizon_ms
            )
        if (
            self._has_expired(header)
            and header.next_offset <= self._markers_go_below
            and not self._must_stay(header)
        ):
            self.counts.expired_remnants += 1
            return None
        return self._count_remnant(header, batch, header.base_timestamp)

    def _count_remnant(self, header: BatchHeader, output: Buffer, horizon_ms: int) -> Buffer:
        """One that stays for its producer, or at the end of the log, waits for no horizon."""
        if self._must_stay(header):
            self.counts.pinned_batches += 1
        else:
            is_expired = horizon_ms <= self._rules.now_ms
            self.counts.remnants.add(1, len(output), horizon_ms, header.next_offset, is_expired=is_expired)
        return output

    # -- rules

    def _has_expired(self, header: BatchHeader) -> bool:
        return has_horizon(header) and header.base_timestamp <= self._rules.now_ms

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the batch stays even without records."""
        last_offset = header.last_offset
        return last_offset == self._rules.log_last_offset or last_offset in self._rules.producers_last_offsets
