"""Reading a partition of an internal topic into a shard, in steps."""

from __future__ import annotations

from typing import Protocol, TypeVar

from broker.coordinator.records import RecordCodec
from broker.replication.replica import Replica
from broker.scheduling.background import PAUSE, Steps
from protocol.records.control import read_marker
from protocol.records.record import iter_records
from storage.log import Log
from storage.short_walks import checked_batches_in_short_walks

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

#: Records that are read in one step. Those that count are decoded and replayed one in each step: some are large.
RECORDS_PER_STEP = 10


class Replays(Protocol[R_contra]):
    """What loading needs of a shard."""

    def replay(self, record: R_contra) -> None: ...
    def replay_pending(self, producer_id: int, record: R_contra) -> None: ...


class _Newest:
    """The newest record of each key, as if the log were compacted; and those of open transactions. When one of these
    transactions is committed, its records count as if they were written then, as in Apache Kafka. So what another
    transaction has written to the same key before counts no more, and what it has written later does."""

    def __init__(self) -> None:
        self.committed: dict[bytes, bytes] = {}
        #: Of open transactions: key -> producer id -> value, in the order of the log. No empty dicts.
        self.pending: dict[bytes, dict[int, bytes | None]] = {}
        #: Producer id -> the keys that it has in `pending`.
        self._keys_of: dict[int, dict[bytes, None]] = {}

    def add(self, key: bytes, value: bytes | None) -> None:
        """Without a transaction. What is pending was written before."""
        self._set(key, value)
        self.pending.pop(key, None)

    def add_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        values = self.pending.setdefault(key, {})
        values.pop(producer_id, None)
        values[producer_id] = value
        self._keys_of.setdefault(producer_id, {})[key] = None

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        for key in self._keys_of.pop(producer_id, ()):
            values = self.pending.get(key, {})
            if producer_id not in values:
                continue
            if is_commit:
                self._set(key, values[producer_id])
                for earlier in list(values):
                    if earlier == producer_id:
                        break
                    del values[earlier]
            del values[producer_id]
            if not values:
                del self.pending[key]

    def _set(self, key: bytes, value: bytes | None) -> None:
        self.committed.pop(key, None)
        if value is not None:
            self.committed[key] = value


def load(replica: Replica, codec: RecordCodec[R], shard: Replays[R]) -> Steps:
    """Replays the log into the shard. The log is read as if it were compacted: only the newest record of each key is
    decoded. No records may be appended until it is over. What markers say that are appended meanwhile is up to the
    caller. Raises CorruptLogError before anything is believed of a corrupt
    batch; ProtocolError for a known record type in a version that this build does not know, and KafkaError for a batch
    whose records it cannot read."""
    # A shard that is loaded anew may have appended in this very loop iteration. Those records are accepted. They are
    # written when the iteration ends, and nothing may be done about them before they are committed. Those that find no
    # room on the disk are thrown away: the end falls.
    end_offset = replica.next_offset
    while min(replica.log.end_offset, replica.high_watermark) < min(end_offset, replica.next_offset):
        yield PAUSE
    newest = _Newest()
    with replica.being_replayed():
        yield from _read(replica.log, newest)
    for key, value in newest.committed.items():
        known = codec.decode(memoryview(key), memoryview(value))
        if known is not None:
            shard.replay(known)
        yield
    for key, values in newest.pending.items():
        for producer_id, written in values.items():
            known = None if written is None else codec.decode(memoryview(key), memoryview(written))
            if known is not None:
                shard.replay_pending(producer_id, known)
            yield


def _read(log: Log, newest: _Newest) -> Steps:
    """All of the log, in steps."""
    count = 0
    for header, batch in checked_batches_in_short_walks(log, log.start_offset, log.end_offset):
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None:
                newest.end_transaction(header.producer_id, marker.is_commit)
            yield
            continue
        for record in iter_records(batch):
            assert record.key is not None, "records of a coordinator have keys"
            key, value = bytes(record.key), None if record.value is None else bytes(record.value)
            if header.is_transactional:
                newest.add_pending(header.producer_id, key, value)
            else:
                newest.add(key, value)
            count += 1
            if count % RECORDS_PER_STEP == 0:
                yield
