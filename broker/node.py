"""One node, assembled: the composition root (architecture.md section 2).

    Node(config, disk, network, clock, rng, authenticator, fail, cleaner, observer)

Everything that the outside world is comes in through the constructor; in production that is a real disk and TCP, in
the simulator a memory disk and a memory network, and nothing in here can tell. README.md tells how a node starts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial

import structlog

from broker.admin import Admin
from broker.compaction.worker import CompactionWorker
from broker.config.layers import LiveSettings
from broker.config.node_config import NodeConfig
from broker.config.resources import Resources
from broker.controller.client import ControllerClient
from broker.controller.producer_ids import ProducerIds
from broker.controller.registration import Registration
from broker.controller.server import RequestServer
from broker.controller.service import MetadataService, controller_config
from broker.coordinators import Coordinators
from broker.environment import Cleaner, Clock, Network, ProtocolFactory
from broker.handlers import APIS
from broker.membership.cluster import Cluster
from broker.membership.cluster_events import ClusterEvents
from broker.membership.identity import RestartError, open_identity, take_directory
from broker.membership.joined_cluster import JoinedCluster
from broker.membership.listeners import Listeners
from broker.membership.own_settings import OwnSettings
from broker.metadata.ids import METADATA_TOPIC_NAME, NodeIdentity, random_uuid
from broker.metadata.leaders import LeaderTable
from broker.network.connection import ClientConnection
from broker.network.connection_registry import ConnectionRegistry
from broker.partitions.controlled_shutdown import transfer_leaderships
from broker.partitions.leader_waits import LeaderWaits
from broker.partitions.new_topics import NewTopics
from broker.partitions.pin_limit import PinLimit
from broker.partitions.preferred_leaders import PreferredLeaders
from broker.partitions.publisher import Publisher
from broker.partitions.reconciler import Reconciler
from broker.replication.events import Observer, ReplicaEvents
from broker.replication.heartbeat import Heartbeat
from broker.replication.messages import GroupMessages
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.replication.timing import liveness_timing, raft_timing
from broker.scheduling.background import Background
from broker.scheduling.budget import LoopBudget
from broker.scheduling.commit_delay import CommitDelay
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from broker.scheduling.turn import Turn
from broker.security.proofs import Authenticator
from broker.serving.aborted_loads import AbortedLoads
from broker.serving.answer_cache import AnswerCache
from broker.serving.context import Context
from broker.serving.dispatcher import ApiDispatcher
from broker.serving.fetch_sessions import FetchSessions
from broker.serving.long_polls import LongPolls
from broker.serving.long_requests import LongRequests
from broker.serving.pending import PendingAnswers
from broker.serving.quotas import ClientQuotas
from broker.serving.views import ClusterView
from broker.verification.own_digest import DigestMaker
from broker.verification.verifier import ReplicaVerifier
from protocol.controller.replicas import TransferLeadership
from raft.liveness import NodeLiveness
from storage.directory import write_clean_marker
from storage.disk import Disk
from storage.group_commit import FlushRounds

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
        authenticator: Authenticator,
        fail: Callable[[BaseException], None],
        cleaner: Cleaner,
        observer: Observer | None = None,
    ) -> None:
        self.settings = LiveSettings(config)
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.ticks = Ticks(self.loop)
        self._disk = disk
        self._network = network
        self._rng = rng
        self._authenticator = authenticator
        self._fail = fail
        self._observer = observer
        self._cleaner = cleaner
        self._listeners = Listeners(network)
        self._boot_id = random_uuid(rng)
        self._joined: JoinedCluster | None = None
        self.ready = asyncio.Event()  #: clients are served

    @property
    def config(self) -> NodeConfig:
        """What counts now. Settings that are not dynamic never change."""
        return self.settings.config

    @property
    def cluster_id(self) -> str | None:
        """None: this node belongs to no cluster yet."""
        return None if self._joined is None else self._joined.cluster_id

    # -- start -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when clients are served. Raises StartError, DiskError."""
        self._open_directory()
        self._assemble_replication()
        self._assemble_metadata()
        self._assemble_partitions()
        self._assemble_serving()
        assert self._joined is not None
        self.cluster.use(self.cluster_events, self._joined.open())
        peers = self.config.controller_endpoint
        await self._listeners.listen(peers.host, peers.port, self.cluster.accept, for_peers=True)
        await self.admin.listen(self._listeners)
        self.cluster.start()
        self.heartbeat.start()
        self.ticks.start()
        await self.publisher.opened.wait()
        self.ready.set()
        for listener in self.config.client_listeners:
            await self._listeners.listen(listener.host, listener.port, self._client_factory(listener.name))

    def _open_directory(self) -> None:
        take_directory(self._disk)
        opened = open_identity(self._disk, self.config, self._rng)
        directory_id, self._cluster_id, self._is_clean_start, self.journal = opened
        self.me = NodeIdentity(self.config.node_id, directory_id, self._boot_id)

    def _assemble_replication(self) -> None:
        """From the disk up to the groups: flush rounds, replicas, and who is alive."""
        config, loop, ticks, steady_s = self.config, self.loop, self.ticks, self.clock.steady_s
        delay = CommitDelay(steady_s, config.commit_delay_us / 1e6)
        self.turn = Turn(loop, delay, LoopBudget(loop, steady_s, is_told=True))
        self.background = Background(loop, steady_s)
        self.rounds = FlushRounds(
            self._disk,
            self.journal,
            now=loop.time,
            steady_s=steady_s,
            on_durable=lambda log, end: self.replicas.log_durable(log, end),  # noqa: PLW0108 (they come later)
            on_full=lambda error: self.replicas.space.found_full(error),  # noqa: PLW0108
            on_fatal=self._fail,
            prepare_reply=lambda log, end: self.replicas.prepare_reply(log, end),  # noqa: PLW0108
        )
        self.turn.set_rounds(self.rounds)
        self.cluster = Cluster(self.me, config, self._network, self.turn, loop, ticks, self._authenticator)
        self.replica_events = ReplicaEvents()
        peers = self.replica_events.observe(self._observer, self.cluster)
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
            raft_timing(config),
            self.me.node_id,
            self.me.directory_id,
            self._is_clean_start,
            config.replica_lag_time_max_ms / 1000,
        )
        self.messages = GroupMessages(self.replicas)
        self.leaders = LeaderTable()
        self.heartbeat = Heartbeat(
            loop,
            NodeLiveness(self.me.node_id, self.me.boot_id.bytes, liveness_timing(config), loop.time()),
            self.cluster,
            self.journal,
            self.replicas,
            self.leaders,
            self.replica_events,
            lambda key: self.metadata.assigned(key),  # noqa: PLW0108 (the metadata comes later)
        )
        self.reads = Reads(loop, self.background, self.heartbeat, self.ticks)

    def _assemble_metadata(self) -> None:
        """The metadata and its leader, wherever that is."""
        config, loop, ticks = self.config, self.loop, self.ticks
        self.resources = Resources(self.settings)
        self.metadata = MetadataService(
            controller_config(config),
            list(config.quorum_voters),
            self.resources,
            self.clock,
            loop.time,
            self._rng,
            self.reads,
            self.background,
            self.replica_events,
            self.cluster.is_alive,
        )
        if self._observer is not None:
            self.metadata.on_change.append(self._observer.image_changed)
        OwnSettings(self.me, self.settings, self.metadata)
        self.replica_events.quarantined.append(self._quarantined)
        self._joined = joined = JoinedCluster(
            self.me,
            self._cluster_id,
            config,
            self._disk,
            self._rng,
            self.replicas,
            self.metadata,
            self.messages,
        )
        self.preferred_leaders = PreferredLeaders(
            self.me, self.settings, self.metadata, self.replicas, self.cluster, self.background, self.ticks
        )
        self.requests = RequestServer(loop.time, self.cluster, self.metadata.execute, self.background, ticks)
        self.requests.add_part(TransferLeadership, self.preferred_leaders.execute)
        self.controller = ControllerClient(
            self.me,
            self.loop.time,
            self.cluster,
            self.leaders.controller_id,
            lambda: self.metadata.image.end_offset,
            self.requests.execute,
            self.background,
            self.ticks,
        )
        self.cluster_events = ClusterEvents(
            joined, self.controller, self.requests, self.heartbeat, self.replicas, self.messages
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
        """From the metadata to replicas and their leaders."""
        loop, replicas, events, ticks = self.loop, self.replicas, self.replica_events, self.ticks
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
            PinLimit(self.settings, self.metadata, self.cluster),
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
            self.background,
            self.ticks,
        )
        self.compaction = CompactionWorker(loop, replicas, self.settings, self._cleaner, ticks)
        self.metadata.on_read.append(self.controller.image_read)
        self.view = ClusterView(self.me, self.metadata, self.leaders, self.cluster, replicas, self.publisher)
        maker = DigestMaker(replicas, self.compaction, self.settings, self._cleaner, self._rng)
        alive = self.view.alive_brokers
        self.verification = ReplicaVerifier(loop, self.messages, events, maker, alive, ticks)
        self.leader_waits = LeaderWaits(self.view.leader_of_id, self.background, self.ticks)
        self.heartbeat.on_leader.append(self.leader_waits.leaders_changed)

    def _assemble_serving(self) -> None:
        """What clients meet: coordinators, connections, handlers."""
        config, loop = self.config, self.loop
        self.coordinators = coordinators = Coordinators(
            self.settings,
            self.metadata,
            self.controller,
            self.requests,
            self.producer_ids,
            self.replicas,
            self.replica_events,
            self.reads,
            self.view,
            self._rng,
            self.clock,
            loop,
            self.background,
            self.ticks,
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
            groups=coordinators.groups,
            offsets_topic=coordinators.offsets_topic,
            transactions=coordinators.transactions,
            marker_writer=coordinators.marker_writer,
            verifier=coordinators.verifier,
            compaction=self.compaction,
            verification=self.verification,
            leader_waits=self.leader_waits,
            new_topics=self.new_topics,
            quotas=self.quotas,
            connections=self.connections,
            fetch_sessions=FetchSessions(config.fetch_session_slots, config.max_fetch_partitions, self._rng),
            aborted_loads=AbortedLoads(self.replicas, self.background),
            long_polls=LongPolls(config.max_fetch_partitions),
            pending=PendingAnswers(self.background, self.ticks),
            long_requests=LongRequests(loop, self.clock.steady_s),
            metadata_answers=AnswerCache(),
            volume=self._disk,
        )
        self.dispatcher = ApiDispatcher(self.context, self.heartbeat.wake)
        self.admin = Admin(
            self.me, self.context, self.leaders, self.rounds, self.replica_events, self.ticks, self.ready
        )
        # Last of the slow tick: what the others have written goes into one round.
        self.ticks.every(SLOW_TICK_S, lambda now: self.rounds.start())

    def _client_factory(self, name: str) -> ProtocolFactory:
        limit_bytes, now = self.config.socket_request_max_bytes, self.loop.time
        return partial(ClientConnection, name, self.dispatcher, self.turn, limit_bytes, now, self.connections)

    # -- stop --------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Transfer leaderships, answer what is open, make everything durable, leave the clean-shutdown marker."""
        self.ready.clear()
        await asyncio.gather(self.verification.stop(), self.compaction.stop())
        self.registration.close()
        self.replicas.stop_campaigning()
        self.publisher.close()
        await transfer_leaderships(self.replicas, self.cluster)
        self.coordinators.close()
        self._listeners.close()
        self.connections.close_all()
        self.admin.close()
        # Before the disk is waited for: while peers are heard they bring more, and the last flush never comes.
        self.heartbeat.close()
        self.cluster.close()
        self.ticks.stop()
        while not (self.rounds.is_idle or self.rounds.is_waiting_for_room):
            self.rounds.start()
            await asyncio.sleep(0.001)
        self.rounds.record_all()
        self.replicas.close_all(is_clean=True)
        self.journal.close()
        write_clean_marker(self._disk)
        self._disk.close()

    def _quarantined(self, replica: Replica) -> None:
        if replica is self.metadata.replica:  # without the log of a partition the node lives on
            self._fail(RestartError(f"the log of {METADATA_TOPIC_NAME} is to be rebuilt from the others'"))
