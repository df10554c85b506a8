"""A producer with a transactional id, which writes down what becomes of its transactions (tests/history/README.md)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.integration.faults.client import SETTINGS, History, Stopped

#: Well above the time-outs of single requests, and so short that a transaction which nobody ends is soon aborted.
TRANSACTION_TIMEOUT_MS = 10_000
#: Calls wait so long at a time: a signal is seen only between them.
_CALL_TIMEOUT_S = 5.0
_RETRY_BACKOFF_S = 0.05
#: A call that takes so much longer than it was allowed to will not return.
_HANGS_AFTER_S = 5.0


class ProducerEndedError(Exception):
    """Nothing more can be done with this producer: another one has its id, or librdkafka gives up for good."""


class Patience:
    """How long a call is repeated that the cluster does not answer."""

    def __init__(self, stopped: Stopped, end_timeout_s: float) -> None:
        """`end_timeout_s`: how long one call may take after the end was ordered. Until then there is no limit, because
        the cluster may be broken."""
        self._stopped = stopped
        self._end_timeout_s = end_timeout_s

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set

    def repeat(self, call: Callable[[float], object]) -> KafkaError | None:
        """`call` (its argument: a timeout in seconds) until it has succeeded (None) or failed for good (the error)."""
        stopped_at: float | None = None
        while True:
            try:
                call(_CALL_TIMEOUT_S)
                return None
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if error.fatal() or error.txn_requires_abort() or not error.retriable():
                    return error
            if self.is_stopped:
                now = time.monotonic()
                stopped_at = now if stopped_at is None else stopped_at
                if now - stopped_at > self._end_timeout_s:
                    return error
            time.sleep(_RETRY_BACKOFF_S)


class _Transaction:
    """One transaction while it is open."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sends: list[dict[str, Any]] = []
        self.has_failed_send = False
        self.is_commit_asked = False
        """A commit was asked for: from then on only the answer tells what became of it."""
        self.consumed: dict[int, tuple[int, int]] = {}
        """Partition -> first offset, offset behind the last."""


class TransactionalProducer:
    """One life of a transactional id: a process in the history's sense. `start`, then transactions, then `drop`.

    A transaction is `failed` for certain if its commit was never asked for, or only after a successor had started,
    because the successor's start has aborted it (KIP-98).
    """

    def __init__(
        self,
        process: str,
        bootstrap: str,
        transactional_id: str,
        topic: str,
        history: History,
        patience: Patience,
        group: str | None = None,
    ) -> None:
        """`group`: whose offsets the transactions commit."""
        self.process = process
        self._group = group
        self._topic = topic
        self._history = history
        self._patience = patience
        self._is_superseded = False
        self._open: _Transaction | None = None
        self._transactions = 0
        self._values = 0
        self._producer = Producer(
            {
                **SETTINGS,
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
                "batch.size": 8192,
            }
        )

    def start(self) -> None:
        """Take the transactional id over. What a producer before it had open is aborted then. ProducerEndedError."""
        self._must(self._patience.repeat(self._producer.init_transactions), "init_transactions")

    def supersede(self) -> None:
        """A successor has started."""
        self._is_superseded = True

    def begin(self) -> str:
        """The name of the transaction that is open now. ProducerEndedError."""
        assert self._open is None
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise ProducerEndedError(f"begin_transaction: {error}") from error
        self._transactions += 1
        self._open = _Transaction(f"{self.process}/{self._transactions}")
        return self._open.name

    def send(self, partition: int, key: str, tail: str) -> None:
        """One record. Its value is a new name, a blank and the tail. One that librdkafka does not take is not sent."""
        transaction = self._open
        assert transaction is not None
        self._values += 1
        value = f"{self.process}-{self._values}"
        send: dict[str, Any] = {
            "op": "send",
            "process": self.process,
            "topic": self._topic,
            "partition": partition,
            "key": key,
            "value": value,
            "txn": transaction.name,
            "begin_ns": time.monotonic_ns(),
        }

        def answered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                transaction.has_failed_send = True
                send["error"] = error.name()
                return
            offset = message.offset()
            send["offset"] = offset if offset is not None and offset >= 0 else None

        try:
            self._producer.produce(self._topic, f"{value} {tail}", key, partition, on_delivery=answered)
        except (KafkaException, BufferError):
            transaction.has_failed_send = True
            return
        transaction.sends.append(send)

    def consume(self, partition: int, offset: int) -> None:
        """The transaction has consumed this record of the topic."""
        assert self._open is not None
        first, _ = self._open.consumed.get(partition, (offset, 0))
        self._open.consumed[partition] = first, offset + 1

    def flush(self) -> bool:
        """Whether all records of the transaction are acknowledged."""
        assert self._open is not None
        try:
            return self._producer.flush(2 * _CALL_TIMEOUT_S) == 0 and not self._open.has_failed_send
        except KafkaException:  # a fatal error
            return False

    def send_offsets(self, metadata: object) -> bool:
        """Those of what it has consumed. False: it had to be aborted. ProducerEndedError.

        `metadata`: as which member of the group it has consumed.
        """
        assert self._open is not None
        offsets = [TopicPartition(self._topic, each, end) for each, (_, end) in self._open.consumed.items()]
        error = self._patience.repeat(partial(self._send_offsets, offsets, metadata))
        if error is not None:
            self.abort(error)
        return error is None

    def commit(self) -> bool:
        """Commit it. False: it had to be aborted. ProducerEndedError."""
        transaction = self._open
        assert transaction is not None
        transaction.is_commit_asked = True
        error = self._patience.repeat(self._producer.commit_transaction)
        if error is not None:
            self.abort(error)
            return False
        self._end("ok")
        if self._is_superseded:
            self._problem(f"{transaction.name} was committed after a successor had started")
        return True

    def _send_offsets(self, offsets: list[TopicPartition], metadata: object, timeout_s: float) -> None:
        """KafkaException, or ProducerEndedError: the call may never return (librdkafka #5456, #5511)."""
        failed: list[BaseException] = []
        producer = self._producer

        def call() -> None:
            try:
                producer.send_offsets_to_transaction(offsets, metadata, timeout_s)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(timeout_s + _HANGS_AFTER_S)
        if thread.is_alive():
            self._note(
                f"send_offsets_to_transaction has not returned within {timeout_s + _HANGS_AFTER_S:g} s"
            )
            raise ProducerEndedError("it hangs")
        if failed:
            raise failed[0]

    def abort(self, reason: KafkaError | None = None) -> None:
        """Abort it. `reason`: why it could not be committed. ProducerEndedError."""
        transaction = self._open
        assert transaction is not None
        try:
            if reason is not None and not reason.txn_requires_abort():
                self._must(reason, "commit")
            self._must(self._patience.repeat(self._producer.abort_transaction), "abort_transaction")
        finally:
            self._end_uncommitted()

    def drop(self) -> None:
        """Leave it as a client that dies does. A transaction that is open stays so, until the coordinator aborts it."""
        if self._open is not None:
            self._end_uncommitted()
        self._producer.purge()

    def _end_uncommitted(self) -> None:
        assert self._open is not None
        is_certain = self._is_superseded or not self._open.is_commit_asked
        self._end("failed" if is_certain else "unknown")

    def _end(self, outcome: str) -> None:
        transaction, self._open = self._open, None
        assert transaction is not None
        for send in transaction.sends:
            offset = send.pop("offset", None)
            self._history.write(**send, outcome=outcome, offset=offset if outcome == "ok" else None)
        offsets = [[self._group, self._topic, each, *ends] for each, ends in transaction.consumed.items()]
        self._history.write(
            op="txn", process=self.process, txn=transaction.name, outcome=outcome, offsets=offsets
        )

    def _must(self, error: KafkaError | None, what: str) -> None:
        if error is None:
            return
        self._note(f"{what}: {error}")
        if error.retriable() and self._patience.is_stopped:
            self._problem(f"{what} was not answered after the end: {error}")
        raise ProducerEndedError(f"{what}: {error}")

    def _note(self, what: str) -> None:
        self._history.write(op="note", process=self.process, what=what)

    def _problem(self, what: str) -> None:
        self._history.write(op="note", process=self.process, problem=what)
