"""What a pass of compaction did, and what it left to be removed later."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.records.batch import BatchHeader, parse_header
from protocol.schema import Buffer


class Expiry(NamedTuple):
    """Something that may go once the time is reached and the bound of its kind has passed its end."""

    horizon_ms: int
    end_offset: int


@dataclass(slots=True)
class Held:
    """What has a delete horizon and is still in the log: tombstones, markers, or remnants of markers."""

    count: int = 0
    size_bytes: int = 0
    """Of tombstones: without compression."""
    expired_count: int = 0
    """Those whose horizon was reached when the pass began: a bound holds them."""
    expired_bytes: int = 0
    first: Expiry | None = None
    """Of the lowest one. No other one can go earlier, unless a retention was lowered meanwhile: each pass gives a
    horizon to all that have none, so horizons rise with offsets."""

    def add(self, count: int, size_bytes: int, horizon_ms: int, end_offset: int, *, is_expired: bool) -> None:
        self.count += count
        self.size_bytes += size_bytes
        if is_expired:
            self.expired_count += count
            self.expired_bytes += size_bytes
        if self.first is None:
            self.first = Expiry(horizon_ms, end_offset)


@dataclass(slots=True)
class PassCounts:
    """Of all batches that the pass was given. What was removed, and what is held, lies below the end of the key map."""

    bytes_in: int = 0
    bytes_out: int = 0
    batches_in: int = 0
    batches_out: int = 0
    batches_changed: int = 0
    """Written anew or removed. 0: what the pass wrote is what it read."""
    records_in: int = 0
    """Markers count as records."""
    records_out: int = 0

    superseded_records: int = 0
    aborted_records: int = 0
    keyless_records: int = 0
    expired_tombstones: int = 0
    expired_markers: int = 0
    """Whose remnants are still there."""
    expired_remnants: int = 0

    tombstones: Held = field(default_factory=Held)
    markers: Held = field(default_factory=Held)
    remnants: Held = field(default_factory=Held)
    """Without those that are pinned."""
    pinned_batches: int = 0
    """Without records, and kept for their producers or as the end of the log."""
    transactional_batches: int = 0
    """Of data, below the end of the key map, written with the transactional bit."""

    @property
    def is_transaction_free(self) -> bool:
        """Whether a replica that has this pass durable may raise its MXFO to the end of the key map."""
        return self.transactional_batches == 0

    def count_in(self, header: BatchHeader) -> None:
        self.bytes_in += header.size_bytes
        self.batches_in += 1
        self.records_in += header.count

    def count_out(self, batch: memoryview, output: Buffer | None, map_end_offset: int) -> None:
        if output is not batch:
            self.batches_changed += 1
        if output is None:
            return
        header = parse_header(output)
        self.bytes_out += header.size_bytes
        self.batches_out += 1
        self.records_out += header.count
        if header.next_offset <= map_end_offset and header.is_transactional and not header.is_control:
            self.transactional_batches += 1
