"""The coordinators of a node, with the internal topics in which they keep their state, assembled."""

from __future__ import annotations

import asyncio
import random

from broker.config.layers import LiveSettings
from broker.controller.client import ControllerClient
from broker.controller.producer_ids import ProducerIds
from broker.controller.server import RequestServer
from broker.controller.service import MetadataService
from broker.coordinator.internal_topic import InternalTopic
from broker.environment import Clock
from broker.groups.coordinator import new_group_coordinator
from broker.groups.offsets_topic import offsets_topic_spec
from broker.replication.events import ReplicaEvents
from broker.replication.reads import Reads
from broker.replication.replicas import Replicas
from broker.scheduling.background import Background
from broker.scheduling.ticks import Ticks
from broker.serving.views import ClusterView
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.marker_writer import MarkerWriter
from broker.transactions.markers import MarkerSender
from broker.transactions.transaction_topic import transaction_topic_spec
from broker.transactions.verification import TransactionVerifier
from protocol.controller.transactions import JoinTransaction, WriteMarkers


class Coordinators:
    def __init__(
        self,
        settings: LiveSettings,
        metadata: MetadataService,
        controller: ControllerClient,
        requests: RequestServer,
        producer_ids: ProducerIds,
        replicas: Replicas,
        events: ReplicaEvents,
        reads: Reads,
        view: ClusterView,
        rng: random.Random,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        ticks: Ticks,
    ) -> None:
        config = settings.config
        self.offsets_topic = InternalTopic(
            offsets_topic_spec(config), metadata, controller, view.leader_of, view.endpoint_of
        )
        self.groups = new_group_coordinator(
            self.offsets_topic,
            settings,
            metadata,
            rng,
            clock,
            loop,
            background,
            reads,
            events,
            controller,
            ticks,
        )
        self.transaction_topic = InternalTopic(
            transaction_topic_spec(config), metadata, controller, view.leader_of, view.endpoint_of
        )
        markers = MarkerSender(loop, controller, lambda: metadata.image, view.leader_of_id, background)
        self.transactions = TransactionCoordinator(
            self.transaction_topic,
            settings,
            producer_ids,
            markers,
            controller,
            metadata.image,
            clock,
            loop,
            background,
            reads,
            events,
            ticks,
        )
        self.verifier = TransactionVerifier(self.transaction_topic, controller)
        # The markers of a transaction end its offsets, too.
        doors = {self.offsets_topic.name: self.groups.append_marker}
        self.marker_writer = MarkerWriter(replicas.by_key, doors, loop, background)
        requests.add_part(JoinTransaction, self.transactions.join)
        requests.add_part(WriteMarkers, self.marker_writer.execute)

    def close(self) -> None:
        """The node stops: nothing expires any more."""
        self.groups.close()
        self.transactions.close()
