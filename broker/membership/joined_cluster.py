"""The cluster that a node belongs to: its id, its metadata replica, and how both begin (replication.md section 10)."""

from __future__ import annotations

import random
from uuid import UUID

import structlog

from broker.config.node_config import NodeConfig
from broker.config.topic_config import TopicConfig
from broker.controller.service import METADATA_KEY, MetadataService
from broker.membership.identity import StartError
from broker.metadata.formation import ClusterFormation, Formation, FoundingVoter
from broker.metadata.ids import METADATA_TOPIC_NAME, NodeIdentity, cluster_id_problem
from broker.replication.messages import GroupMessages
from broker.replication.replicas import Replicas
from broker.replication.wire import founding_configuration, row_from_log
from raft.types import RowKind
from storage.directory import MetaProperties, format_directory
from storage.disk import Disk

logger = structlog.get_logger()


class JoinedCluster:
    """See the module. `cluster_id` is what the directory says: None if the node belongs to no cluster yet."""

    def __init__(
        self,
        me: NodeIdentity,
        cluster_id: str | None,
        config: NodeConfig,
        disk: Disk,
        rng: random.Random,
        replicas: Replicas,
        metadata: MetadataService,
        messages: GroupMessages,
    ) -> None:
        self.cluster_id = cluster_id
        self._me = me
        self._config = config
        self._disk = disk
        self._rng = rng
        self._replicas = replicas
        self._metadata = metadata
        self._messages = messages

    def open(self) -> ClusterFormation:
        """Open the metadata of the cluster, if there is one. Returns the state from which the nodes agree on one.

        Raises StartError."""
        configured = self._config.cluster_id
        if configured is not None and (problem := cluster_id_problem(configured)) is not None:
            raise StartError(f"cluster.id: {problem}")
        if self.cluster_id is not None:
            self._open_metadata()
        return ClusterFormation(
            self._me.node_id,
            self._me.directory_id,
            list(self._config.quorum_voters),
            self._rng,
            configured_cluster_id=configured,
            cluster_id=self.cluster_id,
            held=self.known_formation(),
        )

    def join(self, formation: Formation, founding: bool) -> None:
        """Become part of this cluster: row 0 first, then the identity that makes it count."""
        logger.info("joining a cluster", cluster_id=formation.cluster_id, founding=founding)
        self.cluster_id = formation.cluster_id
        self._open_metadata(formation if founding else None)
        format_directory(
            self._disk, MetaProperties(formation.cluster_id, self._me.node_id, self._me.directory_id)
        )
        # The others may have formed, and elected a leader, before this node heard of it.
        self._messages.opened(METADATA_KEY)

    def _open_metadata(self, founding: Formation | None = None) -> None:
        """Open (or begin) the metadata replica."""
        configuration = None if founding is None else founding_configuration(founding.voters)
        settings = {
            "cleanup.policy": "compact",
            "min.insync.replicas": "1",
            "segment.bytes": str(self._config.metadata_log_segment_bytes),
            "segment.ms": str(self._config.metadata_log_segment_ms),
        }
        config = TopicConfig.resolve(settings, self._config)
        replica = self._replicas.open(
            METADATA_KEY,
            METADATA_TOPIC_NAME,
            config,
            configuration,
            is_only_copy=len(self._config.quorum_voters) == 1,
        )
        if replica is None:
            raise StartError(f"the log of {METADATA_TOPIC_NAME} is damaged, and there is no other copy of it")
        self._metadata.attach_replica(replica)

    def known_formation(self) -> Formation | None:
        """The formation that row 0 of the metadata group tells. None where that row is not."""
        replica = self._metadata.replica
        if self.cluster_id is None or replica is None or not replica.log.lineage.rows:
            return None
        first = row_from_log(replica.log.lineage.rows[0])
        assert first.kind is RowKind.CONFIGURATION and first.configuration is not None
        return Formation(
            self.cluster_id,
            tuple(
                FoundingVoter(voter.node_id, UUID(bytes=voter.directory_id))
                for voter in first.configuration.voters
            ),
        )
