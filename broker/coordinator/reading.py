"""A request that looks at many keys of a coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from broker.coordinator.decisions import Decisions
from broker.coordinator.led_partition import LedPartition
from broker.coordinator.outcome import Outcome
from broker.coordinator.shard import Shard
from broker.coordinator.ticket import Ticket
from broker.replication.reads import Reads
from protocol.errors import ErrorCode, KafkaError
from storage.log_types import GroupKey

S = TypeVar("S", bound=Shard[Any])


class Reading(Generic[S]):
    """What one request sees. Its parts are called in this order, and loop iterations may lie between them:

    1. `add` for each key, or `add_all`;
    2. `confirm`: one liveness round for all partitions, so that a stale coordinator answers nothing. Who knows of no
       successor says COORDINATOR_LOAD_IN_PROGRESS: librdkafka asks again then, and after NOT_COORDINATOR from
       OffsetFetch it never starts to consume (confluentinc/librdkafka#5586);
    3. `shard` for each key, and a look at it. A key that `is_busy` has to be waited for;
    4. `wait`, until what was seen is committed. Then `error` says about which keys nothing may be told.
    """

    def __init__(
        self,
        find: Callable[[str], LedPartition[S]],
        led_here: Callable[[], Iterable[LedPartition[S]]],
        reads: Reads,
        decisions: Decisions[S, Any],
    ) -> None:
        """`find`: the partition of a key. Raises KafkaError if it is not coordinated here. `led_here`: all partitions
        that are."""
        self._find = find
        self._led_here = led_here
        self._reads = reads
        self._decisions = decisions
        self._found: dict[str, LedPartition[S] | ErrorCode] = {}
        #: The partitions that are looked at, and why nothing may be told about a partition.
        self._errors: dict[LedPartition[S], ErrorCode] = {}

    def add(self, key: str) -> None:
        try:
            led = self._find(key)
        except KafkaError as error:
            self._found[key] = error.code
        else:
            self._found[key] = led
            self._errors[led] = ErrorCode.NONE

    def add_all(self) -> None:
        """All partitions that are coordinated here, but for those that could not be loaded. Raises
        COORDINATOR_LOAD_IN_PROGRESS."""
        for led in self._led_here():
            if not led.has_failed:
                if not led.is_loaded:
                    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                self._errors[led] = ErrorCode.NONE

    def confirm(self, done: Callable[[], None]) -> None:
        def confirmed(keys: set[GroupKey]) -> None:
            for led in self._errors:
                if led.replica.key not in keys:
                    is_deposed = not led.replica.is_serving
                    self._errors[led] = (
                        ErrorCode.NOT_COORDINATOR if is_deposed else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                    )
            done()

        self._reads.confirm([led.replica for led in self._errors], confirmed)

    def shard(self, key: str) -> S:
        """Raises KafkaError if the key is not coordinated here, or not any more."""
        found = self._found[key]
        if not isinstance(found, LedPartition):
            raise KafkaError(found)
        self._check(found)
        if self._errors[found] != ErrorCode.NONE:
            raise KafkaError(self._errors[found])
        return found.shard

    def is_busy(self, key: str) -> bool:
        found = self._found[key]
        return isinstance(found, LedPartition) and found.is_current and found.is_busy(key)

    def partitions(self) -> list[LedPartition[S]]:
        """Those that are still coordinated here, of `add_all`."""
        for led in self._errors:
            self._check(led)
        return [led for led, error in self._errors.items() if error == ErrorCode.NONE]

    def _check(self, led: LedPartition[S]) -> None:
        if not led.is_current:
            self._errors[led] = ErrorCode.NOT_COORDINATOR

    def wait(self, done: Callable[[], None]) -> None:
        seen = self.partitions()
        missing = len(seen)
        if not seen:
            done()

        def waited(led: LedPartition[S], error: ErrorCode) -> None:
            nonlocal missing
            is_reloaded = error == ErrorCode.COORDINATOR_NOT_AVAILABLE
            self._errors[led] = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_reloaded else error
            missing -= 1
            if not missing:
                done()

        for led in seen:
            ticket = Ticket[ErrorCode](lambda error, led=led: waited(led, error), lambda error: error)  # type: ignore[misc]
            led.open[ticket] = None
            self._decisions.apply(led, Outcome[Any]().add_answer(ticket, ErrorCode.NONE))

    def error(self, key: str) -> ErrorCode:
        found = self._found[key]
        return self._errors[found] if isinstance(found, LedPartition) else found

    def error_of(self, led: LedPartition[S]) -> ErrorCode:
        return self._errors[led]
