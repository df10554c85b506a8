"""Producer state maintenance of one partition: snapshots, and the expiration of idle producers.

The append path records every batch in the producer state. This module does what can be done less often.

A snapshot is captured when the log begins a new segment (replication.md section 8), and again when it has grown by so
many batches or bytes. It is written when its offset is committed. Three events replay the log above the newest
snapshot on the loop: opening the log, truncating it after a fail-over, and deleting its oldest segment. A whole
segment of 1 GiB of batches of one record would take 30 seconds."""

from __future__ import annotations

import structlog

from storage.disk import DiskFullError
from storage.log import Log
from storage.producer_snapshot import Snapshot, write_snapshot
from storage.producer_state import ProducerStates

logger = structlog.get_logger()

#: A replay of so many batches takes 50 ms.
BATCHES_BETWEEN = 10_000
#: ... and of half a segment, 512 MiB by default, 0.3 s, however large the batches. (By an eighth, producers of 1 MB
#: batches were 4 and 7 % slower: the loop waits for a snapshot to be durable.)
SEGMENT_PART = 2


class ProducerStateMaintenance:
    """Of one partition and one log. Its `ProducerStates` are the replica's own and come with each call."""

    def __init__(self, log: Log) -> None:
        #: Base offset of the active segment when this was last told of an append.
        self.active_base = log.active_segment_base
        #: The producer state as it was, waiting for its snapshot: only committed state may be written.
        self.pending: Snapshot | None = None
        #: Batches since the last capture, and the size of the active segment then. What the log held before counts as
        #: new: nobody knows where its last snapshot is.
        self._batches = 0
        self._size_bytes = 0
        #: Producer id -> its last offset, and when (loop time) that was first seen to be the last.
        self._seen: dict[int, tuple[int, float]] = {}

    def batches_appended(self, log: Log, states: ProducerStates, batches: int) -> None:
        """The log has grown by so many batches; the state is as of its end."""
        self._batches += batches
        if log.active_segment_base != self.active_base:
            self.active_base = log.active_segment_base
            self.capture_state(log, states)
            if self.active_base > log.start_offset:
                # A segment that begins with a snapshot is how recovery knows the first one of an install.
                log.remove_snapshot(self.active_base)
        elif self.pending is None and (
            self._batches >= BATCHES_BETWEEN
            or log.active_segment_bytes - self._size_bytes >= log.config.segment_bytes // SEGMENT_PART
        ):
            self.capture_state(log, states)

    def capture_state(self, log: Log, states: ProducerStates) -> None:
        """Keep the state for the next snapshot; the replica's own goes on."""
        self.pending = Snapshot.of(states, log.active_aborted)
        self._batches = 0
        self._size_bytes = log.active_segment_bytes

    def log_truncated(self, log: Log) -> None:
        """The log was cut, or what was staged for it was thrown away: what was captured above its end never was."""
        self.active_base = log.active_segment_base
        self._size_bytes = 0
        if self.pending is not None and self.pending.end_offset > log.end_offset:
            self.pending = None

    def high_watermark_advanced(self, log: Log, high_watermark: int) -> None:
        """Write the pending snapshot if its offset is committed now."""
        if self.pending is None or self.pending.end_offset > high_watermark:
            return
        pending, self.pending = self.pending, None
        self.write_snapshot(log, pending, high_watermark)
        # Two in a segment are enough: one may be of what a power cut takes away. Those at or below the log start
        # stay: a follower that is installed begins there.
        floor = max(self.active_base, log.start_offset)
        above = [offset for offset in log.snapshot_offsets() if offset > floor]
        for offset in above[:-2]:
            log.remove_snapshot(offset)

    def write_snapshot(self, log: Log, snapshot: Snapshot, high_watermark: int) -> None:
        """Write a snapshot. A full disk costs it, and later a longer replay."""
        try:
            write_snapshot(log, snapshot, high_watermark)
        except DiskFullError as error:
            logger.warning("no snapshot of the producers: disk full", error=str(error))

    def expire_producers(self, states: ProducerStates, now: float, expiration_s: float) -> None:
        """Forget the producers that have written nothing for so long by this node's clock. The timestamps of their
        records do not count: somebody may be loading last year's data.

        Called now and then, so that the append path keeps no times. A producer is idle from the first call that finds
        nothing new of it.
        """
        seen: dict[int, tuple[int, float]] = {}
        for producer_id, entry in list(states.entries.items()):
            last_offset = entry.last_offset
            before = self._seen.get(producer_id)
            if before is None or before[0] != last_offset or entry.transaction_first_offset >= 0:
                seen[producer_id] = (last_offset, now)
            elif now - before[1] < expiration_s:
                seen[producer_id] = before
            else:
                del states.entries[producer_id]
        self._seen = seen
