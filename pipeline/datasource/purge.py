"""Deleting what the query has consumed, as Kafka Streams does with its repartition topics (KIP-811).

Off unless asked for, because it deletes data. A purge is sent when Spark commits, at most once per interval, however
often Spark commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from pipeline.datasource.cluster_view import ClusterView, logger
from pipeline.datasource.errors import InvalidOption
from pipeline.datasource.offsets import Offsets

_LOG_INTERVAL_S = 60.0
_REQUEST_TIMEOUT_S = 30.0


class Purge:
    """Counts its requests and what they met. An error leaves records in place for the next purge, and is no failure."""

    def __init__(
        self, view: ClusterView, interval_ms: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._view = view
        self._interval_s = interval_ms / 1000
        self._now = now
        self._purged_at = now()
        self._logged_at = now() - _LOG_INTERVAL_S
        self._checked: set[str] = set()
        self._under_way: dict[TopicPartition, Future[Any]] = {}
        self.purges = 0
        """Requests sent."""
        self.errors = 0
        """Partitions that a request could not purge."""
        self._last_error = ""

    def check(self, topics: Iterable[str]) -> None:
        """Raises InvalidOption for a topic that is compacted and never deleted from."""
        unchecked = set(topics) - self._checked
        if refused := self._view.compacted_only(unchecked):
            raise InvalidOption(
                f"{', '.join(refused)}: consumed records cannot be purged from a topic with cleanup.policy=compact;"
                " it needs delete, too. Take purgeConsumedRecords and repartition.purge.interval.ms away, or add delete"
            )
        self._checked |= unchecked

    def after_commit(self, end: Offsets) -> None:
        """Delete what lies below `end`, if the interval is over and no purge is under way."""
        self._collect()
        if not self._under_way and self._now() - self._purged_at >= self._interval_s:
            self._send(end)
        self._log()

    def _send(self, end: Offsets) -> None:
        self.check({topic for topic, _ in end.next})
        # A topic that was created again has other records at these offsets.
        ids = self._view.partitions().topic_ids
        due = {
            place: offset
            for place, offset in end.next.items()
            if offset > 0 and ids.get(place[0]) == end.topic_ids.get(place[0])
        }
        if not due:
            return
        self._purged_at = self._now()
        self.purges += 1
        request = [TopicPartition(topic, partition, offset) for (topic, partition), offset in due.items()]
        self._under_way = self._view.admin.delete_records(request, request_timeout=_REQUEST_TIMEOUT_S)

    def _collect(self) -> None:
        """Take the answers that have come."""
        for asked, answer in list(self._under_way.items()):
            if not answer.done():
                continue
            del self._under_way[asked]
            try:
                answer.result()
            except KafkaException as error:
                self.errors += 1
                self._last_error = f"{asked.topic}-{asked.partition}: {error.args[0]}"

    def _log(self) -> None:
        if self.purges == 0 or self._now() - self._logged_at < _LOG_INTERVAL_S:
            return
        self._logged_at = self._now()
        logger().info(
            "purged consumed records %d times; %d partitions could not be purged%s",
            self.purges,
            self.errors,
            f", the last: {self._last_error}" if self.errors else "",
        )
