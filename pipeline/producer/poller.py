"""The thread that takes all reports of a producer, and how other threads wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from confluent_kafka import KafkaException, Producer

from pipeline.producer.admission import Admission
from pipeline.producer.errors import ProducerError
from pipeline.producer.outcomes import Outcomes
from pipeline.producer.transactions import TransactionCalls

# The thread waits so long for a report. A report ends the wait.
_TURN_S = 0.1
# ... while retries or dead letters are under way, whose reports come from another producer, or a transaction, whose
# end must not wait for a report.
_BUSY_TURN_S = 0.005


class Poller:
    """Runs until `stop`. The callbacks of the application are called here, one at a time."""

    def __init__(
        self, client: Producer, outcomes: Outcomes, admission: Admission, transactions: TransactionCalls
    ) -> None:
        self._client = client
        self._outcomes = outcomes
        self._admission = admission
        self._transactions = transactions
        self._changed = threading.Condition()
        self._waiting = 0
        self._flushing = 0
        self._errand: tuple[Callable[[], None], Future[None]] | None = None
        self._gives_up = False
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="producer-poll", daemon=True)
        self._thread.start()

    # -- for other threads -----------------------------------------------------------------------------------

    @property
    def is_this_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def refuse_callbacks(self, to: str) -> None:
        """Raises ProducerError where a callback asks for something that can only happen after it has returned."""
        if self.is_this_thread:
            raise ProducerError(f"a delivery callback cannot {to}: reports come only after it has returned")

    def outstanding(self) -> int:
        # In this order: a record that leaves librdkafka's queue by failing is counted by `Outcomes` before that.
        return len(self._client) + self._outcomes.outstanding()

    def wait_for_turn(self, timeout_s: float) -> None:
        """Until reports were taken, so that there may be room."""
        with self._changed:
            self._waiting += 1
            self._changed.wait(timeout_s)
            self._waiting -= 1

    def wait_until_empty(self, deadline: float | None) -> int:
        """Send what is queued without lingering, and wait for all outcomes; what is left at the deadline."""
        with self._changed:
            self._flushing += 1
            self._waiting += 1
            try:
                while left := self.outstanding():
                    wait_s = None if deadline is None else deadline - time.monotonic()
                    if wait_s is not None and wait_s <= 0:
                        break
                    self._changed.wait(wait_s)
                return left
            finally:
                self._flushing -= 1
                self._waiting -= 1

    def run(self, call: Callable[[], None]) -> None:
        """Have it called by the polling thread: committing and aborting take reports, which only that thread may."""
        done: Future[None] = Future()
        self._errand = (call, done)
        done.result()

    def stop(self, deadline: float | None) -> None:
        """Wait for what is outstanding, give up what is left at the deadline, and end the thread."""
        if self.wait_until_empty(deadline):
            self._gives_up = True
            self.wait_until_empty(None)
        self._is_stopped = True
        self._thread.join()
        # A thread that was within `send` while the producer was closed may have added a record.
        self._gives_up = True
        while self.outstanding():
            self._turn()

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopped:
            try:
                self._turn()
            except Exception as raised:
                # A fault of this package. The application hears of it, and can still close the producer.
                self._admission.stop(f"the polling thread failed: {raised!r}")
                self._admission.keep_callback_error(raised)

    def _turn(self) -> None:
        self._serve()
        self._run_errand()
        if self._admission.is_dead:
            # Nothing more will be sent. Without this, what is queued would have its outcome at the bound only.
            self._client.purge(in_flight=False)
        if self._gives_up:
            self._client.purge()
            self._outcomes.give_up()
        self._outcomes.turn()
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def _serve(self) -> None:
        """Take reports, and wait for some if there are none."""
        side = self._outcomes.side
        is_busy = self._transactions.is_open or self._outcomes.outstanding() > 0
        wait_s = _BUSY_TURN_S if is_busy else _TURN_S
        try:
            if self._flushing and len(self._client):
                # As poll, but without waiting for linger.ms.
                self._client.flush(wait_s)
            else:
                self._client.poll(wait_s)
            if side is not None:
                side.poll(0)
        except KafkaException as raised:
            # confluent-kafka raises a fatal error here instead of giving it to error_cb.
            self._outcomes.client_event(raised.args[0])

    def _run_errand(self) -> None:
        if self._errand is None:
            return
        (call, done), self._errand = self._errand, None
        try:
            call()
        except BaseException as raised:
            done.set_exception(raised)
        else:
            done.set_result(None)
