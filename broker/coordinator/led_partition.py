"""One partition of an internal topic that this node leads: its replica, its shard, and the requests that wait."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from broker.coordinator.shard import Shard
from broker.coordinator.ticket import Ticket
from broker.replication.replica import Replica

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
