"""Opening a log after any crash, so that all its invariants hold again.

What recovery accepts, and why, stands in replication.md, sections 1 and 2. The README of this package has the table.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import zip_longest
from typing import NamedTuple

from protocol.records.batch import HEADER_BYTES, MAGIC, MIN_LENGTH, BatchHeader, check_crc, parse_header
from storage.disk import BLOCK_BYTES, Disk, File
from storage.errors import CorruptLogError
from storage.lineage import Lineage
from storage.log import Log
from storage.log_types import NOTHING_FLUSHED, FlushedEnd, GroupKey, LogConfig
from storage.partition_folder import check_topic_id
from storage.producer_snapshot import SnapshotDamagedError, read_snapshot
from storage.segment import Segment
from storage.segment_files import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    segment_path,
)
from storage.segment_swap import discard_build, finish_swap

#: Bytes read at once while scanning. A larger batch is read on its own.
SCAN_BLOCK_BYTES = 1 << 20


def open_log(
    disk: Disk,
    directory: str,
    group: GroupKey,
    config: LogConfig,
    *,
    recorded: FlushedEnd | None,
    log_start: int,
    is_clean: bool,
) -> Log:
    """Open a log. What a crash left half done is finished or undone.

    `recorded` is the end that the journal calls durable, `log_start` the recorded log start, `is_clean` whether the
    clean-shutdown marker was there. Raises WrongTopicError, UnfinishedLogError, and CorruptLogError if what was durable
    is bad: then segments and lineage are as they were.
    """
    check_topic_id(disk, directory, group.topic_id)
    discard_build(disk, directory)
    finish_swap(disk, directory)
    recovery = _Recovery(disk, directory, config, recorded or NOTHING_FLUSHED, log_start)
    return recovery.run(group, is_clean)


class _Damage(NamedTuple):
    """The first position of a segment at which there is no batch that can be accepted."""

    segment: Segment
    position: int
    message: str


class _Recovery:
    """One opening of one log."""

    def __init__(
        self, disk: Disk, directory: str, config: LogConfig, recorded: FlushedEnd, log_start: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._recorded = recorded
        self._log_start = log_start
        self._segments: list[Segment] = []
        #: Sealed segments above the recorded end, which were accepted batch by batch.
        self._scanned: list[Segment] = []
        self._install_offset = 0
        #: Where padding follows the last batch. None: there is no padding.
        self._padded_from: int | None = None
        #: One past the last offset accepted so far.
        self._end_offset = 0

    def run(self, group: GroupKey, is_clean: bool) -> Log:
        self._lineage = Lineage.open(
            self._disk, self._directory, self._recorded.row_count, is_settled=self._recorded.is_settled
        )
        self._find_segments()
        self._check_start()
        is_as_recorded = is_clean and self._ends_as_recorded()
        damage = self._check_segments(is_as_recorded)
        # A segment exists only when everything below it is durable: its name is as good as a recorded end.
        durable_end = max(self._recorded.end_offset, self._log_start, self._segments[-1].base_offset)
        if self._end_offset < durable_end:
            raise self._corruption(damage, durable_end)
        self._check_producers()
        self._lineage.make_whole()
        if damage is not None:
            self._cut(damage)
        elif self._padded_from is not None:
            # Not flushed: if a crash brings the zeros back, the next recovery finds them again.
            self._segments[-1].cut_padding(self._padded_from)
        self._flush_leftovers()
        self._cut_rows()
        return self._finish(group)

    def _flush_leftovers(self) -> None:
        """Make durable what a process that was killed may have left in the page cache only: names, and a cut of a file.

        Nothing of the kind is left if the log is as it was created, or if it has grown since its last segment was made
        and that was recorded.
        """
        base_offset = self._segments[-1].base_offset
        if self._recorded.is_settled and (base_offset == 0 or base_offset < self._recorded.end_offset):
            return
        self._disk.flush_directory(self._directory)
        self._segments[-1].file.flush()

    def _cut_rows(self) -> None:
        """Drop rows that were written behind data that is lost."""
        kept = self._lineage.rows_before_or_at(self._end_offset)
        if kept < len(self._lineage.rows):
            # The end of the data is durable first (Log.truncate says why).
            self._segments[-1].file.flush()
            self._lineage.cut(kept)

    def _corruption(self, damage: _Damage | None, durable_end: int) -> CorruptLogError:
        durable = f"durable up to {durable_end} once"
        if damage is None:
            return CorruptLogError(self._directory, 0, f"the log ends at {self._end_offset}; {durable}")
        return CorruptLogError(damage.segment.path, damage.position, f"{damage.message}; {durable}")

    def _check_start(self) -> None:
        """A log that begins above its recorded log start was installed there, with a snapshot, by a process that died
        before it recorded that. Without a snapshot its first segments are missing."""
        base_offset = self._segments[0].base_offset
        snapshot = segment_path(self._directory, base_offset, SNAPSHOT_SUFFIX)
        if base_offset > self._log_start and not self._disk.exists(snapshot):
            raise CorruptLogError(
                self._directory, 0, f"nothing from the log start {self._log_start} to {base_offset}"
            )

    def _check_producers(self) -> None:
        """What producers wrote below the first segment cannot be replayed. So a snapshot at or above it must be
        whole, or a retry would be appended a second time (replication.md section 8)."""
        base_offset = self._segments[0].base_offset
        if self._log_start == 0 or base_offset == 0:
            return
        if self._newest_snapshot(base_offset, self._end_offset) is None:
            raise CorruptLogError(
                self._directory, 0, f"no whole snapshot of the producers at or above {base_offset}"
            )

    def _newest_snapshot(self, from_offset: int, to_offset: int) -> int | None:
        """Offset of the newest whole producer snapshot between the two."""
        for name in reversed(self._disk.list(self._directory)):
            stem = name.removesuffix(SNAPSHOT_SUFFIX)
            if name.endswith(SNAPSHOT_SUFFIX) and from_offset <= int(stem) <= to_offset:
                with suppress(SnapshotDamagedError):
                    read_snapshot(self._disk, f"{self._directory}/{name}", int(stem))
                    return int(stem)
        return None

    def _find_segments(self) -> None:
        """Open every segment, and finish what a crash left half done. Segments below the log start are deleted if
        there is a producer snapshot for them."""
        names = self._disk.list(self._directory)
        for name in names:
            path = f"{self._directory}/{name}"
            if name.endswith(DELETED_SUFFIX):
                self._disk.remove_later(path)
            elif name.endswith(TEMPORARY_SUFFIX):
                self._disk.unlink(path)
        bases = [int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX)]
        if not bases:
            raise CorruptLogError(self._directory, 0, "no segment at all")
        self._install_offset = self._newest_snapshot(bases[0], self._log_start) or bases[0]
        if len(bases) > 1 and bases[1] <= self._install_offset:
            # A process that was killed may have left a snapshot whose name is not durable.
            self._disk.flush_directory(self._directory)
        for at, base_offset in enumerate(bases):
            file = self._disk.open(segment_path(self._directory, base_offset))
            segment = Segment(
                self._disk, self._directory, base_offset, file, self._config.index_interval_bytes
            )
            is_last = at == len(bases) - 1
            if not is_last and bases[at + 1] <= self._install_offset:
                segment.remove()
            else:
                self._segments.append(segment)

    def _check_segments(self, is_as_recorded: bool) -> _Damage | None:
        """Accept segments from the first on; returns the first damage, if any."""
        next_bases = [segment.base_offset for segment in self._segments[1:]]
        for segment, next_base in zip_longest(self._segments, next_bases):
            self._end_offset = segment.base_offset
            if next_base is not None:
                if next_base <= self._recorded.end_offset:
                    segment.release_file()
                    continue
            elif is_as_recorded:
                self._end_offset = segment.end_offset
                continue
            segment.delete_index_files()
            damage = self._scan(segment, next_base)
            if damage is not None:
                return damage
            if next_base is not None:
                segment.write_index_files(is_sealed=True)
                self._scanned.append(segment)
        return None

    def _ends_as_recorded(self) -> bool:
        """Whether the clean shutdown covers this log: its index files and its tail show the end that was recorded.

        If not, the log was not open when the node stopped: a process died, and the next one stopped cleanly before it
        had heard of the topic. Then the log may be torn, or not durable. Or its tail is corrupt.
        """
        active = self._segments[-1]
        with suppress(CorruptLogError):
            if active.end_offset == self._recorded.end_offset:
                return True
        active.forget_batches()
        return False

    def _scan(self, segment: Segment, next_base: int | None) -> _Damage | None:
        """Accept the batches of a segment one by one. `next_base`: where the next segment begins, if there is one."""
        file, position, size = segment.file, 0, segment.size_bytes
        block_start, block = 0, memoryview(b"")
        while position < size:
            if position + HEADER_BYTES > block_start + len(block):
                block_start, block = position, file.read(position, SCAN_BLOCK_BYTES)
            header = parse_header(block, position - block_start) if len(block) >= HEADER_BYTES else None
            if header is None or not MIN_LENGTH <= header.length <= size - position - 12:
                if next_base is None and _is_padding(file, position):
                    self._padded_from = position
                    break
                what = "half a batch header" if header is None else f"a batch of {header.length} bytes"
                return _Damage(segment, position, what)
            if position + header.size_bytes > block_start + len(block):
                wanted = max(header.size_bytes, SCAN_BLOCK_BYTES)
                block_start, block = position, file.read(position, wanted)
            message = self._fault(segment, next_base, header) or self._checksum_fault(
                header, block, position - block_start
            )
            if message is not None:
                return _Damage(segment, position, message)
            segment.note_batch(header, position)
            position += header.size_bytes
            self._end_offset = header.last_offset + 1
        if next_base not in (None, self._end_offset):
            return _Damage(
                segment, position, f"a segment up to {self._end_offset}, before one at {next_base}"
            )
        segment.mark_scanned()
        return None

    def _fault(self, segment: Segment, next_base: int | None, header: BatchHeader) -> str | None:
        """Why this batch cannot be the next one (replication.md section 1). Base offset, length, epoch and magic lie
        outside the checksum: these checks protect them."""
        if header.magic != MAGIC:
            return f"magic {header.magic}"
        if header.last_offset_delta < 0 or header.base_offset < self._end_offset:
            return f"base offset {header.base_offset} after end {self._end_offset}"
        if header.base_offset > self._end_offset:
            return f"nothing from {self._end_offset} to {header.base_offset}"
        if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return f"base offset {header.base_offset} in the segment of {segment.base_offset}"
        if next_base is not None and header.last_offset >= next_base:
            return f"base offset {header.base_offset} below the segment of {next_base}"
        if next_base is None and self._end_offset < self._recorded.end_offset < header.last_offset + 1:
            # The log once ended there, so a batch of this segment, which was never compacted, ended there.
            return f"no batch ends at the recorded end {self._recorded.end_offset}"
        lineage = self._lineage
        if header.leader_epoch < 0 or lineage.term_at_offset(header.base_offset) != header.leader_epoch:
            return f"epoch {header.leader_epoch} at offset {header.base_offset}"
        if lineage.rows_before_or_at(header.base_offset) != lineage.rows_before_or_at(header.last_offset):
            return f"a lineage row inside the batch at {header.base_offset}"
        return None

    def _checksum_fault(self, header: BatchHeader, block: memoryview, at: int) -> str | None:
        return None if check_crc(block, at, header) else f"checksum of the batch at {header.base_offset}"

    def _cut(self, damage: _Damage) -> None:
        """Drop everything from the damage on, durably. It lies in the last segment: a sealed one was durable, so damage
        there is corruption."""
        segment = damage.segment
        assert segment is self._segments[-1]
        segment.mark_scanned()
        segment.cut(damage.position, self._end_offset)

    def _finish(self, group: GroupKey) -> Log:
        """Make everything durable that was accepted: after a process was killed it may lie in the page cache only."""
        log = Log(
            self._disk,
            self._directory,
            group,
            self._config,
            lineage=self._lineage,
            segments=self._segments,
            start_offset=max(self._log_start, self._segments[0].base_offset),
            install_offset=max(self._install_offset, self._segments[0].base_offset),
            end_offset=self._end_offset,
            flushed_end=self._recorded,
        )
        if log.dirty():
            # Written again: if a flush failed and the process ended, the page cache holds as clean what never reached
            # the disk, and a flush alone would do nothing.
            for segment in self._scanned:
                segment.write_again(self._recorded.end_offset)
                segment.file.flush()
                segment.release_file()
            self._segments[-1].write_again(self._recorded.end_offset)
            log.flush()
        log.flushed_end = log.end
        log.remove_snapshots_above(log.end_offset)
        return log


def _is_padding(file: File, position: int) -> bool:
    """Whether the rest of the file is zeros, as a padded append leaves them."""
    left_bytes = file.size - position
    return left_bytes < BLOCK_BYTES and not any(file.read(position, left_bytes))
