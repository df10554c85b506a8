"""Before records of a transaction are appended to a partition for the first time, the transaction's coordinator says
that the partition is in it (KIP-890). A record of no transaction would keep readers of committed data waiting for ever.

What a coordinator has said is void as soon as anything else of the producer is appended to the partition: a marker,
which has ended the transaction since.

A coordinator consents without a liveness round, although it may have a successor that has ended the transaction. The
successor's marker has a later coordinator epoch. If it is in the partition, the consent is not heeded; if not, it
comes yet, and ends what is appended. Refusals are confirmed: they end a producer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.controller.client import ControllerClient
from broker.coordinator.internal_topic import InternalTopic
from broker.replication.replica import Replica
from broker.transactions.metadata import ProducerIdAndEpoch
from protocol.controller.transactions import JoinedResult, JoinTransaction, TransactionalPartition
from protocol.errors import ErrorCode, KafkaError, known_error
from storage.log_types import GroupKey

#: What a coordinator answers when another one may have the answer, or a little later.
_NO_COORDINATOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSUPPORTED_VERSION,
)


class Verification:
    """What the coordinator has said about partitions that are led here."""

    __slots__ = ("_errors", "_producer", "_replicas", "_seen", "_unconfirmed_epoch")

    def __init__(self, producer: ProducerIdAndEpoch, replicas: Sequence[Replica]) -> None:
        """Before the coordinator is asked."""
        self._producer = producer
        self._replicas = replicas
        self._seen = {replica.key: self._state_of(replica) for replica in replicas}
        self._errors: dict[GroupKey, ErrorCode] = {}
        self._unconfirmed_epoch = -1

    def _state_of(self, replica: Replica) -> tuple[int, int]:
        """(leader epoch, offset of the newest batch or marker of the producer)."""
        return replica.leader_epoch, replica.producers.last_offset_of(self._producer.producer_id)

    def partitions(self) -> list[TransactionalPartition]:
        return [
            TransactionalPartition(topic=each.topic, topic_id=each.key.topic_id, partition=each.partition)
            for each in self._replicas
        ]

    @property
    def has_unknown(self) -> bool:
        """A partition does not know the producer."""
        producer_id = self._producer.producer_id
        return any(each.producers.coordinator_epoch_of(producer_id) is None for each in self._replicas)

    def answered(self, errors: Sequence[ErrorCode], unconfirmed_epoch: int = -1) -> None:
        """`errors`: in the order of the replicas. `unconfirmed_epoch`: as in `JoinedResult`."""
        self._errors = dict(zip(self._seen, errors, strict=True))
        self._unconfirmed_epoch = unconfirmed_epoch

    def check(self, replica: Replica, producer: ProducerIdAndEpoch) -> None:
        """Raises KafkaError unless a batch of this producer may begin its transaction in this partition."""
        if replica.key not in self._seen or self._producer != producer:
            raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the partition was not verified")
        if self._errors[replica.key] != ErrorCode.NONE:
            raise KafkaError(self._errors[replica.key])
        seen, now = self._seen[replica.key], self._state_of(replica)
        if now[0] != seen[0]:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if now != seen:
            raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the transaction has ended meanwhile")
        if self._is_stale(replica):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "the coordinator has a successor")

    def _is_stale(self, replica: Replica) -> bool:
        """A later coordinator than the one that has consented has ended a transaction of the producer. The client sends
        the batch again, and the later one is asked."""
        if self._unconfirmed_epoch < 0:
            return False
        newest = replica.producers.coordinator_epoch_of(self._producer.producer_id)
        return newest is None or newest > self._unconfirmed_epoch


class TransactionVerifier:
    """Asks coordinators, for the partitions that this node leads."""

    def __init__(self, topic: InternalTopic, controller: ControllerClient) -> None:
        self._topic = topic
        self._controller = controller

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        replicas: Sequence[Replica],
        done: Callable[[Verification], None],
        *,
        is_added: bool,
    ) -> None:
        """Ask whether records of the transaction may be appended to these partitions, which are distinct. `is_added`:
        the client leaves it to the broker to add them to the transaction. `done` is called at once or later. The
        errors: NOT_ENOUGH_REPLICAS where the coordinator is not reached, TRANSACTION_ABORTABLE for a partition that is
        not in the transaction."""
        verification = Verification(producer, replicas)

        def fail(error: ErrorCode) -> None:
            verification.answered([error] * len(replicas))
            done(verification)

        def answered(result: JoinedResult | KafkaError) -> None:
            if isinstance(result, KafkaError):
                fail(_as_seen_by_producers(result.code))
            else:
                errors = [_as_seen_by_producers(code) for code in result.error_codes]
                verification.answered(errors, result.unconfirmed_epoch)
                done(verification)

        try:
            leader = self._topic.leader_of_key(transactional_id)
        except KafkaError as error:
            fail(error.code)
            return
        if leader < 0:
            fail(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        question = JoinTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            partitions=verification.partitions(),
            is_added=is_added,
            is_confirmed=verification.has_unknown,
        )
        self._controller.call_once(question, answered, leader)


def _as_seen_by_producers(code: int) -> ErrorCode:
    error = known_error(code)
    return ErrorCode.NOT_ENOUGH_REPLICAS if error in _NO_COORDINATOR else error
