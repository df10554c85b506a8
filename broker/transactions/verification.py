"""Before records of a transaction are appended to a partition for the first time, the transaction's coordinator says
that the partition is in it (KIP-890). A record of no transaction would keep readers of committed data waiting for ever.

A verification is void as soon as a marker of its producer is appended to the partition: the transaction has ended since
the coordinator answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.controller.client import ControllerClient
from broker.coordinator.internal_topic import InternalTopic
from broker.replication.events import ReplicaEvents
from broker.replication.replica import Replica
from broker.transactions.metadata import ProducerIdAndEpoch
from protocol.controller.transactions import ErrorCodesResult, JoinTransaction, TransactionalPartition
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


class _Verification:
    """One question to a coordinator, about partitions that are led here."""

    __slots__ = ("epochs", "producer_id", "replicas", "void")

    def __init__(self, producer_id: int, replicas: Sequence[Replica]) -> None:
        self.producer_id = producer_id
        self.replicas = replicas
        self.epochs = [replica.leader_epoch for replica in replicas]
        #: Partitions in which a marker of the producer was appended meanwhile.
        self.void: set[GroupKey] = set()

    def error_of(self, at: int) -> ErrorCode:
        replica = self.replicas[at]
        if not replica.is_serving or replica.leader_epoch != self.epochs[at]:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.TRANSACTION_ABORTABLE if replica.key in self.void else ErrorCode.NONE


class TransactionVerifier:
    def __init__(self, topic: InternalTopic, controller: ControllerClient, events: ReplicaEvents) -> None:
        self._topic = topic
        self._controller = controller
        #: By producer id. Invariant: no empty lists.
        self._open: dict[int, list[_Verification]] = {}
        events.marker_appended.append(self._marker_appended)

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        replicas: Sequence[Replica],
        done: Callable[[list[ErrorCode]], None],
        *,
        is_added: bool,
    ) -> None:
        """Whether records of the transaction may be appended to these partitions, which this node leads. `is_added`:
        the client leaves it to the broker to add them to the transaction. `done` gets an error for each, at once or
        later: NOT_ENOUGH_REPLICAS where the coordinator is not reached, TRANSACTION_ABORTABLE where the partition is
        not in the transaction."""
        try:
            leader = self._topic.leader_of_key(transactional_id)
        except KafkaError as error:
            done([error.code] * len(replicas))
            return
        if leader < 0:
            done([ErrorCode.NOT_ENOUGH_REPLICAS] * len(replicas))
            return
        verification = _Verification(producer.producer_id, replicas)
        self._open.setdefault(producer.producer_id, []).append(verification)

        def answered(result: ErrorCodesResult | KafkaError) -> None:
            self._forget(verification)
            codes = [result.code] * len(replicas) if isinstance(result, KafkaError) else result.error_codes
            done([_error(code) or verification.error_of(at) for at, code in enumerate(codes)])

        question = JoinTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            partitions=[
                TransactionalPartition(topic=replica.topic, partition=replica.partition)
                for replica in replicas
            ],
            is_added=is_added,
        )
        self._controller.call_once(question, answered, leader)

    def _forget(self, verification: _Verification) -> None:
        producer_id = verification.producer_id
        self._open[producer_id].remove(verification)
        if not self._open[producer_id]:
            del self._open[producer_id]

    def _marker_appended(self, replica: Replica, producer_id: int, end_offset: int, is_commit: bool) -> None:
        for verification in self._open.get(producer_id, ()):
            verification.void.add(replica.key)


def _error(code: int) -> ErrorCode:
    return ErrorCode.NOT_ENOUGH_REPLICAS if code in _NO_COORDINATOR else known_error(code)
