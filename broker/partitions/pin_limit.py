"""Members that are away and keep tombstones or transaction markers from going for too long are left out of their group
until they are back (coordinated-compaction.md, section 7, bounded lag). Off by default (`varve.compaction.max.pin.ms`).

There is no mechanism of its own: such a member is removed, as in a reassignment, and its removal counts for the bounds
once it is committed. When its node is back, it is added again, under a row that its log is older than. So it discards
its log and copies all of it before it votes (rules F5 and L6).

An acknowledged record is on a majority of all replicas also meanwhile: of an odd number one may be left out, since a
majority of the others is as many; of an even number none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from broker.config.layers import LiveSettings
from broker.controller.service import MetadataService
from broker.membership.cluster import Cluster
from broker.replication.replica import Replica
from raft.types import ReplicaId


class PinLimit:
    def __init__(self, settings: LiveSettings, metadata: MetadataService, cluster: Cluster) -> None:
        self._settings = settings
        self._metadata = metadata
        self._cluster = cluster

    @property
    def _limit_ms(self) -> int:
        """Negative: there is none."""
        return self._settings.config.compaction_max_pin_ms

    @property
    def is_on(self) -> bool:
        return self._limit_ms >= 0

    def is_exceeded(self, leader: Replica, now: float) -> bool:
        pins = leader.bounds.pins
        members = chain(pins.of_tombstones, pins.of_markers)
        return any(self._is_over(leader, each, now) for each in members)

    def without_absent(self, leader: Replica, target: Sequence[ReplicaId], now: float) -> list[ReplicaId]:
        """The members that the group is to have now. Whoever was left out stays out until its node is back, also
        under the next leader, which does not know since when. A reassignment keeps all copies until its end."""
        if not self._applies(leader):
            return list(target)
        configuration = leader.group.configuration
        absent = [
            each
            for each in target
            if self._is_away(each) and (not configuration.names(each) or self._is_over(leader, each, now))
        ]
        left_out = min(absent, key=configuration.names, default=None)  # rather who is out already
        return [each for each in target if each != left_out]

    def _is_over(self, leader: Replica, member: ReplicaId, now: float) -> bool:
        if not self._applies(leader) or not self._is_away(member):
            return False
        pins = leader.bounds.pins
        return any(
            pin is not None and (now - pin.since) * 1000 >= self._limit_ms
            for pin in (pins.of_tombstones.get(member), pins.of_markers.get(member))
        )

    def _applies(self, leader: Replica) -> bool:
        if not self.is_on or leader.is_metadata:
            return False
        topic = self._metadata.image.topics.get(leader.key.topic_id)
        if topic is None:
            return False
        assigned = topic.partitions[leader.partition]
        return not assigned.is_reassigning and len(assigned.replicas) % 2 == 1

    def _is_away(self, member: ReplicaId) -> bool:
        broker = self._metadata.image.brokers.get(member.node_id)
        return broker is None or not self._cluster.is_alive(broker)
