"""Opening logs: everything that must hold again after any crash.

What recovery accepts and why is replication.md sections 1 and 2; the README of this package has the table.
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
from storage.partition_folder import (
    check_topic_id,
)
from storage.producer_snapshot import SnapshotDamagedError, read_snapshot
from storage.segment import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    Segment,
    segment_path,
)

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
    """Open a log and make it agree with itself again.

    `recorded` is the end that the journal calls durable, `log_start` the recorded log start, `is_clean`
    whether the clean-shutdown marker was there. Raises WrongTopicError, UnfinishedLogError, and
    CorruptLogError where what was durable is bad: then segments and lineage are as they were.
    """
    check_topic_id(disk, directory, group.topic_id)
    recovery = _Recovery(disk, directory, config, recorded or NOTHING_FLUSHED, log_start)
    return recovery.run(group, is_clean)


class _Damage(NamedTuple):
    """The first place where a segment stops being a log."""

    segment: Segment
    position: int
    message: str


class _AfterHole(NamedTuple):
    """The batch accepted last, where its base offset left a hole before it."""

    position: int
    #: One past the last offset before the hole.
    hole_start: int
    #: Base offset that its successor would have if there were no hole.
    end_without_hole: int


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
        #: Sealed ones above the recorded end, accepted batch by batch.
        self._scanned: list[Segment] = []
        self._install_offset = 0
        #: Where padding follows the last batch, if any does.
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
            # Not flushed: zeros that come back are found again.
            self._segments[-1].cut_padding(self._padded_from)
        self._settle()
        self._cut_rows()
        return self._finish(group)

    def _settle(self) -> None:
        """Make durable what a killed process may have left as seen only: names, and a file cut short.

        A log needs nothing that is as it was created, or has grown, and was recorded, since its last segment was made.
        """
        base_offset = self._segments[-1].base_offset
        if self._recorded.is_settled and (base_offset == 0 or base_offset < self._recorded.end_offset):
            return
        self._disk.flush_directory(self._directory)
        self._segments[-1].file.flush()

    def _cut_rows(self) -> None:
        """Drop rows that were written after data that the crash took."""
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
        """A log that begins above its recorded log start was installed there (and died before that was recorded), with
        a snapshot. Otherwise its first segments are missing."""
        base_offset = self._segments[0].base_offset
        snapshot = segment_path(self._directory, base_offset, SNAPSHOT_SUFFIX)
        is_installed = self._config.may_have_holes or self._disk.exists(snapshot)
        if base_offset > self._log_start and not is_installed:
            raise CorruptLogError(
                self._directory, 0, f"nothing from the log start {self._log_start} to {base_offset}"
            )

    def _check_producers(self) -> None:
        """What producers wrote below the first segment cannot be replayed: a snapshot at or above it must be whole, or
        a retry would be appended a second time (replication.md section 8). Where holes may be, there may never have
        been anything below."""
        base_offset = self._segments[0].base_offset
        if self._log_start == 0 or base_offset == 0 or self._config.may_have_holes:
            return
        if self._newest_snapshot(base_offset, self._end_offset) is None:
            raise CorruptLogError(
                self._directory, 0, f"no whole snapshot of the producers at or above {base_offset}"
            )

    def _newest_snapshot(self, from_offset: int, to_offset: int) -> int | None:
        """Offset of the newest whole snapshot of the producers between the two."""
        for name in reversed(self._disk.list(self._directory)):
            stem = name.removesuffix(SNAPSHOT_SUFFIX)
            if name.endswith(SNAPSHOT_SUFFIX) and from_offset <= int(stem) <= to_offset:
                with suppress(SnapshotDamagedError):
                    read_snapshot(self._disk, f"{self._directory}/{name}", int(stem))
                    return int(stem)
        return None

    def _find_segments(self) -> None:
        """Open every segment; drop what a crash left half done: of the segments below the log start those that a
        snapshot of the producers stands for."""
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
            # A killed process may have left the snapshot's name as seen only.
            self._disk.flush_directory(self._directory)
        for at, base_offset in enumerate(bases):
            file = self._disk.open(segment_path(self._directory, base_offset))
            segment = Segment(
                self._disk, self._directory, base_offset, file, self._config.index_interval_bytes
            )
            # An empty sealed segment is what a crash in `Log.skip_to` leaves behind.
            is_last = at == len(bases) - 1
            if not is_last and (file.size == 0 or bases[at + 1] <= self._install_offset):
                segment.remove()
            else:
                self._segments.append(segment)

    def _check_segments(self, is_as_recorded: bool) -> _Damage | None:
        """Accept segments from the first on; returns the first damage, if any."""
        next_bases = [segment.base_offset for segment in self._segments[1:]]
        for segment, next_base in zip_longest(self._segments, next_bases):
            # Where holes may be, a gap between segments is how one is recorded (Log.skip_to).
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
        """Whether the clean shutdown speaks of this log: its index files and its tail show the end that was recorded.

        Otherwise it was not open when the node stopped (power was lost, or the process killed, and then came a run
        that had not heard of its topic), and may be torn, or not durable yet; or its tail is no log.
        """
        active = self._segments[-1]
        with suppress(CorruptLogError):
            if active.end_offset == self._recorded.end_offset:
                return True
        active.forget()
        return False

    def _scan(self, segment: Segment, next_base: int | None) -> _Damage | None:
        """Accept the batches of a segment one by one. `next_base`: where the next segment begins, if one does."""
        file, position, size = segment.file, 0, segment.size_bytes
        block_start, block = 0, memoryview(b"")
        after_hole: _AfterHole | None = None
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
                return self._blame(segment, position, message, header, after_hole)
            segment.note(header, position)
            after_hole = None
            if header.base_offset > self._end_offset:
                end_without_hole = self._end_offset + header.last_offset_delta + 1
                after_hole = _AfterHole(position, self._end_offset, end_without_hole)
            position += header.size_bytes
            self._end_offset = header.last_offset + 1
        if next_base not in (None, self._end_offset) and not self._config.may_have_holes:
            return _Damage(
                segment, position, f"a segment up to {self._end_offset}, before one at {next_base}"
            )
        segment.mark_scanned()
        return None

    def _blame(
        self,
        segment: Segment,
        position: int,
        message: str,
        header: BatchHeader,
        after_hole: _AfterHole | None,
    ) -> _Damage:
        """The damage is where the fault shows, unless the batch before it was accepted behind a hole and the two
        would fit without: then it is the base offset of that one that rose, and it is given back."""
        if after_hole is None or header.base_offset != after_hole.end_without_hole:
            return _Damage(segment, position, message)
        end_offset, self._end_offset = self._end_offset, after_hole.hole_start
        return _Damage(
            segment, after_hole.position, f"a batch up to {end_offset}, before one at {header.base_offset}"
        )

    def _fault(self, segment: Segment, next_base: int | None, header: BatchHeader) -> str | None:
        """Why this batch cannot be the next one (replication.md section 1). Base offset, length, epoch and
        magic lie outside the checksum: this is what protects them."""
        if header.magic != MAGIC:
            return f"magic {header.magic}"
        if header.last_offset_delta < 0 or header.base_offset < self._end_offset:
            return f"base offset {header.base_offset} after end {self._end_offset}"
        if header.base_offset > self._end_offset and not self._config.may_have_holes:
            return f"nothing from {self._end_offset} to {header.base_offset}"
        if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            return f"base offset {header.base_offset} in the segment of {segment.base_offset}"
        if next_base is not None and header.last_offset >= next_base:
            return f"base offset {header.base_offset} below the segment of {next_base}"
        if next_base is None and self._end_offset < self._recorded.end_offset < header.last_offset + 1:
            # The log once ended there, so a batch of this (never compacted) segment did.
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
        """Drop everything from the damage on, durably. It lies in the last segment: a bad sealed one is rot."""
        segment = damage.segment
        assert segment is self._segments[-1]
        segment.mark_scanned()
        segment.cut(damage.position, self._end_offset)

    def _finish(self, group: GroupKey) -> Log:
        """Everything accepted becomes durable: after a killed process it may be in the page cache only."""
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
            # A flush may have failed, and the process have ended: then the page cache shows, and calls clean, what
            # never reached the disk, and to flush it would do nothing. So it is written again.
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
    """Whether the file ends in zeros from there on, as a padded append leaves them."""
    left_bytes = file.size - position
    return left_bytes < BLOCK_BYTES and not any(file.read(position, left_bytes))
