"""What has to be done for one partition's producer states beside appending: snapshots, and forgetting the idle.

A snapshot is written when the log has begun a new segment (replication.md section 8), and again when it has grown by so
many batches or bytes: opening the log, going back to what it holds (after a fail-over), and deleting its oldest segment
replay what lies above one, on the loop. A whole segment of 1 GiB would be 30 seconds of batches of one record.
"""

from __future__ import annotations

import structlog

from storage.disk import DiskFullError
from storage.log import Log
from storage.producer_snapshot import decode_snapshot, encode_snapshot, write_snapshot
from storage.producer_state import ProducerStates

logger = structlog.get_logger()

#: A replay of so many batches takes 50 ms.
BATCHES_BETWEEN = 10_000
#: ... and of half a segment, 512 MiB by default, 0.3 s, however large the batches. (By an eighth, producers of 1 MB
#: batches were 4 and 7 % slower: the loop waits for a snapshot to be durable.)
SEGMENT_PART = 2


class ProducerUpkeep:
    """Of one partition; its `ProducerStates` are the replica's own and come with each call."""

    def __init__(self, log: Log) -> None:
        #: Where the segment begins that was the last one when this was told of it.
        self.active_base = log.active_segment_base
        #: The state that is to be kept, until it is committed: only then it may be.
        self.due: ProducerStates | None = None
        #: Batches since the last that was due, and how large the segment was then. What was there before this was told
        #: counts as new: nobody knows where its last snapshot is.
        self._batches = 0
        self._size_bytes = 0
        #: Producer id -> its last offset, and when (loop time) that was first seen to be the last.
        self._seen: dict[int, tuple[int, float]] = {}

    def grew(self, log: Log, states: ProducerStates, batches: int) -> None:
        """The log has grown by so many batches; the state is as of its end."""
        self._batches += batches
        if log.active_segment_base != self.active_base:
            self.active_base = log.active_segment_base
            self.take(log, states)
            if self.active_base > log.start_offset:
                # A segment that begins with a snapshot is how recovery knows the first one of an install.
                log.remove_snapshot(self.active_base)
        elif self.due is None and (
            self._batches >= BATCHES_BETWEEN
            or log.active_segment_bytes - self._size_bytes >= log.config.segment_bytes // SEGMENT_PART
        ):
            self.take(log, states)

    def take(self, log: Log, states: ProducerStates) -> None:
        """The state is due now. A copy: the replica's goes on."""
        self.due = decode_snapshot(encode_snapshot(states), states.end_offset)
        self._batches = 0
        self._size_bytes = log.active_segment_bytes

    def replaced(self, log: Log) -> None:
        """The log was cut, or another one took its place."""
        self.active_base = log.active_segment_base
        self._size_bytes = 0
        if self.due is not None and self.due.end_offset > log.end_offset:
            self.due = None

    def committed(self, log: Log, high_watermark: int) -> None:
        """Everything below the high watermark is committed."""
        if self.due is None or self.due.end_offset > high_watermark:
            return
        due, self.due = self.due, None
        self.keep(log, due, high_watermark)
        # Two in a segment are enough: one may be of what a power cut takes away. Who begins at the log start, or below,
        # needs the one that is there.
        floor = max(self.active_base, log.start_offset)
        above = [offset for offset in log.snapshot_offsets() if offset > floor]
        for offset in above[:-2]:
            log.remove_snapshot(offset)

    def keep(self, log: Log, states: ProducerStates, high_watermark: int) -> None:
        """Write a snapshot. A full disk costs it, and later some time."""
        try:
            write_snapshot(log, states, high_watermark)
        except DiskFullError as error:
            logger.warning("no snapshot of the producers: disk full", error=str(error))

    def expire(self, states: ProducerStates, now: float, expiration_s: float) -> None:
        """Forget the producers that have written nothing for so long by this node's clock. Their records' own times
        say nothing of that: somebody may be loading last year's data. Looked at now and then, so the append path
        keeps no times; who was last seen writing is idle from the look that found nothing new."""
        seen: dict[int, tuple[int, float]] = {}
        for producer_id, entry in list(states.entries.items()):
            last_offset = entry.batches[-1].last_offset if entry.batches else -1
            before = self._seen.get(producer_id)
            if before is None or before[0] != last_offset or entry.transaction_first_offset >= 0:
                seen[producer_id] = (last_offset, now)
            elif now - before[1] < expiration_s:
                seen[producer_id] = before
            else:
                del states.entries[producer_id]
        self._seen = seen
