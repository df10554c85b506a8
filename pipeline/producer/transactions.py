"""The calls of a transaction, with what each error means for the caller. `ReliableProducer.transaction` uses them."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from confluent_kafka import KafkaError, KafkaException, Producer

from pipeline.producer.admission import Admission
from pipeline.producer.backoff import FullJitterBackoff
from pipeline.producer.errors import FatalProducerError, NotSentError, ProducerError, TransactionAbortedError
from pipeline.producer.settings import ProducerSettings

_SLICE_S = 1.0


class TransactionCalls:
    """Each call is repeated while librdkafka says that it may be, until `delivery.timeout.ms` is over."""

    def __init__(
        self, client: Producer, settings: ProducerSettings, admission: Admission, rng: Random
    ) -> None:
        self._client = client
        self._is_transactional = settings.is_transactional
        self._bound_s = settings.bound_ms / 1000
        self._admission = admission
        self._rng = rng
        self._backoff = FullJitterBackoff()
        self._is_ready = False
        self.is_open = False

    def begin(self) -> None:
        """The first call makes the transactional.id known to the cluster, and fences producers that had it before."""
        if not self._is_transactional:
            raise ProducerError("transaction() needs the setting transactional.id")
        if self.is_open:
            raise ProducerError("a transaction of this producer is open already")
        if not self._is_ready:
            self._call(self._client.init_transactions)
            self._is_ready = True
        self._call(lambda timeout_s: self._client.begin_transaction())
        self.is_open = True

    def commit(self) -> None:
        try:
            self._call(self._client.commit_transaction)
        except TransactionAbortedError:
            self.abort()
            raise
        finally:
            self.is_open = False

    def abort(self) -> None:
        """Nothing after a fatal error: the coordinator has aborted the transaction, or will at its time-out."""
        self.is_open = False
        if not self._admission.is_dead:
            self._call(self._client.abort_transaction)

    def not_open(self, error: KafkaError) -> ProducerError:
        """Why librdkafka does not take records in this state."""
        if self.is_open:
            return TransactionAbortedError(f"the transaction failed and has to be aborted: {error.str()}")
        return NotSentError("records of a producer with transactional.id are sent within transaction()")

    def _call(self, call: Callable[[float], None]) -> None:
        deadline = time.monotonic() + self._bound_s
        attempts = 0
        while True:
            try:
                # In slices: librdkafka waits for all that is queued even when a fatal error keeps it there. A call that
                # timed out is taken up where it was.
                call(_SLICE_S)
                return
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if error.fatal():
                    self._admission.stop(f"{error.name()}: {error.str()}", is_dead=True)
                    raise FatalProducerError(self._admission.fatal) from raised
                if error.txn_requires_abort():
                    raise TransactionAbortedError(
                        f"the transaction was aborted: {error.name()}, {error.str()}"
                    ) from raised
                if self._admission.is_dead:
                    raise FatalProducerError(self._admission.fatal) from raised
                attempts += 1
                is_slice = error.code() == KafkaError._TIMED_OUT
                delay_s = 0.0 if is_slice else self._backoff.delay_s(attempts, self._rng)
                if not error.retriable() or time.monotonic() + delay_s >= deadline:
                    raise ProducerError(f"{error.name()}, {error.str()}") from raised
                time.sleep(delay_s)
