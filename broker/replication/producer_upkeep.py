"""What has to be done for one partition's producer states beside appending: snapshots, and forgetting the idle.

A snapshot is written when the log has begun a new segment (replication.md section 8), so that opening the log, or going
back to what it holds, replays about one segment and not all of them.
"""

from __future__ import annotations

import structlog

from storage.disk import DiskFullError
from storage.log import Log
from storage.producer_snapshot import decode_snapshot, encode_snapshot, write_snapshot
from storage.producer_state import ProducerStates

logger = structlog.get_logger()


class ProducerUpkeep:
    """Of one partition; its `ProducerStates` are the replica's own and come with each call."""

    def __init__(self, log: Log) -> None:
        #: Where the segment begins that was the last one when this was told of it.
        self.active_base = log.segments[-1].base_offset
        #: The state as of the first write of a segment, until that is committed: only then it may be kept.
        self.due: ProducerStates | None = None
        #: Producer id -> its last offset, and when (loop time) that was first seen to be the last.
        self._seen: dict[int, tuple[int, float]] = {}

    def segment_begun(self, log: Log, states: ProducerStates) -> None:
        """The log has grown into another segment than `active_base`'s; the state is as of its end."""
        self.active_base = base_offset = log.segments[-1].base_offset
        self.due = decode_snapshot(encode_snapshot(states), states.end_offset)
        path = log.snapshot_path(base_offset)
        if base_offset > log.start_offset and log.disk.exists(path):
            # A segment that begins with a snapshot is how recovery knows the first one of an install.
            log.disk.unlink(path)

    def replaced(self, log: Log) -> None:
        """The log was cut, or another one took its place."""
        self.active_base = log.segments[-1].base_offset
        if self.due is not None and self.due.end_offset > log.end_offset:
            self.due = None

    def committed(self, log: Log, high_watermark: int) -> None:
        """Everything below the high watermark is committed."""
        if self.due is None or self.due.end_offset > high_watermark:
            return
        due, self.due = self.due, None
        self.keep(log, due, high_watermark)

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
