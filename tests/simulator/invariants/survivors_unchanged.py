"""What compaction leaves of a batch is as it was written: offsets, epochs, producer, sequence, and time, key, value and
headers of each record (coordinated-compaction.md, section 5, invariant 8). A filler stands for whole batches of one
epoch (storage/README.md, "Compaction leaves no holes")."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.records.batch import ATTR_LOG_APPEND_TIME, BatchHeader, check_crc
from protocol.records.control import remnant_is_commit
from storage.log_types import GroupKey
from tests.simulator.written import Original, Record, Written, records_of

#: Of one batch that was committed: it, and its records that are gone.
Missing = tuple[Original, Sequence[Record]]


def check_survivor(
    key: GroupKey, written: Written, header: BatchHeader, batch: memoryview
) -> Sequence[Missing]:
    """A batch of any log of the group, below what is committed. Returns what is not in it any more."""
    where = f"{header.base_offset} to {header.last_offset} of {key}"
    originals = written.covered(header.base_offset, header.next_offset)
    assert originals, f"{where}: there are no committed batches that begin and end there"
    assert check_crc(batch, 0, header), f"{where} fails its CRC"
    for original in originals:
        assert original.header.leader_epoch == header.leader_epoch, (
            f"{where} has epoch {header.leader_epoch}, written was {original.header.leader_epoch}"
        )
    if header.is_filler:
        return [(original, original.records) for original in originals]
    assert len(originals) == 1, f"{where} is no filler, and stands for {len(originals)} batches"
    original = originals[0]
    assert _identity(header) == _identity(original.header), f"{where} is {header}, was {original.header}"
    _check_attributes(where, header, original)
    return [(original, _missing(where, original, records_of(batch)))]


def _identity(header: BatchHeader) -> tuple[int, ...]:
    return (
        header.last_offset,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_control,
        header.attributes & ATTR_LOG_APPEND_TIME,
    )


def _check_attributes(where: str, header: BatchHeader, original: Original) -> None:
    was = original.header
    if header.is_transactional != was.is_transactional:
        # The bit of data alone may go, and with it the last sign that they may be aborted.
        is_cleared = was.is_transactional and not was.is_control
        assert is_cleared and (original.is_committed or not header.count), (
            f"{where} has the attributes {header.attributes:#x}, had {was.attributes:#x}, committed: "
            f"{original.is_committed}"
        )
    if header.is_control and not header.count:
        said = remnant_is_commit(header)
        assert said in (None, original.is_commit), f"{where}: its marker said {original.is_commit}"


def _missing(where: str, original: Original, left: Sequence[Record]) -> list[Record]:
    was = {record.offset: record for record in original.records}
    for record in left:
        assert was.get(record.offset) == record, f"{where} holds {record}, was {was.get(record.offset)}"
    kept = {record.offset for record in left}
    return [record for record in original.records if record.offset not in kept]
