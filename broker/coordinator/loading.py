"""Reading a partition of `__consumer_offsets` into a shard, a little with every turn of the loop."""

from __future__ import annotations

from collections.abc import Iterator

from broker.groups.records import decode
from broker.groups.shard import Shard
from broker.replication.replica import Replica
from protocol.records.record import iter_records

#: Records that are loaded in one turn of the loop: some milliseconds.
RECORDS_PER_TURN = 1000


def load(replica: Replica, shard: Shard) -> Iterator[None]:
    """Replays the log into the shard and yields once in a while. As if it were compacted: only the newest record of
    each key is decoded. Raises CorruptLogError before anything is believed of a batch that has rotted."""
    newest: dict[bytes, bytes] = {}
    count = 0
    for _, batch in replica.log.checked_batches(replica.log.start_offset, replica.log.end_offset):
        for record in iter_records(batch):
            assert record.key is not None, "group records have keys"
            key = bytes(record.key)
            newest.pop(key, None)
            if record.value is not None:
                newest[key] = bytes(record.value)
            count += 1
            if count % RECORDS_PER_TURN == 0:
                yield
    for key, value in newest.items():
        known = decode(memoryview(key), memoryview(value))
        if known is not None:
            shard.replay(known)
        count += 1
        if count % RECORDS_PER_TURN == 0:
            yield
