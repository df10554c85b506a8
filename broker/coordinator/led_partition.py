"""One partition of an internal topic that this node leads: its replica, its shard, and the requests that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from broker.coordinator.shard import Shard
from broker.coordinator.ticket import Ticket
from broker.replication.replica import Replica
from broker.scheduling.background import Steps

S = TypeVar("S", bound=Shard[Any])


class LedPartition(Generic[S]):
    """A partition of the internal topic that this node leads, in one term."""

    def __init__(self, replica: Replica, shard: S) -> None:
        self.replica = replica
        self.epoch = replica.leader_epoch
        self.shard = shard
        #: The shard holds all of the log and takes requests.
        self.is_loaded = False
        #: This build cannot decode the log, and requests are refused until the leadership ends. Excludes `is_loaded`.
        self.has_failed = False
        #: Cleared when the shard is discarded; whoever waits for the disk or for a peer looks here.
        self.is_current = True
        #: Every ticket that was taken and not answered, parked ones included.
        self.open: dict[Ticket[Any], None] = {}
        #: (producer id, is it a commit) of the transaction markers that were appended since loading began.
        self.unread_markers: list[tuple[int, bool]] = []
        #: Keys about which a decision is being made or carried out in steps, and what waits for its end. Nobody may
        #: look at such a key: its records are perhaps replayed in part.
        self._busy: dict[str, deque[Callable[[], None]]] = {}

    def is_busy(self, key: str) -> bool:
        return key in self._busy

    def occupy(self, key: str) -> None:
        assert key not in self._busy, "one decision about a key at a time"
        self._busy[key] = deque()

    def release(self, key: str) -> Steps:
        """The decision is carried out: call what waits for its end, until the key is busy again."""
        waiting = self._busy.pop(key)
        while waiting:
            waiting.popleft()()
            if key in self._busy:  # that one goes on in steps, and the others wait for it
                self._busy[key].extendleft(reversed(waiting))
                return
            self._busy[key] = waiting  # nobody comes in between
            yield
            del self._busy[key]

    def when_free(self, key: str, action: Callable[[], None]) -> None:
        """Call `action` now, or when the decisions about the key that came before it are carried out. It is not called
        if the shard is discarded before."""
        if key in self._busy:
            self._busy[key].append(action)
        else:
            action()
