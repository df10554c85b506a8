"""What a run and a row gave.

A run gives a flat table of named figures (units in the names) and one per broker. A row is several runs; its
figure is the median, its spread (max - min) / median. Nothing is thrown away: each run stands in the JSON.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.rows import Row


@dataclass
class Run:
    """One run of a row. `errors` counts records without a good delivery report, read wrongly, or lost."""

    metrics: dict[str, float]
    brokers: dict[str, dict[str, float]] = field(default_factory=dict)
    errors: int = 0
    note: str = ""
    leader: str = ""

    @property
    def by_role(self) -> dict[str, dict[str, float]]:
        """`brokers` as the leader and the mean follower, for each run's topic may be led by another node.

        By node where the leader's process is not known, or the row has no leader.
        """
        if self.leader not in self.brokers:
            return self.brokers
        followers = [figures for node, figures in self.brokers.items() if node != self.leader]
        mean = {
            key: statistics.mean([figures[key] for figures in followers])
            for key in self.brokers[self.leader]
            if followers
        }
        return {"leader": self.brokers[self.leader], "follower": mean}


@dataclass
class RowResult:
    row: Row
    runs: list[Run]

    @property
    def errors(self) -> int:
        return sum(run.errors for run in self.runs)

    @property
    def median(self) -> dict[str, float]:
        return _median_by_key([run.metrics for run in self.runs])

    @property
    def brokers(self) -> dict[str, dict[str, float]]:
        tables = [run.by_role for run in self.runs]
        names = dict.fromkeys(name for table in tables for name in table)
        return {name: _median_by_key([table[name] for table in tables if name in table]) for name in names}

    @property
    def spread(self) -> dict[str, float]:
        """(max - min) / median of each metric; 0 where the median is 0."""
        return {
            key: (max(values) - min(values)) / middle if middle else 0.0
            for key, middle in self.median.items()
            if (values := [run.metrics[key] for run in self.runs if key in run.metrics])
        }


def _median_by_key(tables: list[dict[str, float]]) -> dict[str, float]:
    keys = dict.fromkeys(key for table in tables for key in table)
    return {key: statistics.median([table[key] for table in tables if key in table]) for key in keys}


def range_of_median(values: Sequence[float]) -> tuple[float, float]:
    """Where the median lies with a certainty of 95 %, by the order of the values, whatever their distribution.

    With fewer than nine values that is from the least to the greatest. `values` must not be empty.
    """
    ordered, count = sorted(values), len(values)
    rank = max(int((count + 1 - 1.96 * count**0.5) / 2), 1)
    return ordered[rank - 1], ordered[count - rank]
