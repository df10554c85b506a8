"""Metrics of compaction."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker.compaction.totals import CompactionTotals
from broker.metrics import catalogue as names
from broker.metrics.families import LONG, histogram, single


class CompactionMetrics(Collector):
    def __init__(self, totals: CompactionTotals) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        totals = self._totals
        yield from single(names.COMPACTIONS, sum(totals.durations.counts))
        yield from single(names.CLEANED, totals.removed_bytes)
        yield from single(names.COMPACTION_FAILURES, totals.failure_count)
        yield from histogram(names.COMPACTION_TIME, [((), totals.durations)], LONG)
