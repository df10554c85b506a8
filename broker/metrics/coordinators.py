"""Metrics of consumer groups and of transactions, from their coordinators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker.environment import Clock
from broker.groups.coordinator import GroupCoordinator
from broker.metrics import catalogue as names
from broker.metrics.families import Row, family, single
from broker.replication.replica import Replica
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.states import TransactionState

#: Committed offsets that are shown. Clients name groups, and names cost them nothing.
MAX_OFFSETS = 10_000
MAX_NAME = 255


class GroupMetrics(Collector):
    def __init__(self, groups: GroupCoordinator, replicas: Mapping[tuple[str, int], Replica]) -> None:
        """`replicas`: of this node, by topic and partition."""
        self._groups = groups
        self._replicas = replicas

    def collect(self) -> Iterator[Metric]:
        yield from family(names.GROUPS, self._states())
        shown: list[tuple[tuple[str, str, str], int]] = []
        left_out: Counter[None] = Counter()
        yield from family(names.GROUP_OFFSET, self._offsets(shown, left_out))
        yield from family(names.GROUP_LAG, (self._lag(labels, offset) for labels, offset in shown))
        yield from single(names.GROUP_OFFSETS_LEFT_OUT, left_out[None])

    def _states(self) -> Iterator[Row | None]:
        counts: Counter[tuple[str, str]] = Counter()
        for led in self._groups.loaded_partitions():
            for group in list(led.shard.groups.values()):
                counts[group.group_type, group.state] += 1
                yield None
        yield from counts.items()

    def _offsets(
        self, shown: list[tuple[tuple[str, str, str], int]], left_out: Counter[None]
    ) -> Iterator[Row | None]:
        for led in self._groups.loaded_partitions():
            offsets = led.shard.offsets
            for group in list(offsets.group_ids):
                for topic, partitions in list(offsets.of_group_by_topic(group).items()):
                    if len(group) > MAX_NAME or len(shown) + len(partitions) > MAX_OFFSETS:
                        left_out[None] += len(partitions)
                        yield None
                        continue
                    for partition, committed in list(partitions.items()):
                        row = (group, topic, str(partition)), committed.offset
                        shown.append(row)
                        yield row
                yield None

    def _lag(self, labels: tuple[str, str, str], offset: int) -> Row | None:
        """None: this node does not know how far the partition is."""
        replica = self._replicas.get((labels[1], int(labels[2])))
        return None if replica is None else (labels, max(0, replica.high_watermark - offset))


class TransactionMetrics(Collector):
    def __init__(self, transactions: TransactionCoordinator, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        began_ms: list[int] = []
        yield from family(names.TRANSACTIONS, self._states(began_ms))
        now_ms = self._clock.now_ms()
        yield from single(names.TRANSACTION_AGE, max(0, now_ms - min(began_ms, default=now_ms)) / 1000)

    def _states(self, began_ms: list[int]) -> Iterator[Row | None]:
        open_count = ending = 0
        for shard in self._transactions.loaded_shards():
            for transactional_id in shard.ids():
                metadata = shard.get(transactional_id)
                if metadata is not None and metadata.state is TransactionState.ONGOING:
                    open_count += 1
                    began_ms.append(metadata.started_ms)
                elif metadata is not None:
                    ending += metadata.state.is_prepared
                yield None
        yield ("open",), open_count
        yield ("ending",), ending
