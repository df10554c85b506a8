"""A count over the last seconds."""

from __future__ import annotations

from collections import deque

_BUCKETS = 20


class RollingCount:
    """How often something happened within the last `window_s` seconds, exact to a twentieth of the window."""

    def __init__(self, window_s: float) -> None:
        self._bucket_s = window_s / _BUCKETS
        self._buckets: deque[tuple[int, int]] = deque()
        self._total = 0

    def add(self, count: int, now: float) -> None:
        bucket = int(now / self._bucket_s)
        self._forget_before(bucket)
        if self._buckets and self._buckets[-1][0] >= bucket:
            last, number = self._buckets.pop()
            self._buckets.append((last, number + count))
        else:
            self._buckets.append((bucket, count))
        self._total += count

    def total(self, now: float) -> int:
        self._forget_before(int(now / self._bucket_s))
        return self._total

    def clear(self) -> None:
        self._buckets.clear()
        self._total = 0

    def _forget_before(self, bucket: int) -> None:
        while self._buckets and self._buckets[0][0] <= bucket - _BUCKETS:
            self._total -= self._buckets.popleft()[1]
