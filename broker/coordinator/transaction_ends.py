"""Ends of transactions in the partitions of a coordinator: a marker is a decision about all keys that it is for.

A decision may be carried out in steps. A marker that came between them would meet a part of its records, or would end
what is appended after it. So a marker is appended when no decision is being carried out about its keys, and what is
pending counts, or is dropped, in the same loop iteration; or in steps, while decisions about these keys wait. The shard
follows the log then, and whoever loads the log comes to the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import structlog

from broker.coordinator.decisions import Answers, Decisions
from broker.coordinator.led_partition import LedPartition
from broker.coordinator.outcome import FEW
from broker.coordinator.shard import Shard
from broker.replication.replica import Replica
from broker.scheduling.background import PAUSE, Background, Steps
from protocol.errors import ErrorCode, KafkaError
from protocol.records.control import Marker

logger = structlog.get_logger()

S = TypeVar("S", bound=Shard[Any])


class TransactionEnds(Generic[S]):
    """Of one coordinator on this node."""

    def __init__(
        self,
        topic: str,
        led: Callable[[int], LedPartition[S] | None],
        background: Background,
        decisions: Decisions[S, Any],
        carried_out: Callable[[LedPartition[S], str], None],
    ) -> None:
        """`led`: the partition of this number, if it is led here. `carried_out` is called for each key whose state has
        changed."""
        self._topic = topic
        self._led = led
        self._background = background
        self._decisions = decisions
        self._carried_out = carried_out
        #: (replica, producer id) of the markers that wait. One of a kind: its coordinator sends it again and again.
        self._waiting: set[tuple[Replica, int]] = set()

    def append_marker(
        self,
        replica: Replica,
        producer_id: int,
        producer_epoch: int,
        marker: Marker,
        attempt: int,
        done: Callable[[int | KafkaError], None],
    ) -> None:
        """Append a marker to a partition of the coordinator's topic, now or as soon as its keys are free. `done` gets
        the end offset, or why the marker is not appended: CONCURRENT_TRANSACTIONS if one of the producer waits.
        `attempt`: as `MarkerToWrite`."""
        if (replica, producer_id) in self._waiting:
            done(KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS))
            return
        self._background.begin(
            self._append_when_free(replica, producer_id, producer_epoch, marker, attempt, done)
        )

    def _append_when_free(
        self,
        replica: Replica,
        producer_id: int,
        producer_epoch: int,
        marker: Marker,
        attempt: int,
        done: Callable[[int | KafkaError], None],
    ) -> Steps:
        epoch = replica.leader_epoch
        while self._is_busy(replica, producer_id):
            self._waiting.add((replica, producer_id))
            yield PAUSE
        self._waiting.discard((replica, producer_id))
        try:
            if replica.leader_epoch != epoch:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            end_offset = replica.append_marker(producer_id, producer_epoch, marker, attempt)
        except KafkaError as error:
            done(error)
        else:
            done(end_offset)

    def _is_busy(self, replica: Replica, producer_id: int) -> bool:
        led = self._led_partition(replica)
        return led is not None and any(map(led.is_busy, led.shard.pending_keys(producer_id)))

    def _led_partition(self, replica: Replica) -> LedPartition[S] | None:
        """None also for a replica of another topic."""
        led = self._led(replica.partition) if replica.topic == self._topic else None
        return led if led is not None and led.replica is replica else None

    # -- a marker is appended ----------------------------------------------------------------------------

    def marker_appended(self, replica: Replica, producer_id: int, end_offset: int, is_commit: bool) -> None:
        """Called for partitions of all topics, when the marker is staged."""
        led = self._led_partition(replica)
        if led is None or led.has_failed:
            return
        replica.waits.add_commit(end_offset, Answers(self._decisions, led, [], is_replayed=True), 0)
        if not led.is_loaded:
            led.unread_markers.append((producer_id, is_commit))
            return
        keys = led.shard.pending_keys(producer_id)
        if any(map(led.is_busy, keys)):
            logger.error("a marker was appended while its keys were busy", topic=self._topic)
            self._decisions.reload(led)
            return
        for key in keys:
            led.occupy(key)
        steps = self._end(led, list(keys), led.shard.end_transaction(producer_id, is_commit=is_commit))
        if sum(keys.values()) <= FEW:
            for _ in steps:
                pass
        else:
            self._background.run(steps)

    def _end(self, led: LedPartition[S], keys: list[str], ending: Steps) -> Steps:
        for step in ending:
            yield step
            if not led.is_current:
                return  # the shard is discarded, with all that waits for the keys
        for key in keys:
            self._carried_out(led, key)
            for step in led.release(key):
                yield step
                if not led.is_current:
                    return

    def end_unread(self, led: LedPartition[S]) -> Steps:
        """While the partition is loaded, after its log was replayed: what the markers say that were appended meanwhile.
        A marker that the log had already says nothing new, because no records are appended while loading."""
        while led.unread_markers:
            producer_id, is_commit = led.unread_markers.pop(0)
            keys = list(led.shard.pending_keys(producer_id))
            yield from led.shard.end_transaction(producer_id, is_commit=is_commit)
            for key in keys:
                led.shard.update_deadline(key)
