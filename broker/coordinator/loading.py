"""Reading a partition of an internal topic into a shard, in steps."""

from __future__ import annotations

from typing import Protocol, TypeVar

from broker.coordinator.records import RecordCodec
from broker.replication.replica import Replica
from broker.scheduling.background import PAUSE, Steps
from protocol.records.record import iter_records

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

#: Records that are read in one step. Those that count are decoded and replayed one in each step: some are large.
RECORDS_PER_STEP = 10


class Replays(Protocol[R_contra]):
    """What loading needs of a shard."""

    def replay(self, record: R_contra) -> None: ...


def load(replica: Replica, codec: RecordCodec[R], shard: Replays[R]) -> Steps:
    """Replays the log into the shard. The log is read as if it were compacted: only the newest record of each key is
    decoded. Nothing may be appended until it is over. Raises CorruptLogError before anything is believed of a corrupt
    batch; ProtocolError for a known record type in a version that this build does not know, and KafkaError for a batch
    whose records it cannot read."""
    # A shard that is loaded anew may have appended in this very loop iteration. Those records are accepted, and will be
    # committed, but they are written only when the iteration ends.
    while replica.log.end_offset < replica.next_offset:
        yield PAUSE
    newest: dict[bytes, bytes] = {}
    count = 0
    for _, batch in replica.log.checked_batches(replica.log.start_offset, replica.log.end_offset):
        for record in iter_records(batch):
            assert record.key is not None, "records of a coordinator have keys"
            key = bytes(record.key)
            newest.pop(key, None)
            if record.value is not None:
                newest[key] = bytes(record.value)
            count += 1
            if count % RECORDS_PER_STEP == 0:
                yield
    for key, value in newest.items():
        known = codec.decode(memoryview(key), memoryview(value))
        if known is not None:
            shard.replay(known)
        yield
