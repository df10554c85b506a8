"""Metrics of partitions and topics: who leads, who keeps up, which replicas differ, how large the logs are, what comes
in and goes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker.metadata.leaders import LeaderTable
from broker.metrics import catalogue as names
from broker.metrics.families import Row, family, single
from broker.replication.events import ReplicaEvents
from broker.replication.replica import Replica
from broker.replication.topic_traffic import TopicTraffic
from broker.serving.context import Context
from broker.verification.results import Outcome
from storage.log_types import GroupKey


class LeaderChanges:
    """Counts the leaderships that this node has begun."""

    def __init__(self, events: ReplicaEvents) -> None:
        self.count = 0
        #: The term of the last leadership that was counted.
        self._terms: dict[GroupKey, int] = {}
        events.role_changed.append(self._role_changed)
        events.closed.append(self._closed)

    def _role_changed(self, replica: Replica) -> None:
        if replica.is_leader and self._terms.get(replica.key) != replica.leader_epoch:
            self._terms[replica.key] = replica.leader_epoch
            self.count += 1

    def _closed(self, key: GroupKey) -> None:
        self._terms.pop(key, None)


class PartitionMetrics(Collector):
    def __init__(self, node_id: int, context: Context, leaders: LeaderTable, changes: LeaderChanges) -> None:
        self._node_id = node_id
        self._context = context
        self._leaders = leaders
        self._changes = changes

    def collect(self) -> Iterator[Metric]:
        """Each family is a walk over all replicas. Some may be closed on the way."""
        replicas = list(self._context.replicas.by_name.values())
        yield from single(names.PARTITIONS, len(replicas))
        yield from self._collect_sizes(replicas)
        yield from self._collect_traffic(replicas)
        yield from self._collect_offsets(replicas)
        yield from self._collect_followers(replicas)
        yield from self._collect_comparisons()
        yield from family(names.OFFLINE, self._offline())
        yield from single(names.LEADER_CHANGES, self._changes.count)

    def _collect_sizes(self, replicas: list[Replica]) -> Iterator[Metric]:
        by_topic: Counter[tuple[str, str]] = Counter()

        def rows() -> Iterator[Row]:
            for replica in replicas:
                size_bytes = replica.log.size_bytes
                by_topic[replica.topic, ",".join(replica.config.cleanup_policy)] += size_bytes
                yield place(replica), size_bytes

        yield from family(names.PARTITION_BYTES, rows())
        yield from family(names.TOPIC_BYTES, by_topic.items())

    def _collect_traffic(self, replicas: list[Replica]) -> Iterator[Metric]:
        topics: dict[str, TopicTraffic] = {replica.topic: replica.traffic for replica in replicas}
        for definition, number in _TRAFFIC:
            yield from family(definition, (((topic,), number(each)) for topic, each in topics.items()))

    def _collect_offsets(self, replicas: list[Replica]) -> Iterator[Metric]:
        for definition, offset in _OFFSETS:
            yield from family(definition, _of_leaders(replicas, offset))

    def _collect_followers(self, replicas: list[Replica]) -> Iterator[Metric]:
        """Who keeps up. The node's counts come from the same look at the partitions."""
        led = under_replicated = under_min_isr = 0

        def in_sync() -> Iterator[Row | None]:
            nonlocal led, under_replicated, under_min_isr
            host = self._context.replicas
            for replica in replicas:
                if not _is_led(replica):
                    yield None
                    continue
                count = len(replica.group.in_sync(host.now(), host.replica_lag_time_max_s))
                led += 1
                under_replicated += count < self._assigned(replica)
                under_min_isr += count < replica.config.min_insync_replicas
                yield place(replica), count

        yield from family(names.IN_SYNC, in_sync())
        yield from family(names.ASSIGNED, _of_leaders(replicas, self._assigned))
        yield from family(names.FOLLOWER_LAG, _follower_lags(replicas))
        yield from single(names.LED, led)
        yield from single(names.UNDER_REPLICATED, under_replicated)
        yield from single(names.UNDER_MIN_ISR, under_min_isr)

    def _collect_comparisons(self) -> Iterator[Metric]:
        verification = self._context.verification
        yield from family(names.COMPARISONS, [((each,), verification.outcomes[each]) for each in Outcome])
        replicas = list(self._context.replicas.by_key.values())  # that of the metadata, too
        found = _of_leaders(replicas, lambda replica: verification.mismatches[replica.key])
        yield from family(names.MISMATCHES, found)

    def _assigned(self, replica: Replica) -> int:
        topic = self._context.image.topics.get(replica.key.topic_id)
        return 0 if topic is None else len(topic.partitions[replica.partition].replicas)

    def _offline(self) -> Iterator[Row | None]:
        count = 0
        if self._leaders.controller_id() == self._node_id:
            for topic in list(self._context.image.topics.values()):
                for number in range(len(topic.partitions)):
                    count += self._context.view.leader_of_id(topic.topic_id, number)[0] < 0
                    yield None
        yield (), count


def place(replica: Replica) -> tuple[str, str]:
    """The labels `topic` and `partition`."""
    return replica.topic, str(replica.partition)


def _is_led(replica: Replica) -> bool:
    return replica.is_open and replica.is_serving


def _of_leaders(replicas: Iterable[Replica], number: Callable[[Replica], int]) -> Iterator[Row | None]:
    for replica in replicas:
        yield (place(replica), number(replica)) if _is_led(replica) else None


def _follower_lags(replicas: Iterable[Replica]) -> Iterator[Row | None]:
    for replica in replicas:
        yield None  # a step, also of a partition without followers
        leading = replica.group.leading
        if leading is None or not _is_led(replica):
            continue
        topic, partition = place(replica)
        end_offset = replica.offset_of(replica.group.end_index)
        for progress in leading.replication.followers:
            lag = end_offset - replica.offset_of(progress.match_end)
            yield (topic, partition, str(progress.replica.node_id)), lag


_TRAFFIC: tuple[tuple[names.Definition, Callable[[TopicTraffic], int]], ...] = (
    (names.PRODUCED_RECORDS, lambda traffic: traffic.produced_records),
    (names.PRODUCED_BYTES, lambda traffic: traffic.produced_bytes),
    (names.FETCHED_BYTES, lambda traffic: traffic.fetched_bytes),
)
_OFFSETS: tuple[tuple[names.Definition, Callable[[Replica], int]], ...] = (
    # What readers are shown. The property asks the group, too, which is not for a look from outside.
    (names.LOG_START, lambda replica: replica.log_start.committed),
    (names.LOG_END, lambda replica: replica.log.end_offset),
    (names.HIGH_WATERMARK, lambda replica: replica.high_watermark),
    (names.LAST_STABLE, lambda replica: replica.last_stable_offset),
)
