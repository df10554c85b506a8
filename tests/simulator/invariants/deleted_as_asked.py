"""Nothing is deleted that nobody asked to: a log start is at or below the highest that a client ever asked for, and 0
where nobody does (KIP-107), but for what the topic's retention takes."""

from __future__ import annotations

import math

from broker.replication.replica import Replica
from storage.log_types import GroupKey


class DeletedAsAsked:
    def __init__(self) -> None:
        self._asked: dict[GroupKey, float] = {}
        #: Topics that an administrator gave a retention meanwhile; a node may act on that, or hear of its end, late.
        self._retained: dict[str, None] = {}

    def asked(self, key: GroupKey, offset: int) -> None:
        """A client is about to ask. -1: everything that is committed when the request arrives."""
        self._asked[key] = max(self._asked.get(key, 0), math.inf if offset < 0 else offset)

    def retained(self, topic: str) -> None:
        """A client is about to have the topic lose what is old or too much."""
        self._retained[topic] = None

    def check(self, replica: Replica) -> None:
        config = replica.config
        if config.retention_ms >= 0 or config.retention_bytes >= 0 or replica.topic in self._retained:
            return
        asked = self._asked.get(replica.key, 0)
        assert replica.log.start_offset <= asked, (
            f"{replica.topic}-{replica.partition} begins at {replica.log.start_offset} on "
            f"{replica.group.self_id}, asked to be deleted was all below {asked}"
        )
