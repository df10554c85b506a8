"""The aborted transactions of a segment, found when a reader asks for them: in the file of the segment, or in the log.

A wrong entry would show a reader the records of an aborted transaction. The file has a checksum of its own, but it may
be a whole file of another log, or of this one before it was cut. So each entry is compared with the ABORT marker that
it names before any of them is believed.

Loading works in steps, and the log may change between two of them. A truncation, the end of the segment, or an index
that is known meanwhile (compaction has put another segment in its place) ends the loading without a result; who needs
one asks the log again.
"""

from __future__ import annotations

from collections.abc import Generator

from protocol.errors import KafkaError
from protocol.records.control import read_marker
from storage.aborted_index import AbortedIndex, AbortedTransaction
from storage.errors import CorruptLogError
from storage.log import Log
from storage.producer_snapshot import newest_snapshot, replay

#: A step looks at so many batches, which takes a millisecond or two.
BATCHES_PER_STEP = 100

Steps = Generator[None, None, None]


def load_aborted(log: Log, base_offset: int) -> Steps:
    """Have the log know the aborted transactions of this segment (`Log.aborted_between`). Yields after each step.
    Raises CorruptLogError."""
    if base_offset != log.active_segment_base:
        truncations = log.truncation_count
        index = log.aborted.read_file(base_offset)
        if index is not None and (yield from _is_proved(log, base_offset, index)):
            log.aborted.proved(base_offset, index)
            return
        if _is_over(log, base_offset, truncations):
            return
    yield from _rebuild(log, base_offset)


def _is_over(log: Log, base_offset: int, truncations: int) -> bool:
    """Whether the log has changed under the loading, which began after so many truncations."""
    return (
        log.truncation_count != truncations
        or log.segment_end(base_offset) is None
        or log.aborted.of_segment(base_offset) is not None
    )


def _is_proved(log: Log, base_offset: int, index: AbortedIndex) -> Generator[None, None, bool]:
    """Whether the log holds the ABORT marker of each entry. False, too, if the log has changed meanwhile."""
    truncations = log.truncation_count
    end_offset = log.segment_end(base_offset)
    if end_offset is None or not index.lies_within(base_offset, end_offset):
        return False
    for count, aborted in enumerate(index, start=1):
        if not _names_its_marker(log, aborted):
            return False
        if count % BATCHES_PER_STEP == 0:
            yield
            if _is_over(log, base_offset, truncations):
                return False
    return True


def _names_its_marker(log: Log, aborted: AbortedTransaction) -> bool:
    offset = aborted.last_offset
    for header, batch in log.checked_batches(offset, offset + 1):
        if not (
            header.is_control and header.producer_id == aborted.producer_id and header.base_offset == offset
        ):
            return False
        try:
            marker = read_marker(batch)
        except KafkaError as error:
            raise CorruptLogError(log.directory, offset, error.message or "") from error
        return marker is not None and not marker.is_commit
    return False


def _rebuild(log: Log, base_offset: int) -> Steps:
    """Replay the producers from the newest snapshot at or below the segment. Where the segment is the first one, the
    only snapshot may lie inside it, at or below the log start: no reader asks for what was aborted below that."""
    truncations = log.truncation_count
    states = newest_snapshot(log, max(base_offset, log.start_offset))
    position = max(states.end_offset, log.first_stored_offset)
    # The active segment grows meanwhile.
    while (end_offset := log.segment_end(base_offset)) is not None and position < end_offset:
        count = 0
        for header, batch in log.checked_batches(position, end_offset):
            if header.base_offset >= states.end_offset:
                replay(log, states, batch, header)
            position = header.next_offset
            count += 1
            if count == BATCHES_PER_STEP:
                break
        if count < BATCHES_PER_STEP:
            position = end_offset  # compaction may have removed what was last
        yield
        if _is_over(log, base_offset, truncations):
            return
    if end_offset is None:
        return
    index = AbortedIndex()
    for aborted in states.take_aborted():
        if aborted.last_offset >= base_offset:
            index.add(aborted)
    log.aborted.rebuilt(base_offset, index, is_sealed=base_offset != log.active_segment_base)
