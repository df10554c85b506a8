"""Batches of idempotent producers that came before one that has to precede them.

A producer has up to five batches in flight. When the leader changes, librdkafka sends the next batch to the new leader
while the one before is still under way to the old one. So a batch with a gap before it says one of two things:
- The batch before it is under way. The client sends both again, in order, once it has the answer to each.
- There is no batch before it: the state of the producer is gone here (expired, or of a topic that was deleted and
  created anew), or the client has lost a batch.

The second client sends the same batch again, as its oldest. So a batch with a gap is refused once, with an error that
every client retries. When it comes again, and no batch before it came meanwhile, Kafka's rules apply: an unknown
producer may begin with any sequence (KIP-360), and one that is known is out of order.

Apache Kafka applies these rules at once. But librdkafka takes an acknowledgement for one of all batches before
(`rd_kafka_dr_implicit_ack`): one that the new leader accepts first costs it the batch before. And of a producer that is
out of order it raises the epoch, with which it sends again what is under way in other partitions: some records twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader
from storage.producer_state import BATCHES_KEPT, Gap, is_ahead

#: How long it is remembered that a batch was refused. Clients wait for less before they send it again.
REMEMBERED_S = 600.0


@dataclass(slots=True)
class _Refused:
    """Of one producer."""

    epoch: int
    #: When the first of them was.
    since: float
    #: First sequences of the batches that were refused, and before which no other batch has come since. At most
    #: BATCHES_KEPT, which is as many as are in flight.
    sequences: list[int] = field(default_factory=list)


class SequenceGaps:
    """Of one leadership. What is forgotten here costs a client one more refusal, and nothing else."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[int, _Refused] = {}

    def __len__(self) -> int:
        """Producers."""
        return len(self._refused)

    def arrived(self, header: BatchHeader) -> None:
        """A batch came in, whatever becomes of it. Those behind it are not the oldest of their client: they have to
        come after it."""
        refused = self._refused.get(header.producer_id)
        if refused is None or header.producer_epoch < refused.epoch:
            return
        if header.producer_epoch > refused.epoch:
            del self._refused[header.producer_id]
            return
        first = header.base_sequence
        refused.sequences = [known for known in refused.sequences if not is_ahead(known, first)]

    def refuse_once(self, header: BatchHeader, gap: Gap, now: float) -> None:
        """Raises KafkaError for a batch with a gap before it: NOT_ENOUGH_REPLICAS, and `gap.error`, if there is one,
        for a batch that was refused before."""
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        refused = self._refused.get(producer_id)
        if refused is None or refused.epoch != epoch:
            refused = self._refused[producer_id] = _Refused(epoch, now)
        if sequence in refused.sequences:
            if gap.error is not None:
                raise gap.error
            return
        if len(refused.sequences) < BATCHES_KEPT:
            refused.sequences.append(sequence)
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"producer {producer_id} sent sequence {sequence} before {gap.expected}, which may be under way",
        )

    def appended(self, producer_id: int) -> None:
        """A batch of this producer was accepted."""
        self._refused.pop(producer_id, None)

    def expire(self, now: float) -> None:
        """Forget producers that have not come back."""
        for producer_id in [
            key for key, refused in self._refused.items() if refused.since < now - REMEMBERED_S
        ]:
            del self._refused[producer_id]

    def clear(self) -> None:
        self._refused.clear()
