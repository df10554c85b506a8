"""The machine's clocks, the production `Clock`."""

from __future__ import annotations

import time


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_s(self) -> float:
        return time.perf_counter()

    def worked_s(self) -> float:
        return time.thread_time()
