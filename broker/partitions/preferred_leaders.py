"""Leadership at work: each partition is led by the replica that metadata names first, where that one can lead.

Leaders move when nodes stop and start. Every leader checks now and then whether it leads what another node should lead
(`auto.leader.rebalance.enable`, `leader.imbalance.check.interval.seconds`), and transfers those leaderships, a few at a
time. The target has to hold the whole log: the partition takes no appends until the target leads, which is a round
trip. A target that lags is left alone until the next check. ElectLeaders asks for the same at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import structlog

from broker.config.layers import LiveSettings
from broker.controller.service import MetadataService
from broker.membership.cluster import Cluster
from broker.metadata.ids import METADATA_TOPIC_ID, NodeIdentity
from broker.partitions.reconciler import assigned_replicas
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.scheduling.background import Background, Steps
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from protocol.controller.replicas import TransferLeadership, TransferLeadershipResult
from protocol.errors import ErrorCode, KafkaError
from raft.types import ReplicaId
from storage.log_types import GroupKey

logger = structlog.get_logger()

#: Leaderships that are transferred with one tick: clients of all of them look for the new leader at once.
TRANSFERS_PER_TICK = 8
#: The target has held the whole log this long ago at the most, or it would keep the partition waiting.
MAX_LAG_S = 1.0


class PreferredLeaders:
    """What this node leads in another's place."""

    def __init__(
        self,
        me: NodeIdentity,
        settings: LiveSettings,
        metadata: MetadataService,
        replicas: Replicas,
        cluster: Cluster,
        background: Background,
        ticks: Ticks,
    ) -> None:
        self._me = me
        self._settings = settings
        self._metadata = metadata
        self._replicas = replicas
        self._cluster = cluster
        self._background = background
        self._next_check_at = replicas.now() + self._interval_s
        #: Found by the last check, not transferred yet.
        self._due: deque[GroupKey] = deque()
        ticks.every(SLOW_TICK_S, self._tick)

    @property
    def _interval_s(self) -> float:
        return float(self._settings.config.leader_imbalance_check_interval_s)

    def _tick(self, now: float) -> None:
        if now >= self._next_check_at and not self._due:
            self._next_check_at = now + self._interval_s
            if self._settings.config.auto_leader_rebalance_enable:
                self._due.extend(key for key in self._replicas.by_key if self._preferred(key) is not None)
        for _ in range(min(TRANSFERS_PER_TICK, len(self._due))):
            self.transfer_leadership(self._due.popleft())

    def transfer_leadership(self, key: GroupKey) -> ErrorCode:
        """Begin to transfer a leadership to the preferred replica. NONE: it is under way, and may yet fail."""
        replica = self._replicas.by_key.get(key)
        if replica is None or not replica.is_serving:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        preferred = self._preferred(key)
        if preferred is None:
            return ErrorCode.ELECTION_NOT_NEEDED
        group, now = replica.group, self._replicas.now()
        if (
            preferred not in group.configuration.voters
            or not self._cluster.is_connected(preferred.node_id)
            or not group.is_caught_up(preferred, now, MAX_LAG_S)
        ):
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if not replica.driver.transfer_leadership(preferred):
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        _log_transfer(replica, preferred.node_id)
        return ErrorCode.NONE

    def _preferred(self, key: GroupKey) -> ReplicaId | None:
        """Who should lead a partition that this node leads; None where this node should, or does not. As the metadata
        names it: a voter of the same node that began anew since has the whole log for ever, and never takes over."""
        replica = self._replicas.by_key[key]
        topic = self._metadata.image.topics.get(key.topic_id)
        if key.topic_id == METADATA_TOPIC_ID or topic is None or not replica.is_leader:
            return None
        preferred, *_ = assigned_replicas(topic.partitions[key.partition])
        return None if preferred.node_id == self._me.node_id else preferred

    def execute(
        self,
        request: TransferLeadership,
        reply: Callable[[TransferLeadershipResult | KafkaError, int], None],
    ) -> None:
        """A node asks for transfers at once (`broker.controller.server.Execute`)."""
        self._background.run(self._transfer_all(request, reply))

    def _transfer_all(
        self,
        request: TransferLeadership,
        reply: Callable[[TransferLeadershipResult | KafkaError, int], None],
    ) -> Steps:
        codes: list[int] = []
        for each in request.partitions:
            codes.append(self.transfer_leadership(GroupKey(each.topic_id, each.partition)))
            yield
        reply(TransferLeadershipResult(error_codes=codes), 0)


def _log_transfer(replica: Replica, to: int) -> None:
    logger.info(
        "leadership goes to the preferred replica", topic=replica.topic, partition=replica.partition, to=to
    )
