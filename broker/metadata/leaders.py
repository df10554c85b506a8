"""Who leads which partition, as spread out of band (architecture.md section 5).

Not part of the metadata log: every node keeps such a table from what it hears, and the latest term wins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from uuid import UUID

from broker.metadata.ids import METADATA_TOPIC_ID

PartitionKey = tuple[UUID, int]


@dataclass(frozen=True, slots=True)
class Leadership:
    """The latest that was heard of one partition."""

    node_id: int | None
    """None: that leader is gone, and a newer one was not heard of."""
    term: int
    """The Raft term, which is the leader epoch of clients. Never goes back for a topic id."""
    configuration_index: int
    """Of the leader's *committed* configuration. An appended one may yet be cut off again, and the index
    would shut out the leaders after it."""
    established: bool
    """The first row of that term is committed: the leader serves reads up to the high watermark."""


_NOTHING: Mapping[int, Leadership] = MappingProxyType({})


class LeaderTable:
    """Invariant: `_led[n]` holds exactly the keys whose leadership names node n."""

    def __init__(self) -> None:
        #: By topic, because that is how clients ask; by partition number.
        self._topics: dict[UUID, dict[int, Leadership]] = {}
        self._led: dict[int, dict[PartitionKey, None]] = {}
        #: Counts the changes of this table.
        self.changes = 0

    def announce(
        self,
        topic_id: UUID,
        partition: int,
        node_id: int,
        term: int,
        configuration_index: int,
        established: bool,
        *,
        assigned: Collection[int],
    ) -> bool:
        """A node says that it leads. Returns whether the table changed.

        `assigned`: the nodes that hold the partition by the image. Another node may lead while the members move
        towards the target, but then its configuration is newer than the one known here (or than the founding
        one, index 0). Two more announcements are ignored: one of an older term, and one of an established leader
        with an older configuration, because a leader that committed in a later term knows all that was committed
        before (replication.md section 4).
        """
        key = (topic_id, partition)
        known = self.get(topic_id, partition)
        known_index = 0 if known is None else known.configuration_index
        if known is not None:
            if term < known.term:
                return False
            if term == known.term:
                return self._confirm(key, known, node_id, configuration_index, established)
        if established and configuration_index < known_index:
            return False
        if node_id not in assigned and configuration_index <= known_index:
            return False
        self._set(key, Leadership(node_id, term, max(configuration_index, known_index), established))
        return True

    def resigned(self, topic_id: UUID, partition: int, node_id: int) -> bool:
        """That node says that it does not lead any more. Returns whether the leader became unknown."""
        key = (topic_id, partition)
        known = self.get(topic_id, partition)
        if known is None or known.node_id != node_id:
            return False
        self._set(key, replace(known, node_id=None, established=False))
        return True

    def node_lost(self, node_id: int) -> list[PartitionKey]:
        """That node is gone, or is another process now: what it led has no known leader. Returns what it
        led."""
        lost = list(self._led.get(node_id, ()))
        for key in lost:
            self._set(key, replace(self._topics[key[0]][key[1]], node_id=None, established=False))
        return lost

    def forget_topic(self, topic_id: UUID) -> None:
        """The topic was deleted; its id is never used again."""
        self.changes += 1
        for partition, leadership in self._topics.pop(topic_id, {}).items():
            self._unlink((topic_id, partition), leadership)

    def get(self, topic_id: UUID, partition: int) -> Leadership | None:
        return self.of_topic(topic_id).get(partition)

    def controller_id(self) -> int:
        """The established leader of the metadata group; -1 where none is known."""
        known = self.get(METADATA_TOPIC_ID, 0)
        return -1 if known is None or known.node_id is None or not known.established else known.node_id

    def of_topic(self, topic_id: UUID) -> Mapping[int, Leadership]:
        """By partition number; without those of which nobody was heard."""
        return self._topics.get(topic_id, _NOTHING)

    def _confirm(
        self, key: PartitionKey, known: Leadership, node_id: int, configuration_index: int, established: bool
    ) -> bool:
        """The same term again: the leader has moved on, or its link has come back."""
        if known.node_id not in (None, node_id):
            return False  # a term has one leader: one of the two lies, and the replicas know which
        confirmed = Leadership(
            node_id,
            known.term,
            max(configuration_index, known.configuration_index),
            established or known.established,
        )
        if confirmed == known:
            return False
        self._set(key, confirmed)
        return True

    def _set(self, key: PartitionKey, leadership: Leadership) -> None:
        self.changes += 1
        partitions = self._topics.setdefault(key[0], {})
        known = partitions.get(key[1])
        if known is not None:
            assert leadership.term >= known.term
            self._unlink(key, known)
        partitions[key[1]] = leadership
        if leadership.node_id is not None:
            self._led.setdefault(leadership.node_id, {})[key] = None

    def _unlink(self, key: PartitionKey, leadership: Leadership) -> None:
        if leadership.node_id is not None:
            del self._led[leadership.node_id][key]
