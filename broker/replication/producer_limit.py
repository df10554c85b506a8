"""How many producer ids a node remembers (varve.max.producer.ids): of all its replicas together.

An id costs a client nothing, and a node more than a kilobyte on each replica. Expiration takes a day. So those that
have written nothing for longest are dropped when there are too many, first in the partitions that have the most. Each
node does that by itself, as with expiration: what its neighbours drop may differ a little.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import structlog

from broker.config.layers import LiveSettings
from broker.replication.replica import Replica
from broker.scheduling.ticks import Ticks
from storage.log_types import GroupKey

logger = structlog.get_logger()

#: How often they are counted. Counting with every batch would cost the produce path.
CHECK_S = 1.0
#: Where ids are dropped, so many more are, as a part of the limit.
_MORE_PART = 16


class ProducerLimit:
    def __init__(self, replicas: Mapping[GroupKey, Replica], settings: LiveSettings, ticks: Ticks) -> None:
        self._replicas = replicas
        self._settings = settings
        ticks.every(CHECK_S, self.check)

    def check(self, now: float) -> None:
        largest = [
            (-replica.producer_count, number, replica)
            for number, replica in enumerate(self._replicas.values())
            if replica.producer_count
        ]
        limit = self._settings.config.max_producer_ids
        count = -sum(size for size, _, _ in largest)
        if count <= limit:
            return
        excess = count - limit + limit // _MORE_PART
        dropped = 0
        heapq.heapify(largest)
        while dropped < excess and largest:
            negative_size, number, replica = heapq.heappop(largest)
            # Half of the largest, then of the one that is the largest then.
            gone = replica.drop_producers(min(-negative_size // 2 + 1, excess - dropped))
            dropped += gone
            if gone and -negative_size > gone:
                heapq.heappush(largest, (negative_size + gone, number, replica))
        logger.warning(
            "producer ids are dropped: there are more than varve.max.producer.ids",
            limit=limit,
            count=count,
            dropped=dropped,
            cause="max.producer.ids",
        )
