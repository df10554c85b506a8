"""A digest of what a log says: equal on all replicas, whatever each of them has compacted so far.

What a log says in [start, end) is the newest record of each key there, without the data of aborted transactions, and
without the keys whose newest record is a tombstone. A pass removes superseded records, aborted data and old tombstones.
So it leaves the same view, as long as no newer record that made it remove something lies at or above `end`.

A digest is a count, and the sum of the records' hashes modulo 2^128. So it does not depend on batches, on compression,
or on the order in which records are read. It guards against faults, not against somebody who searches for records of
an equal sum.

Offsets are divided into parts with a digest each. Two logs that differ show in which part they do first.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from protocol.records.batch import (
    ATTR_LOG_APPEND_TIME,
    ATTR_TRANSACTIONAL,
    HEADER_BYTES,
    BatchHeader,
)
from protocol.schema import Buffer
from storage.compaction.aborted_data import AbortedData
from storage.compaction.key_table import KeyTable
from storage.compaction.rewriting import has_horizon, timestamp_of
from storage.compaction.scan import check_batch, payload_of, scan_records

#: A digest of a range has so many parts at most.
MAX_PARTS = 1024
HASH_BYTES = 16
_MODULUS = 1 << 8 * HASH_BYTES

#: Count and sum of one part.
_PART = Struct(">Q16s")
#: Offset and timestamp of a record.
_PLACE = Struct(">qq")
#: All of a batch's header but length, CRC and the fields in front of them.
_BATCH = Struct(">qihiqqqhii")


class OffsetRange(NamedTuple):
    """[start, end)."""

    start: int
    end: int

    @property
    def part_offsets(self) -> int:
        """How many offsets a part of its digest has; the last one may have fewer."""
        return max(-(-(self.end - self.start) // MAX_PARTS), 1)

    @property
    def part_count(self) -> int:
        return -(-(self.end - self.start) // self.part_offsets)

    def part(self, index: int) -> OffsetRange:
        start = self.start + index * self.part_offsets
        return OffsetRange(start, min(start + self.part_offsets, self.end))


class RangeDigest:
    """Of the records in a range that belong to the view."""

    def __init__(self, of: OffsetRange) -> None:
        self.range = of
        self.counts = [0] * of.part_count
        self.sums = [0] * of.part_count
        self.is_rewritten = False
        """Compaction has left its traces there."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeDigest) and self.encode() == other.encode()

    def __hash__(self) -> int:
        raise TypeError("a digest changes")

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, offset: int, hashed: bytes) -> None:
        """What does not lie in the range is left out."""
        start, end = self.range
        if start <= offset < end:
            at = (offset - start) // self.range.part_offsets
            self.counts[at] += 1
            self.sums[at] = (self.sums[at] + int.from_bytes(hashed, "big")) % _MODULUS

    def add_all(self, other: RangeDigest) -> None:
        """That of other records in the same range."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sums = [(mine + theirs) % _MODULUS for mine, theirs in zip(self.sums, other.sums, strict=True)]
        self.is_rewritten |= other.is_rewritten

    def first_difference(self, other: RangeDigest) -> int | None:
        """The first part in which they differ. None: they are equal."""
        assert self.range == other.range
        parts = zip(self.counts, self.sums, other.counts, other.sums, strict=True)
        return next((at for at, (n, x, m, y) in enumerate(parts) if (n, x) != (m, y)), None)

    def encode(self) -> bytes:
        """The parts, for the wire."""
        return b"".join(
            _PART.pack(count, total.to_bytes(HASH_BYTES, "big"))
            for count, total in zip(self.counts, self.sums, strict=True)
        )

    @classmethod
    def decode(cls, of: OffsetRange, data: Buffer) -> RangeDigest:
        """Raises ValueError if there are not as many parts as the range has."""
        digest = cls(of)
        if len(data) != _PART.size * of.part_count:
            raise ValueError(f"a digest of {len(data)} bytes, for {of.part_count} parts")
        parts = list(_PART.iter_unpack(data))
        digest.counts = [count for count, _ in parts]
        digest.sums = [int.from_bytes(total, "big") for _, total in parts]
        return digest


class KeyShare(NamedTuple):
    """The keys whose hash leaves `number` when it is divided by `of`."""

    number: int
    of: int
    salt: bytes
    """Nobody can choose keys that all fall into one share."""

    def halves(self) -> tuple[KeyShare, KeyShare]:
        return self._replace(of=2 * self.of), self._replace(number=self.number + self.of, of=2 * self.of)

    def holds(self, key: bytes) -> bool:
        if self.of == 1:
            return True
        hashed = blake2b(key, digest_size=8, key=self.salt).digest()
        return int.from_bytes(hashed, "big") % self.of == self.number


class ViewRound:
    """The view of those keys that fall into one share.

    The batches are given twice, in order: to `add_keys`, and, if all keys fitted, to `add_records`. Memory is bounded
    by the table. Where it does not hold the keys of a share, the caller takes each half of the share in a round of its
    own. Both methods raise KafkaError CORRUPT_MESSAGE, and what `decompress` raises.
    """

    def __init__(
        self,
        view: OffsetRange,
        focus: OffsetRange,
        aborted: AbortedData,
        share: KeyShare,
        table: KeyTable,
    ) -> None:
        """`view`: the newest record of a key is searched here. `focus`: records are digested here."""
        self.digest = RangeDigest(focus)
        self._view = view
        self._aborted = aborted
        self._share = share
        self._table = table

    def add_keys(self, batch: memoryview, header: BatchHeader) -> bool:
        """False: the table does not hold all keys of the share."""
        check_batch(batch, header)
        if self._is_left_out(header):
            return True
        return self._table.add(*self._selected(batch, header))

    def add_records(self, batch: memoryview, header: BatchHeader) -> None:
        check_batch(batch, header)
        if self._is_left_out(header):
            return
        payload, selected = self._selected(batch, header)
        split = self._table.split(payload, selected, tombstones_go=True)
        if split.kept:
            add_hashes(self.digest, split.payload, selected._replace(count=split.kept))

    def _is_left_out(self, header: BatchHeader) -> bool:
        return header.is_control or not header.count or self._aborted.covers(header)

    def _selected(self, batch: memoryview, header: BatchHeader) -> tuple[Buffer, BatchHeader]:
        """The payload of those records that lie in the view and whose keys are in the share, and a header that says how
        many they are."""
        payload, (start, end) = payload_of(batch, header), self._view
        if self._share.of == 1 and start <= header.base_offset and header.next_offset <= end:
            return payload, header
        data, share, base_offset = bytes(payload), self._share, header.base_offset
        parts = [
            data[at:to]
            for at, to, offset_delta, _, _, key, _ in scan_records(data, header)
            if key is not None and start <= base_offset + offset_delta < end and share.holds(key)
        ]
        return b"".join(parts), header._replace(count=len(parts))


def add_hashes(digest: RangeDigest, payload: Buffer, header: BatchHeader) -> None:
    """Add all records of a payload: offset, timestamp, and the bytes of key, value and headers."""
    data, base_offset = bytes(payload), header.base_offset
    is_append_time = header.attributes & ATTR_LOG_APPEND_TIME
    for _, end, offset_delta, timestamp_delta, behind_timestamp, _, _ in scan_records(data, header):
        at = behind_timestamp
        while data[at] & 0x80:  # the offset delta, which depends on the batch
            at += 1
        offset = base_offset + offset_delta
        timestamp_ms = header.max_timestamp if is_append_time else timestamp_of(header, timestamp_delta)
        place = _PLACE.pack(offset, timestamp_ms)
        digest.add(offset, blake2b(place + data[at + 1 : end], digest_size=HASH_BYTES).digest())


def add_batch(digest: RangeDigest, batch: memoryview, header: BatchHeader) -> None:
    """Add a whole batch of a log that was never compacted, as it lies there: under its base offset, or where the range
    begins, if it begins below. Where compaction has left traces, it says so (`RangeDigest.is_rewritten`); then this
    digest says nothing.

    Raises KafkaError CORRUPT_MESSAGE.
    """
    check_batch(batch, header)
    digest.is_rewritten |= is_rewritten(header)
    start, end = digest.range
    if header.base_offset < end and header.next_offset > start:
        # Compaction clears this bit and leaves no other trace of that.
        fields = header._replace(attributes=header.attributes & ~ATTR_TRANSACTIONAL)
        hashed = blake2b(_fields(fields), digest_size=HASH_BYTES)
        hashed.update(batch[HEADER_BYTES : header.size_bytes])
        digest.add(max(header.base_offset, start), hashed.digest())


def is_rewritten(header: BatchHeader) -> bool:
    """Whether compaction has removed records of the batch, or given it a delete horizon. What it has rewritten without
    that differs in the transactional bit alone."""
    return header.count <= header.last_offset_delta or has_horizon(header)


def _fields(header: BatchHeader) -> bytes:
    return _BATCH.pack(
        header.base_offset,
        header.leader_epoch,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
