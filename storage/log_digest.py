"""A digest of what the segments of a log say, to be compared with that of another replica.

`digest_log` is the heavy part of a comparison. Like `storage.log_cleaning.clean` it is a generator, so that the caller
decides where it runs. It only reads. What is compared is decided in `storage.compaction.view_digest`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from storage.aborted_index import AbortedTransaction
from storage.batch_scan import BatchScan, BytesMoved
from storage.compaction.aborted_data import AbortedData
from storage.compaction.key_map import capacity_of
from storage.compaction.key_table import new_table
from storage.compaction.plan import SegmentFacts
from storage.compaction.view_digest import KeyShare, OffsetRange, RangeDigest, ViewRound, add_batch
from storage.disk import Disk


class DigestTask(NamedTuple):
    """What has to be known for a digest."""

    directory: str
    segments: Sequence[SegmentFacts]
    """All of the log, the active one included."""
    rows: Sequence[tuple[int, int]]
    """(offset, term) of the rows of the lineage, rising."""
    view: OffsetRange
    """Committed, and at or below the last stable offset."""
    focus: OffsetRange
    """The part of the view of which there is a digest."""
    is_by_key: bool
    """Whether the newest record of each key counts, or every batch."""
    aborted: Sequence[AbortedTransaction]
    """Those with records in the view, if it is by key."""
    map_bytes: int
    salt: bytes
    """Random. It changes nothing of the digest."""


class DigestReady(NamedTuple):
    digest: RangeDigest


Digesting = Generator[BytesMoved | DigestReady, None, None]


def digest_log(disk: Disk, task: DigestTask) -> Digesting:
    """The last event is `DigestReady`. There is one after each segment, too: the log may change meanwhile.

    By key it takes two readings of the view. If the key map does not hold all keys, it takes several rounds of two
    readings: each over the keys whose hash falls into one share, and a share that does not fit is halved. So memory is
    bounded by `map_bytes`.

    Raises CorruptLogError for bytes that are not what was written; UncleanableError for records that cannot be read;
    MissingPathError if the log has deleted a segment meanwhile.
    """
    scan = BatchScan(disk, task.directory, task.rows)
    if not task.is_by_key:
        digest = RangeDigest(task.focus)
        yield from _add_batches(scan, task, digest)
        yield DigestReady(digest)
        return
    digest, aborted = RangeDigest(task.focus), AbortedData(task.aborted)
    capacity = max(capacity_of(task.map_bytes), 1)
    shares = [KeyShare(0, 1, task.salt)]
    while shares:
        share = shares.pop()
        one_round = ViewRound(task.view, task.focus, aborted, share, new_table(capacity))
        if (yield from _fill_table(scan, task, one_round)):
            yield from _add_records(scan, task, one_round)
            digest.add_all(one_round.digest)
        else:
            shares += share.halves()
    yield DigestReady(digest)


def _add_batches(scan: BatchScan, task: DigestTask, digest: RangeDigest) -> Digesting:
    for segment in _overlapping(task, task.focus):
        for header, batch in scan.batches(segment, task.focus.end):
            with scan.explaining(segment, header, batch):
                add_batch(digest, batch, header)
            yield from scan.moved()
        yield from scan.moved(at_least_bytes=1)


def _fill_table(scan: BatchScan, task: DigestTask, one_round: ViewRound) -> Generator[BytesMoved, None, bool]:
    for segment in _overlapping(task, task.view):
        for header, batch in scan.batches(segment, task.view.end):
            with scan.explaining(segment, header, batch):
                if header.next_offset > task.view.start and not one_round.add_keys(batch, header):
                    return False
            yield from scan.moved()
        yield from scan.moved(at_least_bytes=1)
    return True


def _add_records(
    scan: BatchScan, task: DigestTask, one_round: ViewRound
) -> Generator[BytesMoved, None, None]:
    for segment in _overlapping(task, task.focus):
        for header, batch in scan.batches(segment, task.focus.end):
            with scan.explaining(segment, header, batch):
                if header.next_offset > task.focus.start:
                    one_round.add_records(batch, header)
            yield from scan.moved()
        yield from scan.moved(at_least_bytes=1)


def _overlapping(task: DigestTask, offsets: OffsetRange) -> list[SegmentFacts]:
    return [
        segment
        for segment in task.segments
        if segment.base_offset < offsets.end and segment.end_offset > offsets.start
    ]
