"""Replaying the metadata log into an image, in steps: thousands of records may be committed at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from broker.metadata.image import Change, MetadataImage
from broker.replication.replica import Replica
from broker.scheduling.background import Steps
from protocol.records.record import iter_records
from storage.errors import CorruptLogError
from storage.short_walks import checked_batches_in_short_walks

logger = structlog.get_logger()

#: Whoever waits for the image is told after so many records at the latest.
RECORDS_BETWEEN_READS = 500


def _ignore(*_: Any) -> Steps:
    """Nobody listens to this image."""
    return iter(())


def replay(
    replica: Replica,
    image: MetadataImage,
    end_offset: Callable[[], int],
    changed: Callable[[Change], Steps] = _ignore,
    read: Callable[[], Steps] = _ignore,
) -> Steps:
    """Replay the log from the end of the image up to `end_offset()`, which may rise meanwhile. `changed` gets each
    change, and its steps are done before the next one. `read` is called when all of it is replayed, also if there were
    no records, and now and then before. Nothing is believed of a corrupt batch."""
    try:
        with replica.being_replayed():
            is_behind = True
            while is_behind and replica.is_open:
                start_offset, contradictions = image.end_offset, image.contradictions
                if start_offset < (end := end_offset()):
                    yield from _replay_range(replica, image, end, changed, read)
                yield from read()
                if image.contradictions > contradictions:
                    logger.error(
                        "metadata that contradicts what was before it is passed over",
                        count=image.contradictions - contradictions,
                        below_offset=image.end_offset,
                    )
                # Without progress it has another log now.
                is_behind = start_offset < image.end_offset < end_offset()
    except CorruptLogError as error:
        replica.host.log_corrupt(replica, error)


def _replay_range(
    replica: Replica,
    image: MetadataImage,
    end_offset: int,
    changed: Callable[[Change], Steps],
    read: Callable[[], Steps],
) -> Steps:
    log, count = replica.log, 0
    for header, batch in checked_batches_in_short_walks(log, image.end_offset, end_offset):
        for record in iter_records(batch):
            if record.offset < image.end_offset:
                continue
            assert record.key is not None, "metadata records have keys"
            value = None if record.value is None else bytes(record.value)
            change = yield from image.replay_in_steps(
                bytes(record.key), value, record.offset, header.leader_epoch
            )
            if change is not None:
                yield from changed(change)
            yield
            count += 1
            if count % RECORDS_BETWEEN_READS == 0:
                yield from read()
            if not replica.is_open or replica.log is not log:
                return  # closed, or begun anew from a snapshot
    image.pass_over(end_offset)
