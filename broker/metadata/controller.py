"""The decisions of the metadata leader: each method reads the image and returns records, and changes nothing.

The broker appends the records, replays them into the leader's image at append, and answers when they are
committed (replication.md section 9). A decision therefore sees all earlier ones, committed or not, provided
that it is appended and replayed before the next is asked for.

Each family of decisions is a part of its own (`broker.metadata.decisions`). What the cluster has one of is decided
here.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from broker.config.resources import Resources
from broker.metadata.decisions.brokers import BrokerDecisions
from broker.metadata.decisions.common import ControllerConfig
from broker.metadata.decisions.features import FeatureDecisions
from broker.metadata.decisions.reassignments import ReassignmentDecisions
from broker.metadata.decisions.settings import SettingDecisions
from broker.metadata.decisions.topics import TopicDecisions
from broker.metadata.ids import cluster_id_problem
from broker.metadata.image import MetadataImage
from broker.metadata.record_codec import encode
from broker.metadata.records import BrokerRecord, ClusterRecord, ProducerIdsRecord
from broker.metadata.requests import Decision, ProducerIdBlock
from protocol.errors import ErrorCode, KafkaError

#: Producer ids are int64 on the wire.
_MAX_PRODUCER_ID = 2**63 - 1


class Controller:
    """All that can be asked of the metadata leader."""

    def __init__(
        self,
        image: MetadataImage,
        config: ControllerConfig,
        rng: random.Random,
        *,
        is_alive: Callable[[BrokerRecord], bool],
        resources: Resources,
    ) -> None:
        """`is_alive`: whether that very registration (node id and directory id) is connected now."""
        self._image = image
        self.topics = TopicDecisions(image, config, rng, is_alive, resources)
        self.brokers = BrokerDecisions(image, is_alive)
        self.reassignments = ReassignmentDecisions(image, is_alive)
        self.features = FeatureDecisions(image)
        self.settings = SettingDecisions(image, config, resources)

    def name_cluster(self, cluster_id: str) -> Decision[None]:
        """The first leader of a new cluster records the id that formation gave it. Raises
        KafkaError(INCONSISTENT_CLUSTER_ID) for another id than the recorded one."""
        if self._image.cluster_id == cluster_id:
            return Decision((), None)
        if self._image.cluster_id is not None:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this is cluster {self._image.cluster_id}, not {cluster_id}",
            )
        if (problem := cluster_id_problem(cluster_id)) is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
        return Decision((encode(ClusterRecord(cluster_id)),), None)

    def allocate_producer_ids(self, count: int = 1000) -> Decision[ProducerIdBlock]:
        """A block for one broker. It is recorded before any id of it is used (replication.md section 8)."""
        assert count > 0
        first = self._image.next_producer_id
        if first + count > _MAX_PRODUCER_ID:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
        return Decision((encode(ProducerIdsRecord(first + count)),), ProducerIdBlock(first, count))
