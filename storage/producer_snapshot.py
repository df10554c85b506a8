"""Producer snapshots: what `ProducerStates` knows at an offset, as a file.

The file is Kafka's `.snapshot`, version 1: int16 version, uint32 CRC-32C (of all that follows), then an array of
(producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64,
coordinator epoch int32, first offset of the open transaction int64).

Kafka keeps one batch per producer. A new leader that knows only that one refuses the retry of the four before it. The
client then begins a new epoch and sends the same records, which are written twice. So our file has a second array
behind Kafka's, under the same checksum: (producer id int64, int8 count, count times last sequence int32, last offset
int64, offset delta int32, timestamp int64), all batches that are kept, oldest first. A third array names the producers
whose newest entry is a marker: (producer id int64, offset int64 of the marker). Behind that comes, if it is known, the
base offset int64 of the active segment, and its aborted index as in `.txnindex`. Kafka's reader stops at the end of its
array.

A snapshot cannot be rebuilt once the bytes below it are gone, or compaction has removed batches there
(`Log.rewritten_end`); the rules are in replication.md section 8. One from below that remains for installs, and may
speak of a transaction as open whose marker is gone (`load_producers`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from protocol.errors import KafkaError
from protocol.records.batch import BatchHeader
from protocol.records.crc import crc32c
from storage.aborted_index import AbortedIndex, AbortedIndexDamagedError
from storage.disk import Disk
from storage.errors import CorruptLogError
from storage.log import Log
from storage.producer_state import BATCHES_KEPT, BatchInfo, ProducerEntry, ProducerStates
from storage.small_files import read_file, replace_file

_VERSION = 1
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_OLDER = struct.Struct(">qb")
_BATCH = struct.Struct(">iqiq")
_MARKER = struct.Struct(">qq")
_SEGMENT = struct.Struct(">q")

_NO_BATCH = BatchInfo(-1, -1, 0, -1)


class Snapshot(NamedTuple):
    """A state as it was at one time, encoded: a tenth of its size in memory."""

    end_offset: int
    data: bytes

    @classmethod
    def of(
        cls, states: ProducerStates, aborted_in_segment: tuple[int, AbortedIndex] | None = None
    ) -> Snapshot:
        return cls(states.end_offset, encode_snapshot(states, aborted_in_segment))


class SnapshotDamagedError(Exception):
    """The bytes are no whole snapshot."""


def encode_snapshot(
    states: ProducerStates, aborted_in_segment: tuple[int, AbortedIndex] | None = None
) -> bytes:
    """The state as a `.snapshot` file for offset `states.end_offset`. `aborted_in_segment`: the base offset of the
    active segment, and what was aborted in it up to that offset; None: not known."""
    entries = bytearray(_COUNT.pack(len(states.entries)))
    older, markers = bytearray(), bytearray()
    older_count = 0
    for producer_id, entry in states.entries.items():
        last = entry.batches[-1] if entry.batches else _NO_BATCH
        entries += _ENTRY.pack(
            producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        if len(entry.batches) > 1 or (entry.batches and last.timestamp_ms != entry.last_timestamp_ms):
            # The first array holds the time of the producer's last marker or batch. Where a marker is later, the time
            # of the last batch would get lost without this.
            kept = entry.batches
            older += _OLDER.pack(producer_id, len(kept))
            older += b"".join(_BATCH.pack(*batch) for batch in kept)
            older_count += 1
        if entry.last_offset > last.last_offset:
            markers += _MARKER.pack(producer_id, entry.last_offset)
    body = bytes(entries) + _COUNT.pack(older_count) + bytes(older)
    body += _COUNT.pack(len(markers) // _MARKER.size) + bytes(markers)
    if aborted_in_segment is not None:
        base_offset, aborted = aborted_in_segment
        body += _SEGMENT.pack(base_offset) + aborted.encode()
    return _HEADER.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes | memoryview, offset: int) -> ProducerStates:
    """The inverse, for a snapshot taken at `offset`. Raises SnapshotDamagedError for bytes that are no snapshot, or not
    one of that offset."""
    body = bytes(data[_HEADER.size :])
    try:
        version, checksum = _HEADER.unpack_from(data)
        if version != _VERSION or crc32c(body) != checksum:
            raise SnapshotDamagedError(f"version {version} or checksum is wrong")
        return _decode_body(body, offset)
    except (struct.error, AbortedIndexDamagedError) as error:
        raise SnapshotDamagedError(str(error)) from error


def _decode_body(body: bytes, offset: int) -> ProducerStates:
    states = ProducerStates()
    states.end_offset = offset
    (count,) = _COUNT.unpack_from(body)
    position = _COUNT.size
    for _ in range(_checked_count(count, len(body) - position, _ENTRY.size)):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator, first = (
            _ENTRY.unpack_from(body, position)
        )
        entry = ProducerEntry(epoch, coordinator, first, timestamp_ms)
        if last_sequence >= 0:
            entry.batches.append(_checked_batch((last_sequence, last_offset, delta, timestamp_ms), offset))
            entry.last_offset = last_offset
        if first >= offset:
            raise SnapshotDamagedError(
                f"a transaction of producer {producer_id} at {first}, taken at {offset}"
            )
        states.adopt(producer_id, entry)
        position += _ENTRY.size
    if position < len(body):
        position = _decode_older(body, position, states)
    if position < len(body):
        position = _decode_markers(body, position, states)
    if position < len(body):
        states.aborted_in_segment = _decode_aborted(body, position, offset)
    return states


def _decode_older(body: bytes, position: int, states: ProducerStates) -> int:
    """Returns the position behind it."""
    (count,) = _COUNT.unpack_from(body, position)
    position += _COUNT.size
    for _ in range(_checked_count(count, len(body) - position, _OLDER.size)):
        producer_id, batch_count = _OLDER.unpack_from(body, position)
        if not 0 < batch_count <= BATCHES_KEPT or producer_id not in states.entries:
            raise SnapshotDamagedError(f"{batch_count} batches of producer {producer_id}")
        position += _OLDER.size
        states.entries[producer_id].batches = batches = []
        for _ in range(batch_count):
            batches.append(_checked_batch(_BATCH.unpack_from(body, position), states.end_offset))
            position += _BATCH.size
    return position


def _decode_markers(body: bytes, position: int, states: ProducerStates) -> int:
    """Returns the position behind them."""
    (count,) = _COUNT.unpack_from(body, position)
    position += _COUNT.size
    for _ in range(_checked_count(count, len(body) - position, _MARKER.size)):
        producer_id, marker_offset = _MARKER.unpack_from(body, position)
        entry = states.entries.get(producer_id)
        if entry is None or not entry.last_offset < marker_offset < states.end_offset:
            raise SnapshotDamagedError(f"a marker of producer {producer_id} at {marker_offset}")
        entry.last_offset = marker_offset
        position += _MARKER.size
    return position


def _decode_aborted(body: bytes, position: int, offset: int) -> tuple[int, AbortedIndex]:
    """The base offset of a segment, and what was aborted in it below `offset`: the rest of the body."""
    (base_offset,) = _SEGMENT.unpack_from(body, position)
    index = AbortedIndex.decode(body[position + _SEGMENT.size :])
    if not (0 <= base_offset <= offset and index.lies_within(base_offset, offset)):
        raise SnapshotDamagedError(f"aborted transactions of segment {base_offset}, taken at {offset}")
    return base_offset, index


def _checked_count(count: int, left_bytes: int, size_bytes: int) -> int:
    if not 0 <= count <= left_bytes // size_bytes:
        raise SnapshotDamagedError(f"{count} producers in {left_bytes} bytes")
    return count


def _checked_batch(fields: tuple[int, ...], offset: int) -> BatchInfo:
    """Of a snapshot that was taken at `offset`."""
    batch = BatchInfo(*fields)
    if batch.last_sequence < 0 or not 0 <= batch.offset_delta <= batch.last_offset < offset:
        raise SnapshotDamagedError(f"{batch} in a snapshot that was taken at {offset}")
    return batch


def load_producers(log: Log, end_offset: int | None = None) -> ProducerStates:
    """The state at `end_offset` (the log end by default): the newest whole snapshot at or below it, and a replay of the
    batches above that. With that of the log end the log also knows the aborted transactions of its active segment.
    Raises CorruptLogError: corruption must not pass for what a producer wrote."""
    end = log.end_offset if end_offset is None else end_offset
    states = newest_snapshot(log, end)
    snapshot_offset = states.end_offset
    if snapshot_offset < log.rewritten_end:
        if end < log.end_offset:
            _close_ended(log, states)
        elif end >= log.rewritten_end:
            raise _no_snapshot_left(log)
    for header, batch in log.checked_batches(max(snapshot_offset, log.first_stored_offset), end):
        if header.base_offset >= snapshot_offset:
            replay(log, states, batch, header)
    states.end_offset = end
    of_snapshot, states.aborted_in_segment = states.aborted_in_segment, None
    replayed = states.take_aborted()
    if end == log.end_offset:
        log.aborted.restore(log.active_segment_base, snapshot_offset, of_snapshot, replayed)
    return states


def _close_ended(log: Log, states: ProducerStates) -> None:
    """Of a state from below `Log.rewritten_end`, leave only those transactions open that still are in the next snapshot
    at or above that. The marker of another may be gone, here or where the rest of the log is copied from. Where data of
    it is left with its bit, so is the marker, and the data opens it again. Raises CorruptLogError."""
    if states.first_open_offset is None:
        return
    later = next(_whole_snapshots(log, (x for x in log.snapshot_offsets() if x >= log.rewritten_end)), None)
    if later is None:
        raise _no_snapshot_left(log)
    states.close_all_but(later.open_before(states.end_offset))


def _no_snapshot_left(log: Log) -> CorruptLogError:
    return CorruptLogError(
        log.directory, 0, f"no whole snapshot of the producers at or above {log.rewritten_end}"
    )


def replay(log: Log, states: ProducerStates, batch: memoryview, header: BatchHeader) -> None:
    """A checked batch of the log goes into the state. Raises CorruptLogError for a marker that cannot be read."""
    try:
        states.record_stored(batch, header)
    except KafkaError as error:
        raise CorruptLogError(log.directory, header.base_offset, error.message or "") from error


def newest_snapshot(log: Log, offset: int) -> ProducerStates:
    """The state of the newest whole snapshot at or below `offset`; where the whole log is here, an empty one will do.
    Raises CorruptLogError: what was below the log is lost."""
    states = _read_newest(log, offset)
    first_offset = log.first_stored_offset
    if states.end_offset < first_offset:
        raise CorruptLogError(log.directory, 0, f"no whole snapshot of the producers below {first_offset}")
    return states


def _read_newest(log: Log, offset: int) -> ProducerStates:
    # Without a whole one, an older one and a longer replay give the same state.
    offsets = (found for found in reversed(log.snapshot_offsets()) if found <= offset)
    return next(_whole_snapshots(log, offsets), ProducerStates())


def _whole_snapshots(log: Log, offsets: Iterable[int]) -> Iterator[ProducerStates]:
    """In this order, without those that are damaged."""
    for offset in offsets:
        with suppress(SnapshotDamagedError):
            yield read_snapshot(log.disk, log.snapshot_path(offset), offset)


def read_snapshot(disk: Disk, path: str, offset: int) -> ProducerStates:
    """The snapshot for `offset` at `path`. Raises SnapshotDamagedError."""
    return decode_snapshot(read_file(disk, path), offset)


def write_snapshot(log: Log, snapshot: Snapshot, high_watermark: int) -> None:
    """Write it durably as the snapshot for its `end_offset`.

    Only committed state is written. A snapshot of a suffix that is truncated later would answer "duplicate" for a write
    that never happened.
    """
    assert snapshot.end_offset <= high_watermark, f"{snapshot.end_offset} above {high_watermark}"
    replace_file(log.disk, log.snapshot_path(snapshot.end_offset), snapshot.data)
    log.disk.flush_directory(log.directory)


def ensure_snapshot(log: Log, end_offset: int, high_watermark: int) -> None:
    """Before the segments up to `end_offset` are deleted: have a snapshot on disk, durably, for an offset between
    `end_offset` and the log start.

    A snapshot above the log start is not enough. What is committed need not be durable here yet: a loss of power
    takes it, and the snapshot with it. And a follower that is installed needs the state where it begins
    (replication.md section 7).
    """
    assert end_offset <= log.start_offset <= high_watermark
    if not has_durable_snapshot(log, end_offset, log.start_offset):
        write_snapshot(log, Snapshot.of(load_producers(log, end_offset)), high_watermark)


def has_durable_snapshot(log: Log, from_offset: int, to_offset: int) -> bool:
    """Whether there is one for an offset from `from_offset` to `to_offset`. It is durable then: whoever destroys what a
    replay would need asks this before. Blocks for a flush."""
    # A process that was killed may have left a snapshot whose name is not durable.
    log.disk.flush_directory(log.directory)
    return any(from_offset <= snapshot <= to_offset for snapshot in log.snapshot_offsets())


def remove_needless_snapshots(log: Log) -> None:
    """After compaction: those that no start needs. One at or above `Log.rewritten_end` is, and the one with which an
    install may begin, at or below the log start."""
    offsets = log.snapshot_offsets()
    first = max((offset for offset in offsets if offset <= log.start_offset), default=-1)
    last = min((offset for offset in offsets if offset >= log.rewritten_end), default=-1)
    for offset in offsets:
        if first < offset < last:
            log.remove_snapshot(offset)
