"""What a disk surely keeps of the journal, whatever the process that writes it believes: the durable bytes, read with
the rules of recovery (storage/README.md)."""

from __future__ import annotations

from storage.journal import JOURNAL_NAME, _parse_frame
from storage.journal_records import Forget, GroupState, decode_record
from storage.log_types import GroupKey
from tests.simulator.disk import MemoryDisk


def durable_journal(disk: MemoryDisk) -> dict[GroupKey, GroupState]:
    """What the journal says after a loss of power, whatever is lost in it; corruption aside. Groups of which it says
    nothing are not in it."""
    contents = memoryview(disk.durable_contents(f"{disk.root}/{JOURNAL_NAME}") or b"")
    states: dict[GroupKey, GroupState] = {}
    position, sequence = 0, None
    while (frame := _parse_frame(contents, position)) is not None:
        if sequence is not None and frame.sequence != sequence + 1:
            break
        sequence, position = frame.sequence, frame.end
        if frame.kind:
            record = decode_record(frame.kind, frame.payload)
            if isinstance(record, Forget):
                states.pop(record.group, None)
            else:
                record.apply(states.setdefault(record.group, GroupState()))
    return states
