"""Watermarks are monotone for readers that send their leader epoch (replication.md section 6).

A leader that answers under epoch e has everything that was ever shown under e and before: its high watermark because
its own first row is committed, its log start because a majority had persisted what was shown and its voters told it.
So not only one reader's watermarks are monotone, but those of all of them, in order of epochs; and what is below a log
start that somebody was shown is not served again.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.log_types import GroupKey


class Watermarks(NamedTuple):
    log_start: int
    high_watermark: int
    last_stable: int = 0


class WatermarksMonotone:
    def __init__(self) -> None:
        #: The highest of each that was shown, by group and epoch.
        self._shown: dict[GroupKey, dict[int, Watermarks]] = {}

    def floor(self, key: GroupKey, epoch: int | None = None) -> Watermarks:
        """What a request that is sent now must not be answered below: what was shown under this epoch and before,
        or, to one that waits for a liveness round, whatever was shown."""
        shown = [marks for at, marks in self._shown.get(key, {}).items() if epoch is None or at <= epoch]
        return Watermarks(
            max((marks.log_start for marks in shown), default=0),
            max((marks.high_watermark for marks in shown), default=0),
            max((marks.last_stable for marks in shown), default=0),
        )

    def shown(
        self,
        key: GroupKey,
        epoch: int,
        floor: Watermarks,
        *,
        log_start: int = -1,
        high_watermark: int = -1,
        last_stable: int = -1,
    ) -> None:
        """An answer under `epoch` came; `floor` is of the moment of its request. -1: it does not say."""
        if log_start >= 0:
            assert log_start >= floor.log_start, (
                f"log start of {key} goes back from {floor.log_start} to {log_start} (epoch {epoch})"
            )
        if high_watermark >= 0:
            assert high_watermark >= floor.high_watermark, (
                f"high watermark of {key} goes back from {floor.high_watermark} to {high_watermark} "
                f"(epoch {epoch})"
            )
        if last_stable >= 0:
            assert last_stable >= floor.last_stable, (
                f"last stable offset of {key} goes back from {floor.last_stable} to {last_stable} (epoch {epoch})"
            )
        epochs = self._shown.setdefault(key, {})
        known = epochs.get(epoch, Watermarks(0, 0))
        epochs[epoch] = Watermarks(
            max(known.log_start, log_start),
            max(known.high_watermark, high_watermark),
            max(known.last_stable, last_stable),
        )
