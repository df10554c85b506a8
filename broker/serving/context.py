"""The parts of a node that handlers may use. They cannot reach any other part."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker.compaction.worker import CompactionWorker
    from broker.config.layers import LiveSettings
    from broker.config.node_config import NodeConfig
    from broker.config.resources import Resources
    from broker.controller.client import ControllerClient
    from broker.controller.producer_ids import ProducerIds
    from broker.controller.service import MetadataService
    from broker.coordinator.internal_topic import InternalTopic
    from broker.environment import Clock
    from broker.groups.coordinator import GroupCoordinator
    from broker.metadata.image import MetadataImage
    from broker.network.connection_registry import ConnectionRegistry
    from broker.partitions.leader_waits import LeaderWaits
    from broker.partitions.new_topics import NewTopics
    from broker.replication.reads import Reads
    from broker.replication.replicas import Replicas
    from broker.scheduling.turn import Turn
    from broker.serving.aborted_loads import AbortedLoads
    from broker.serving.answer_cache import AnswerCache
    from broker.serving.api import Api
    from broker.serving.fetch_sessions import FetchSessions
    from broker.serving.long_polls import LongPolls
    from broker.serving.long_requests import LongRequests
    from broker.serving.pending import PendingAnswers
    from broker.serving.quotas import ClientQuotas
    from broker.serving.views import ClusterView
    from broker.transactions.coordinator import TransactionCoordinator
    from broker.transactions.marker_writer import MarkerWriter
    from broker.transactions.verification import TransactionVerifier
    from broker.verification.verifier import ReplicaVerifier


class Volume(Protocol):
    """The file system that holds the data directory; `storage.disk.Disk` is one."""

    def total_bytes(self) -> int: ...
    def free_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Context:
    """One object per node, the same for all requests."""

    apis: Sequence[Api]
    """All APIs that are served."""
    loop: asyncio.AbstractEventLoop
    clock: Clock
    turn: Turn
    settings: LiveSettings
    resources: Resources
    metadata: MetadataService
    """Its `image` is the committed metadata, as far as this node has replayed it."""
    view: ClusterView
    """What clients are shown of the cluster: brokers, leaders, replicas."""
    replicas: Replicas
    reads: Reads
    """For an answer that only the present leader may give."""
    controller: ControllerClient
    """For requests that change the cluster's metadata."""
    producer_ids: ProducerIds
    groups: GroupCoordinator
    offsets_topic: InternalTopic
    transactions: TransactionCoordinator
    marker_writer: MarkerWriter
    verifier: TransactionVerifier
    """For the partitions that this node leads: whether records of a transaction may be appended there."""
    compaction: CompactionWorker
    verification: ReplicaVerifier
    leader_waits: LeaderWaits
    new_topics: NewTopics
    quotas: ClientQuotas
    connections: ConnectionRegistry
    fetch_sessions: FetchSessions
    aborted_loads: AbortedLoads
    long_polls: LongPolls
    pending: PendingAnswers
    long_requests: LongRequests
    metadata_answers: AnswerCache
    volume: Volume

    @property
    def config(self) -> NodeConfig:
        """The settings in force now."""
        return self.settings.config

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def now(self) -> float:
        """Loop time, seconds."""
        return self.loop.time()
