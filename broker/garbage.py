"""When the process looks for dead objects that refer to each other.

Python does this by itself, whenever many objects were made. A full search looks at every object that is alive: 25 ms
with a thousand replicas. One request that names thousands of things would begin several of them. But hardly anything
here dies in such a way: only closed replicas, whose parts refer to each other. Everything else is freed at once when
nobody refers to it any more. So full searches are made when replicas were closed, and otherwise hardly ever.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

#: Python's defaults: objects that were made, less those that were freed; searches among the young ones.
_YOUNG, _MIDDLE = 700, 10
#: A full search by itself, in case that something else dies in cycles: when some seven million objects more were made
#: than freed.
_OLD = 1000

#: How long dead replicas are left alone.
COLLECT_AFTER_S = 60.0
#: And how many: some 12 KB each.
COLLECT_AFTER_REPLICAS = 2000


def search_rarely() -> None:
    """Of the whole process. Young objects are looked at as often as ever, which takes less than a millisecond."""
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)


class DeadReplicas:
    """The replicas of a node that were closed since the last full search."""

    def __init__(self, loop: asyncio.AbstractEventLoop, collect: Callable[[], object] = gc.collect) -> None:
        self._loop = loop
        self._collect = collect
        self._count = 0
        #: Set while there are any.
        self._timer: asyncio.TimerHandle | None = None

    def closed(self, _: object) -> None:
        """A replica was closed. Those that are closed together are still in use, so the search comes later."""
        self._count += 1
        if self._timer is None:
            self._timer = self._loop.call_later(COLLECT_AFTER_S, self._search)
        elif self._count == COLLECT_AFTER_REPLICAS:
            self._timer.cancel()
            self._timer = self._loop.call_later(0, self._search)

    def _search(self) -> None:
        self._count, self._timer = 0, None
        self._collect()
