"""One node, assembled: the composition root (architecture.md section 2).

    Node(config, disk, network, clock, rng, fail, observer)

Everything that the outside world is comes in through the constructor; in production that is a real disk and TCP, in
the simulator a memory disk and a memory network, and nothing in here can tell.

Start: lock the directory, read identity and journal, open the metadata replica, meet the other nodes; register with
the controller; when the own registration of *this* start has been replayed, the metadata image is current (it was
appended after we started): open the partitions it assigns to us, and only then serve clients.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from uuid import UUID

import structlog

from broker.config.layers import LiveSettings
from broker.config.node_config import NodeConfig
from broker.config.resources import Resources
from broker.config.topic_config import TopicConfig
from broker.controller.client import ControllerClient
from broker.controller.producer_ids import ProducerIds
from broker.controller.registration import Registration
from broker.controller.server import RequestServer
from broker.controller.service import METADATA_KEY, MetadataService
from broker.coordinator.internal_topic import InternalTopic
from broker.environment import Clock, Listener, Network, ProtocolFactory
from broker.groups.coordinator import GroupMaintenance, new_group_coordinator
from broker.groups.offsets_topic import offsets_topic_spec
from broker.handlers import APIS
from broker.membership.cluster import Cluster
from broker.membership.cluster_events import ClusterEvents
from broker.membership.identity import StartError, open_identity
from broker.metadata.decisions.common import ControllerConfig
from broker.metadata.formation import ClusterFormation, Formation, FoundingVoter
from broker.metadata.ids import METADATA_TOPIC_NAME, NodeIdentity, random_uuid
from broker.metadata.image import Change, ConfigsChanged
from broker.metadata.leaders import LeaderTable
from broker.network.connection import ClientConnection
from broker.network.connection_registry import ConnectionRegistry
from broker.partitions.controlled_shutdown import transfer_leaderships
from broker.partitions.leader_waits import LeaderWaits
from broker.partitions.new_topics import NewTopics
from broker.partitions.preferred_leaders import PreferredLeaders
from broker.partitions.publisher import Publisher
from broker.partitions.reconciler import Reconciler
from broker.replication.events import ObservedPeers, Observer, ReplicaEvents
from broker.replication.heartbeat import Heartbeat
from broker.replication.messages import GroupMessages
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from broker.replication.replicas import APPEND_BATCH_BYTES, Replicas
from broker.replication.wire import founding_configuration, row_from_log
from broker.scheduling.commit_delay import CommitDelay
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from broker.scheduling.turn import Turn
from broker.serving.answer_cache import AnswerCache
from broker.serving.context import Context
from broker.serving.dispatcher import ApiDispatcher
from broker.serving.fetch_sessions import FetchSessions
from broker.serving.long_requests import LongRequests
from broker.serving.pending import PendingAnswers
from broker.serving.quotas import ClientQuotas
from broker.serving.views import ClusterView
from protocol.controller.replicas import TransferLeadership
from raft.liveness import NodeLiveness
from raft.liveness_types import LivenessTiming
from raft.types import RowKind, Timing
from storage.directory import MetaProperties, format_directory, write_clean_marker
from storage.disk import Disk
from storage.group_commit import FlushRounds
from storage.log import Log
from storage.log_types import FlushedEnd

logger = structlog.get_logger()


class Node:
    """See the module. `fail` is called with what makes going on impossible; it does not return in production. The parts
    are public, for tests and for whoever looks into a running node; they do not know the node."""

    def __init__(
        self,
        config: NodeConfig,
        disk: Disk,
        network: Network,
        clock: Clock,
        rng: random.Random,
        fail: Callable[[BaseException], None],
        observer: Observer | None = None,
    ) -> None:
        self.settings = LiveSettings(config)
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.ticks = Ticks(self.loop)
        self._disk = disk
        self._network = network
        self._rng = rng
        self._fail = fail
        self._observer = observer
        self._listeners: list[Listener] = []
        self._boot_id = random_uuid(rng)
        #: None: this node belongs to no cluster yet.
        self.cluster_id: str | None = None
        #: Clients are served.
        self.ready = asyncio.Event()

    @property
    def config(self) -> NodeConfig:
        """What counts now. Settings that are not dynamic never change."""
        return self.settings.config

    # -- start -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when clients are served. Raises StartError, DiskError."""
        self._open_directory()
        self._assemble_replication()
        self._assemble_metadata()
        self._assemble_partitions()
        self._assemble_serving()
        self._join_cluster()
        peers = self.config.controller_endpoint
        await self._listen(peers.host, peers.port, self.cluster.accept, for_peers=True)
        self.cluster.start()
        self.heartbeat.start()
        self.ticks.start()
        await self.publisher.opened.wait()
        self.ready.set()
        for listener in self.config.client_listeners:
            await self._listen(listener.host, listener.port, self._client_factory(listener.name))

    def _open_directory(self) -> None:
        self._disk.make_directory(self._disk.root)
        self._disk.lock()
        directory_id, self.cluster_id, self._is_clean_start, self.journal = open_identity(
            self._disk, self.config, self._rng
        )
        self.me = NodeIdentity(self.config.node_id, directory_id, self._boot_id)

    def _assemble_replication(self) -> None:
        """From the disk up to the groups: flush rounds, replicas, and who is alive."""
        config, loop = self.config, self.loop
        self.turn = Turn(loop, CommitDelay(self.clock.steady_s, config.commit_delay_us / 1e6))
        self.rounds = FlushRounds(
            self._disk,
            self.journal,
            now=loop.time,
            on_durable=self._log_durable,
            on_fatal=self._fail,
            prepare_reply=self._prepare_reply,
        )
        self.turn.set_rounds(self.rounds)
        self.cluster = Cluster(self.me, config, self._network, self.turn, loop, self.ticks)
        self.replica_events = ReplicaEvents()
        peers: Cluster | ObservedPeers = self.cluster
        if self._observer is not None:
            peers = ObservedPeers(peers, self._observer)
            self.replica_events.role_changed.append(self._observer.role_changed)
            self.replica_events.commit_advanced.append(self._observer.commit_advanced)
            self.replica_events.truncating.append(self._observer.truncating)
        timing = Timing(
            election_timeout_s=config.election_timeout_ms / 1000, append_batch_bytes=APPEND_BATCH_BYTES
        )
        self.replicas = Replicas(
            peers,
            self.replica_events,
            self.settings,
            self.ticks,
            loop,
            self.clock,
            self._disk,
            self.journal,
            self.rounds,
            self.turn,
            self._rng,
            timing,
            self.me.node_id,
            self.me.directory_id,
            self._is_clean_start,
            config.replica_lag_time_max_ms / 1000,
        )
        self.messages = GroupMessages(self.replicas)
        self.leaders = LeaderTable()
        # An isolated leader must have stepped down after two election timeouts, a heartbeat included.
        liveness_timing = LivenessTiming(
            ping_interval_s=config.heartbeat_interval_ms / 1000,
            election_timeout_s=timing.election_timeout_s,
            check_quorum_s=1.5 * timing.election_timeout_s,
        )
        self.heartbeat = Heartbeat(
            loop,
            NodeLiveness(self.me.node_id, self.me.boot_id.bytes, liveness_timing, loop.time()),
            self.cluster,
            self.journal,
            self.replicas,
            self.leaders,
            self.replica_events,
            lambda key: self.metadata.assigned(key),  # noqa: PLW0108 (the metadata comes later)
        )
        self.reads = Reads(loop, self.heartbeat, self.ticks)

    def _assemble_metadata(self) -> None:
        """The metadata and its leader, wherever that is."""
        config = self.config
        self.resources = Resources(self.settings)
        self.metadata = MetadataService(
            ControllerConfig(
                num_partitions=config.num_partitions,
                default_replication_factor=(
                    config.default_replication_factor
                    if "default.replication.factor" in config.given
                    else None  # min(3, brokers)
                ),
                expected_brokers=len(config.quorum_voters),
            ),
            list(config.quorum_voters),
            self.resources,
            self.clock,
            self._rng,
            self.reads,
            self.replica_events,
            self.cluster.is_alive,
        )
        if self._observer is not None:
            self.metadata.on_change.append(self._observer.image_changed)
        self.metadata.on_change.append(self._image_changed)
        self.replica_events.quarantined.append(self._quarantined)
        self.preferred_leaders = PreferredLeaders(
            self.me, self.settings, self.metadata, self.replicas, self.cluster, self.ticks
        )
        self.requests = RequestServer(
            self.loop.time,
            self.cluster,
            self.metadata.execute,
            {TransferLeadership: self.preferred_leaders.execute},
            self.ticks,
        )
        self.controller = ControllerClient(
            self.me,
            self.loop.time,
            self.cluster,
            self.leaders.controller_id,
            lambda: self.metadata.image.end_offset,
            self.requests.execute,
            self.ticks,
        )
        self.producer_ids = ProducerIds(self.controller)
        self.registration = Registration(
            self.me,
            config,
            self.metadata,
            self.controller,
            lambda: self.cluster_id,
            self.leaders.controller_id,
            self.ticks,
        )

    def _assemble_partitions(self) -> None:
        """From the metadata to replicas, their members and their leaders."""
        self.new_topics = NewTopics()
        self.reconciler = Reconciler(
            self.me,
            list(self.config.quorum_voters),
            self.metadata,
            self.replicas,
            self.reads,
            self.heartbeat,
            self.controller,
            self.replica_events,
            self.ticks,
        )
        self.publisher = Publisher(
            self.me,
            self.settings,
            self._disk,
            self.journal,
            self.metadata,
            self.replicas,
            self.messages,
            self.heartbeat,
            self.leaders,
            self.reconciler,
            self.new_topics,
            self.registration.is_current,
            self.replica_events,
            self.loop,
            self.ticks,
        )
        self.metadata.on_read.append(self.controller.image_read)
        self.view = ClusterView(
            self.me, self.metadata, self.leaders, self.cluster, self.replicas, self.publisher
        )
        self.leader_waits = LeaderWaits(lambda key: self.view.leader_of_id(*key)[0], self.ticks)
        self.heartbeat.on_leader.append(self.leader_waits.leaders_changed)

    def _assemble_serving(self) -> None:
        """What clients meet: coordinators, connections, handlers."""
        config, loop = self.config, self.loop
        self.offsets_topic = InternalTopic(
            offsets_topic_spec(config),
            self.metadata,
            self.controller,
            self.view.leader_of,
            self.view.endpoint_of,
        )
        self.groups = new_group_coordinator(
            self.offsets_topic,
            self.settings,
            self.metadata,
            self._rng,
            self.clock,
            loop,
            self.reads,
            self.replica_events,
        )
        self.group_maintenance = GroupMaintenance(
            self.groups, self.settings, self.clock, loop, self.metadata, self.controller, self.ticks
        )
        self.quotas = ClientQuotas(config.quota_window_num, config.quota_window_size_s, loop.time, self.ticks)
        self.metadata.on_change.append(self.quotas.image_changed)
        self.connections = ConnectionRegistry(self.settings, self.ticks, self.quotas.charge_connection)
        self.context = Context(
            apis=APIS,
            loop=loop,
            clock=self.clock,
            turn=self.turn,
            settings=self.settings,
            resources=self.resources,
            metadata=self.metadata,
            view=self.view,
            replicas=self.replicas,
            reads=self.reads,
            controller=self.controller,
            producer_ids=self.producer_ids,
            groups=self.groups,
            offsets_topic=self.offsets_topic,
            leader_waits=self.leader_waits,
            new_topics=self.new_topics,
            quotas=self.quotas,
            connections=self.connections,
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots, self._rng),
            pending=PendingAnswers(self.ticks),
            long_requests=LongRequests(loop),
            metadata_answers=AnswerCache(),
            volume=self._disk,
        )
        self.dispatcher = ApiDispatcher(self.context, self.heartbeat.wake)
        # Last of the slow tick: what the others have written goes into one round.
        self.ticks.every(SLOW_TICK_S, lambda now: self.rounds.start())

    def _join_cluster(self) -> None:
        """Open the metadata of the cluster that this node belongs to, if any, and be ready for the other nodes."""
        held = self._open_metadata() if self.cluster_id is not None else None
        formation = ClusterFormation(
            self.me.node_id,
            self.me.directory_id,
            list(self.config.quorum_voters),
            self._rng,
            configured_cluster_id=self.config.cluster_id,
            cluster_id=self.cluster_id,
            held=held,
        )
        events = ClusterEvents(
            self._form, self.controller, self.requests, self.heartbeat, self.replicas, self.messages
        )
        self.cluster.use(events, formation)

    def _open_metadata(self, founding: Formation | None = None) -> Formation | None:
        """Open (or begin) the metadata replica. Returns the formation that its row 0 tells, if it has one."""
        configuration = None if founding is None else founding_configuration(founding.voters)
        config = TopicConfig.resolve({"cleanup.policy": "compact", "min.insync.replicas": "1"}, self.config)
        replica = self.replicas.open(
            METADATA_KEY,
            METADATA_TOPIC_NAME,
            config,
            configuration,
            is_only_copy=len(self.config.quorum_voters) == 1,
        )
        if replica is None:
            raise StartError(f"the log of {METADATA_TOPIC_NAME} is damaged, and there is no other copy of it")
        self.metadata.attach_replica(replica)
        rows = replica.log.lineage.rows
        if not rows or self.cluster_id is None:
            return None
        first = row_from_log(rows[0])
        assert first.kind is RowKind.CONFIGURATION and first.configuration is not None
        return Formation(
            self.cluster_id,
            tuple(
                FoundingVoter(voter.node_id, UUID(bytes=voter.directory_id))
                for voter in first.configuration.voters
            ),
        )

    async def _listen(
        self, host: str, port: int, factory: ProtocolFactory, *, for_peers: bool = False
    ) -> None:
        try:
            self._listeners.append(await self._network.listen(host, port, factory, for_peers=for_peers))
        except OSError as error:
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    def _client_factory(self, name: str) -> ProtocolFactory:
        def make() -> ClientConnection:
            return ClientConnection(
                name,
                self.dispatcher,
                self.turn,
                self.config.socket_request_max_bytes,
                self.loop.time,
                self.connections,
            )

        return make

    def _form(self, formation: Formation, founding: bool) -> None:
        """Become part of this cluster: row 0 first, then the identity that makes it count."""
        logger.info("joining a cluster", cluster_id=formation.cluster_id, founding=founding)
        self.cluster_id = formation.cluster_id
        self._open_metadata(formation if founding else None)
        format_directory(
            self._disk, MetaProperties(formation.cluster_id, self.me.node_id, self.me.directory_id)
        )
        # The others may have formed, and elected a leader, before this node heard of it.
        self.messages.opened(METADATA_KEY)

    # -- stop --------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Transfer leaderships, answer what is open, make everything durable, leave the clean-shutdown marker."""
        self.registration.close()
        self.replicas.stop_campaigning()
        self.publisher.close()
        await transfer_leaderships(self.replicas, self.cluster)
        self.groups.close()
        for listener in self._listeners:
            listener.close()
        self.connections.close_all()
        # Before the disk is waited for: while peers are heard they bring more, and the last flush never comes.
        self.heartbeat.close()
        self.cluster.close()
        self.ticks.stop()
        while not self.rounds.is_idle:
            self.rounds.start()
            await asyncio.sleep(0.001)
        self.rounds.record_all()
        self.replicas.close_all(is_clean=True)
        self.journal.close()
        write_clean_marker(self._disk)
        self._disk.close()

    # -- what only the whole node can do -----------------------------------------------------------------

    def _prepare_reply(self, log: Log, end: FlushedEnd) -> Callable[[], None] | None:
        return self.replicas.prepare_reply(log, end)

    def _log_durable(self, log: Log, end: FlushedEnd) -> None:
        self.replicas.log_durable(log, end)

    def _image_changed(self, change: Change) -> None:
        """Clients have set something for this node, or for all."""
        if isinstance(change, ConfigsChanged) and change.kind == "broker":
            configs_of = self.metadata.image.configs_of
            self.settings.change(configs_of("broker", ""), configs_of("broker", str(self.me.node_id)))

    def _quarantined(self, replica: Replica) -> None:
        """The node lives on without a partition's log, but not without the metadata."""
        if replica is self.metadata.replica:
            self._fail(StartError(f"the log of {METADATA_TOPIC_NAME} is corrupt; the next start rebuilds it"))
