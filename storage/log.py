"""The log of one partition: append, flush, roll, truncate, delete.

Opening a log is in `log_recovery`, reading in `log_reader`. Everything here runs on the event loop. What is appended
lies in the page cache. `begin_flush` and `finish_flush` bracket the flush that makes it durable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from protocol.records.batch import MAGIC, BatchHeader, check_crc
from storage.aborted_index import AbortedIndex, AbortedTransaction
from storage.aborted_transactions import AbortedTransactions
from storage.disk import Buffer, Disk
from storage.errors import CorruptLogError
from storage.lineage import Lineage, Row
from storage.log_reader import ReadableLog
from storage.log_types import FlushedEnd, FlushTicket, GroupKey, LogConfig, StoredSegment
from storage.segment import Segment
from storage.segment_files import MAX_RELATIVE_OFFSET, SNAPSHOT_SUFFIX, segment_path
from storage.segment_swap import commit_swap, finish_swap


class Log(ReadableLog):
    """Segments and lineage of one partition as one Raft log.

    Raft index of the record at offset o = o + number of lineage rows at or before o. All ends are exclusive.
    """

    #: How much is durable. Invariants: flushed_end <= end; it falls only in `truncate`.
    flushed_end: FlushedEnd
    #: Where an installed follower begins: 0, or the end of a batch that has a producer snapshot.
    #: Invariant: first_stored_offset <= install_offset <= start_offset.
    install_offset: int
    #: Compaction may have removed batches below this. So a state of the producers that was replayed from further below
    #: is not what it was. Set by the owner of the journal, which has it durable before that happens.
    rewritten_end: int

    def __init__(
        self,
        disk: Disk,
        directory: str,
        group: GroupKey,
        config: LogConfig,
        *,
        lineage: Lineage,
        segments: list[Segment],
        start_offset: int,
        install_offset: int,
        end_offset: int,
        flushed_end: FlushedEnd,
    ) -> None:
        super().__init__(segments, lineage, start_offset, end_offset)
        self.disk = disk
        self.directory = directory
        self.group = group
        self.config = config
        self.install_offset = install_offset
        self.rewritten_end = 0
        self.flushed_end = flushed_end
        self.aborted = AbortedTransactions(disk, directory)
        if not segments[-1].size_bytes:
            self.aborted.segment_added(segments[-1].base_offset)
        #: Truncations since the log was opened: what was said of the end before the last one is void.
        self.truncation_count = 0
        #: The end at the last `trim_if_quiet`.
        self._seen_end_offset = -1

    # -- verified reading

    def checked_batches(
        self, from_offset: int, below_offset: int | None = None
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Like `batches`, but each is read and verified (checksum, continuity, epoch = lineage), and none is missing.
        For callers that act on what they read: recovery does not look at what was recorded as durable, and anything
        may be corrupted later. The checksum does not cover the base offset, which may put a batch behind
        `below_offset`.

        Raises CorruptLogError.
        """
        end_offset = from_offset
        below_offset = self.end_offset if below_offset is None else below_offset
        for stored in self.batches(from_offset, below_offset):
            header, data = stored.header, stored.view()
            is_first = end_offset == from_offset
            if (
                header.magic != MAGIC
                or header.base_offset > end_offset
                or (header.base_offset < end_offset and not is_first)
                or self.lineage.term_at_offset(header.base_offset) != header.leader_epoch
                or not check_crc(data, 0, header)
            ):
                raise CorruptLogError(
                    stored.file.path,
                    stored.position,
                    f"the batch at {header.base_offset} is not what was written",
                )
            end_offset = header.last_offset + 1
            yield header, data
        if end_offset < below_offset:
            raise CorruptLogError(self.directory, 0, f"no batch holds offset {end_offset}")

    # -- appending

    def append_batches(self, buffers: Sequence[Buffer], headers: Sequence[BatchHeader]) -> None:
        """Append stamped batches in one write. `buffers` hold the batches that `headers` describe, in order.

        Raises DiskFullError with the log as it was before.
        """
        lineage = self.lineage
        expected, size_bytes, epoch = self.end_offset, 0, lineage.rows[-1].term
        assert epoch >= 0, "records stand behind a leader's row"
        largest_ms = -1
        for header in headers:
            assert header.base_offset == expected, f"batch at {header.base_offset}, expected {expected}"
            assert header.leader_epoch == epoch, f"batch of epoch {header.leader_epoch} in term {epoch}"
            expected = header.base_offset + header.last_offset_delta + 1
            size_bytes += header.length + 12
            if header.max_timestamp > largest_ms:
                largest_ms = header.max_timestamp
        if lineage.flushed_count < len(lineage.rows):
            # A row is durable before any batch after it. Callers normally wait for it, then this is skipped.
            lineage.flush()
        segment = self._segments[-1]
        if segment.size_bytes and self._is_full(segment, size_bytes, expected, largest_ms):
            self.roll()
            segment = self._segments[-1]
        position, file = segment.size_bytes, segment.file
        file.append(buffers, is_padded=True)
        assert file.size == position + size_bytes, "headers do not describe the buffers"
        segment.size_bytes = position + size_bytes
        segment.remember_position(self.end_offset, position, self.end_offset)
        for header in headers:
            segment.note_batch(header, position)
            position += header.length + 12
        self.end_offset = expected

    def _is_full(self, segment: Segment, size_bytes: int, end_offset: int, largest_ms: int) -> bool:
        if segment.size_bytes + size_bytes > self.config.segment_bytes:
            return True
        if end_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return True
        first_ms = segment.first_timestamp_ms
        return first_ms is not None and 0 <= first_ms < largest_ms - self.config.segment_ms

    def append_row(self, term: int, kind: int, payload: bytes) -> Row:
        """Append a lineage row at the log end. It is durable with the next flush."""
        return self.lineage.append(term, self.end_offset, kind, payload)

    def note_aborted(self, aborted: Iterable[AbortedTransaction]) -> None:
        """ABORT markers were appended in the last write."""
        for each in aborted:
            self.aborted.add(self.active_segment_base, each)

    def segment_end(self, base_offset: int) -> int | None:
        """One past the last offset that the segment with this base may hold. None: there is no such segment."""
        at = bisect_right(self._bases, base_offset) - 1
        if at < 0 or self._bases[at] != base_offset:
            return None
        return self._bases[at + 1] if at + 1 < len(self._bases) else self.end_offset

    @property
    def active_aborted(self) -> tuple[int, AbortedIndex] | None:
        """The base offset of the active segment, and the transactions that were aborted in it. None: unknown."""
        index = self.aborted.of_segment(self.active_segment_base)
        return None if index is None else (self.active_segment_base, index)

    def aborted_between(self, from_offset: int, below_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [from_offset, below_offset). The latter is at or below the last
        stable offset. Raises AbortedIndexMissingError."""
        return self.aborted.overlapping(self._bases, from_offset, below_offset)

    # -- rolling

    def roll(self) -> None:
        """Seal the active segment and begin a new one at the log end. Blocks for the flush of the tail."""
        active = self._segments[-1]
        if active.size_bytes:
            self._seal(active)
            self._add_segment(self.end_offset)

    def is_due_to_roll(self, now_ms: int) -> bool:
        """Whether an idle active segment has outlived `segment.ms`."""
        first_ms = self._segments[-1].first_timestamp_ms
        return first_ms is not None and 0 <= first_ms < now_ms - self.config.segment_ms

    def _seal(self, segment: Segment) -> None:
        """Make a segment durable before the next one exists: only the last segment ever holds bytes that are not."""
        segment.file.trim()
        segment.file.flush()
        segment.write_index_files(is_sealed=True)
        self.aborted.segment_sealed(segment.base_offset)

    def _add_segment(self, base_offset: int) -> None:
        file = self.disk.open(segment_path(self.directory, base_offset), create=True)
        assert file.size == 0, f"{file.path} was there already"
        self.disk.flush_directory(self.directory)
        self._segments[-1].release_file()
        self._segments.append(
            Segment(self.disk, self.directory, base_offset, file, self.config.index_interval_bytes)
        )
        self._bases.append(base_offset)
        self.aborted.segment_added(base_offset)

    # -- flushing

    def dirty(self) -> bool:
        return self.flushed_end.end_index < self.end_offset + len(self.lineage.rows)

    def start_writeback(self) -> None:
        """The disk may begin to write what was appended: a flush follows as soon as the caller's bookkeeping is
        done."""
        self._segments[-1].file.start_writeback()

    def begin_flush(self) -> FlushTicket:
        """The files that have to be flushed now, in this order. Sealed segments are durable already."""
        row_file = self.lineage.dirty_file()
        files = () if row_file is None else (row_file,)
        if self.end_offset > self.flushed_end.end_offset:
            files = (*files, self._segments[-1].file)
        return FlushTicket(files, self.end, self.truncation_count)

    def finish_flush(self, ticket: FlushTicket) -> None:
        """All files of the ticket are durable. A ticket from before a truncation is void."""
        if ticket.truncation_count != self.truncation_count:
            return
        self.lineage.flushed(ticket.end.row_count)
        if ticket.end.end_index > self.flushed_end.end_index:
            self.flushed_end = ticket.end

    def trim_if_quiet(self) -> None:
        """Cut off the padding if nothing was appended since the last call: other programs that read the file expect
        that it ends with a batch. A crash may bring the zeros back. Recovery recognises them."""
        end_offset = self.end_offset
        if end_offset == self._seen_end_offset:
            self._segments[-1].file.trim()
        self._seen_end_offset = end_offset

    def drop_cached(self) -> None:
        """Nobody reads this log here: leave the page cache to others (`File.drop_cached`)."""
        self._segments[-1].file.drop_cached()

    def flush(self) -> None:
        """Make everything durable before returning. Blocks: for rare, ordered steps."""
        self.lineage.flush()
        self._segments[-1].file.flush()
        self.flushed_end = self.end

    # -- cutting off the end

    def truncate(self, to_index: int, known_commit: int) -> None:
        """Drop every entry at or above `to_index`, durably: data first, then lineage.

        The data is durable before the lineage is touched. A crash in between leaves a prefix of the old log, because
        recovery drops rows above the end of the data. With the lineage first it would not: a configuration row has
        the same term as the batches after it. Without the row they would pass for entries one index below their own
        (README, Decisions).

        Before this the caller must have lowered the recorded end in the journal, durably (`FlushRounds.truncate` does
        both). Otherwise a crash in between looks like corruption.
        """
        assert to_index >= known_commit, f"truncation to {to_index}, committed up to {known_commit}"
        if to_index >= self.end_index:
            return
        offset = self.lineage.offset_of_index(to_index)
        assert offset >= self.start_offset
        self.truncation_count += 1
        self.flushed_end = min(self.flushed_end, FlushedEnd(to_index, to_index - offset))
        self.lineage.flush()
        if offset < self.end_offset:
            self._cut_data(offset)
        self.lineage.cut(to_index - offset)
        self.remove_snapshots_above(offset)
        self.disk.flush_directory(self.directory)
        self.flush()
        assert self.end_index == to_index

    def _cut_data(self, offset: int) -> None:
        while self._bases[-1] > offset:
            # From the end, each durably before the next: a later segment never outlives an earlier one.
            self._remove_segment(len(self._segments) - 1)
        segment = self._segments[-1]
        position, previous_end = segment.locate(offset)
        assert previous_end <= offset, f"offset {offset} lies inside a batch"
        self.aborted.segment_cut(segment.base_offset, offset)
        if position < segment.size_bytes:
            segment.cut(position, offset)
        self.end_offset = segment.end_offset

    def _remove_segment(self, at: int) -> None:
        """Remove a segment from the log, durably."""
        self.aborted.segment_removed(self._bases.pop(at))
        self._segments.pop(at).remove()

    # -- compaction

    def swap(self, bases: Sequence[int], aborted: AbortedIndex) -> None:
        """The segment that was built (`storage.segment_swap`) takes the place of those with these base offsets, and
        this was aborted in it. Who reads the old ones keeps the files that are open. Blocks for some flushes."""
        at = self._bases.index(bases[0])
        assert self._bases[at : at + len(bases)] == list(bases), "neighbours are replaced"
        assert at + len(bases) < len(self._bases), "the active segment is never replaced"
        for segment in self._segments[at : at + len(bases)]:
            segment.keep_file()
        commit_swap(self.disk, self.directory)
        finish_swap(self.disk, self.directory)
        file = self.disk.open(segment_path(self.directory, bases[0]))
        new = Segment(self.disk, self.directory, bases[0], file, self.config.index_interval_bytes)
        new.release_file()
        self._segments[at : at + len(bases)] = [new]
        self._bases[at : at + len(bases)] = [bases[0]]
        self.aborted.segments_replaced(bases, aborted)

    # -- cutting off the start

    def set_start_offset(self, offset: int) -> None:
        """Raise the log start. The journal's record of it (`Bounds`) is durable already."""
        assert self.start_offset <= offset <= self.flushed_end.end_offset
        self.start_offset = offset

    def segments(self) -> list[StoredSegment]:
        """All of them; the last one is the active segment."""
        ends = [*self._bases[1:], self.end_offset]
        return [
            StoredSegment(segment.base_offset, end, segment.size_bytes, segment.max_timestamp[0])
            for segment, end in zip(self._segments, ends, strict=True)
        ]

    def first_timestamp_ms(self, base_offset: int) -> int:
        """The largest timestamp of the first batch that has one, of the segment with this base. -1: there is none."""
        first_ms = self._segments[self._bases.index(base_offset)].first_timestamp_ms
        return -1 if first_ms is None else first_ms

    def whole_segments_end(self, offset: int) -> int:
        """Where the segments end that lie wholly below `offset`; `first_stored_offset` if none does."""
        return self._bases[max(bisect_right(self._bases, offset) - 1, 0)]

    def delete_segments(self, end_offset: int) -> None:
        """Delete the segments up to `end_offset`, which is `whole_segments_end` of an offset at or below the log start.

        They hold what producers wrote there. So a producer snapshot between `end_offset` and the log start is durable
        already (`producer_snapshot.ensure_snapshot`).
        """
        snapshot = max(x for x in self.snapshot_offsets() if x <= self.start_offset)
        assert end_offset <= snapshot, f"no snapshot of the producers at or above {end_offset}"
        self.install_offset = snapshot
        while self._bases[0] < end_offset:
            self._remove_segment(0)
        self._remove_snapshots_below(snapshot)

    # -- producer snapshots (their content is producer_state's)

    def snapshot_offsets(self) -> list[int]:
        """Offsets of the producer snapshots in the folder, rising."""
        names = self.disk.list(self.directory)
        stems = (name.removesuffix(SNAPSHOT_SUFFIX) for name in names if name.endswith(SNAPSHOT_SUFFIX))
        return [int(stem) for stem in stems if stem.isdecimal()]

    def newest_snapshot_offset(self, *, below: int | None = None, except_for: int = -1) -> int:
        """At or below `below`. 0: there is none, as if nothing had been written yet."""
        limit = self.end_offset if below is None else below
        return max((x for x in self.snapshot_offsets() if x <= limit and x != except_for), default=0)

    def snapshot_path(self, offset: int) -> str:
        return segment_path(self.directory, offset, SNAPSHOT_SUFFIX)

    def remove_snapshot(self, offset: int) -> None:
        """Remove the snapshot for this offset, if there is one; not durably. The only one stays that lies at or above
        `rewritten_end` and that no power cut takes away, as it does with those above the end that it leaves."""
        durable = max(self.flushed_end.end_offset, self.active_segment_base)
        if offset >= self.rewritten_end > self.newest_snapshot_offset(below=durable, except_for=offset):
            return
        path = self.snapshot_path(offset)
        if self.disk.exists(path):
            self.disk.unlink(path)

    def remove_snapshots_above(self, offset: int) -> None:
        for snapshot in self.snapshot_offsets():
            if snapshot > offset:
                self.disk.unlink(self.snapshot_path(snapshot))

    def _remove_snapshots_below(self, offset: int) -> None:
        for snapshot in self.snapshot_offsets():
            if snapshot < offset:
                self.disk.unlink(self.snapshot_path(snapshot))

    # -- the end

    def close(self, *, is_clean: bool) -> None:
        """Close the files. A clean close makes everything durable first, the indexes of the active segment included."""
        if is_clean:
            self._segments[-1].file.trim()
            self.flush()
            self._segments[-1].write_index_files(is_sealed=False)
            self.disk.flush_directory(self.directory)
        for segment in self._segments:
            segment.release_file()
