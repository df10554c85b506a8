"""Sending the markers that end transactions, to the leaders of the partitions that are in them.

Markers of many transactions to one node travel together. A partition without a leader is tried again until it has one:
the end of the transaction is decided, and readers of committed data wait for the marker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from broker.controller.client import ControllerClient
from broker.metadata.image import MetadataImage
from broker.scheduling.background import Background, Steps
from broker.transactions.metadata import TopicPartition, TransactionMetadata
from protocol.controller.transactions import ErrorCodesResult, MarkerToWrite, WriteMarkers
from protocol.errors import ErrorCode, KafkaError, known_error
from storage.log_types import GroupKey

logger = structlog.get_logger()

#: Until a marker that was not written is tried again.
RETRY_S = 0.05
#: Markers in one message: what the other node does about them should not take long.
MARKERS_PER_MESSAGE = 200
#: Markers for which a leader is found in one step.
ROUTED_PER_STEP = 50
#: How often the log tells of a marker that is refused.
WARN_EACH_S = 10.0
#: Why a marker was not written, as happens when leaders change.
_PASSING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
#: Messages to one node that are not answered yet. Markers beyond wait here.
MESSAGES_IN_FLIGHT = 4


@dataclass(eq=False, slots=True)
class EndedTransaction:
    """A transaction whose end is decided, and durable."""

    metadata: TransactionMetadata
    coordinator_epoch: int
    is_wanted: Callable[[], bool]
    """False as soon as this node does not coordinate the transactional id any more: whoever does sends the markers."""
    done: Callable[[], None]
    """Called when all markers are committed."""
    missing: set[TopicPartition]
    """Partitions whose marker is not known to be committed."""


@dataclass(frozen=True, slots=True)
class _Marker:
    transaction: EndedTransaction
    partition: TopicPartition


class _Node:
    """What goes to one node."""

    __slots__ = ("in_flight", "queue")

    def __init__(self) -> None:
        self.queue: deque[tuple[_Marker, GroupKey, int]] = deque()
        self.in_flight = 0


class MarkerSender:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        controller: ControllerClient,
        image: Callable[[], MetadataImage],
        leader_of: Callable[[UUID, int], tuple[int, int]],
        background: Background,
    ) -> None:
        """`leader_of`: (topic id, partition) -> (node id or -1, leader epoch)."""
        self._loop = loop
        self._background = background
        self._controller = controller
        self._image = image
        self._leader_of = leader_of
        self._nodes: dict[int, _Node] = {}
        #: Counts the messages, over all nodes (`MarkerToWrite.attempt`).
        self._attempts = 0
        self._retries: list[_Marker] = []
        #: Markers for topics that this node's image lacks. The image may be behind.
        self._unknown: list[_Marker] = []
        self._is_flushing = False
        self._warned_at = -WARN_EACH_S

    def send(self, transaction: EndedTransaction) -> None:
        if not transaction.missing:
            transaction.done()
            return
        self._route([_Marker(transaction, partition) for partition in sorted(transaction.missing)])

    # -- where to

    def _route(self, markers: Sequence[_Marker]) -> None:
        """A transaction may have thousands."""
        self._background.begin(self._route_in_steps(markers))

    def _route_in_steps(self, markers: Sequence[_Marker]) -> Steps:
        for count, marker in enumerate(markers, 1):
            if count % ROUTED_PER_STEP == 0:
                self._flush_soon()
                yield
            image = self._image()
            if not self._is_missing(marker):
                continue
            topic = image.topic_named(marker.partition.topic)
            if topic is None or marker.partition.partition >= len(topic.partitions):
                self._ask_whether_known(marker)
                continue
            key = GroupKey(topic.topic_id, marker.partition.partition)
            node_id, leader_epoch = self._leader_of(*key)
            if node_id < 0:
                self._retry(marker)
            else:
                self._nodes.setdefault(node_id, _Node()).queue.append((marker, key, leader_epoch))
        self._flush_soon()

    def _flush_soon(self) -> None:
        """An answer may come while markers are being sent."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    @staticmethod
    def _is_missing(marker: _Marker) -> bool:
        return marker.partition in marker.transaction.missing and marker.transaction.is_wanted()

    def _retry(self, marker: _Marker) -> None:
        if not self._retries:
            self._loop.call_later(RETRY_S, self._retry_all)
        self._retries.append(marker)

    def _retry_all(self) -> None:
        retries, self._retries = self._retries, []
        self._route(retries)

    def _ask_whether_known(self, marker: _Marker) -> None:
        """What the image lacks when it has caught up is deleted, since it was there when the partition was added."""
        self._unknown.append(marker)
        if len(self._unknown) == 1:
            self._controller.catch_up(self._image_looked_at)

    def _image_looked_at(self, has_caught_up: bool) -> None:
        unknown, self._unknown = self._unknown, []
        image = self._image()
        known = []
        for marker in unknown:
            topic = image.topic_named(marker.partition.topic)
            is_there = topic is not None and marker.partition.partition < len(topic.partitions)
            if is_there or not has_caught_up:
                known.append(marker)
            else:
                self._written(marker)
        if has_caught_up:
            self._route(known)
        else:
            for marker in known:
                self._retry(marker)

    # -- on the way

    def _flush(self) -> None:
        self._is_flushing = False
        for node_id, node in list(self._nodes.items()):
            while node.queue and node.in_flight < MESSAGES_IN_FLIGHT:
                taken = [node.queue.popleft() for _ in range(min(len(node.queue), MARKERS_PER_MESSAGE))]
                self._send(node_id, node, [each for each in taken if self._is_missing(each[0])])
            if not node.queue and not node.in_flight:
                self._nodes.pop(node_id)

    def _send(self, node_id: int, node: _Node, taken: list[tuple[_Marker, GroupKey, int]]) -> None:
        if not taken:
            return
        node.in_flight += 1

        def answered(result: ErrorCodesResult | KafkaError) -> None:
            node.in_flight -= 1
            failure = result.code if isinstance(result, KafkaError) else ErrorCode.NONE
            codes = [failure] * len(taken) if isinstance(result, KafkaError) else result.error_codes
            for (marker, _, _), code in zip(taken, codes, strict=True):
                self._answered(marker, code)
            self._flush_soon()

        self._attempts += 1
        markers = [_to_write(marker, key, epoch, self._attempts) for marker, key, epoch in taken]
        self._controller.call_once(WriteMarkers(markers=markers), answered, node_id)

    def _answered(self, marker: _Marker, code: int) -> None:
        if not self._is_missing(marker):
            return
        if code == ErrorCode.NONE:
            self._written(marker)
        elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # Something of a later epoch was appended, which cannot be while a transaction is open there: this one has
            # written nothing there, or its marker is there.
            self._written(marker)
        else:
            if code not in _PASSING:
                self._warn(marker, code)
            self._retry(marker)

    def _warn(self, marker: _Marker, code: int) -> None:
        """Mostly another coordinator has taken over, and this node does not know yet."""
        now = self._loop.time()
        if now >= self._warned_at + WARN_EACH_S:
            self._warned_at = now
            logger.warning(
                "a transaction marker is refused, and sent again",
                transactional_id=marker.transaction.metadata.transactional_id,
                topic=marker.partition.topic,
                partition=marker.partition.partition,
                error=known_error(code).name,
            )

    @staticmethod
    def _written(marker: _Marker) -> None:
        transaction = marker.transaction
        transaction.missing.discard(marker.partition)
        if not transaction.missing and transaction.is_wanted():
            transaction.done()


def _to_write(marker: _Marker, key: GroupKey, leader_epoch: int, attempt: int) -> MarkerToWrite:
    metadata = marker.transaction.metadata
    return MarkerToWrite(
        topic_id=key.topic_id,
        partition=key.partition,
        leader_epoch=leader_epoch,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.epoch,
        coordinator_epoch=marker.transaction.coordinator_epoch,
        is_commit=metadata.is_commit,
        attempt=attempt,
    )
