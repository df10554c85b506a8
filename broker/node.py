"""One node, assembled: the composition root (architecture.md section 2).

    Node(config, disk, network, clock, rng, fail)

Everything that the outside world is comes in through the constructor; in production that is a real disk and TCP, in
the simulator a memory disk and a memory network, and nothing in here can tell.

Start: lock the directory, read identity and journal, open the metadata replica, meet the other nodes; register with
the controller; when the own registration of *this* start has been replayed, the metadata image is current (it was
appended after we started): open the partitions it assigns to us, and only then serve clients.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import structlog

from broker.cluster import Cluster
from broker.cluster_events import ClusterEvents
from broker.config.layers import NodeSettings
from broker.config.node_config import NodeConfig
from broker.config.resources import Resources
from broker.config.topic_config import TopicConfig
from broker.controller_client import ControllerClient, Done
from broker.environment import Clock, Listener, Network, ProtocolFactory
from broker.fetch_sessions import FetchSessions
from broker.groups.coordinator import GroupCoordinator
from broker.groups.offsets_topic import OffsetsTopic
from broker.handlers import Handlers
from broker.handlers.long_requests import LongRequests
from broker.handlers.metadata import KeptAnswers
from broker.handlers.pending import PendingAnswer
from broker.handover import hand_over_all
from broker.identity import StartError, open_identity
from broker.leader_waits import LeaderWaits
from broker.metadata.decisions.base import ControllerConfig
from broker.metadata.formation import ClusterFormation, Formation, FoundingVoter
from broker.metadata.ids import (
    INTERNAL_TOPICS,
    METADATA_TOPIC_ID,
    METADATA_TOPIC_NAME,
    OFFSETS_TOPIC_NAME,
    random_uuid,
)
from broker.metadata.image import BrokerRemoved, Change, ConfigsChanged, QuotaChanged, TopicCreated
from broker.metadata.leaders import LeaderTable
from broker.metadata.records import BrokerRecord
from broker.metadata_service import MetadataService
from broker.network.commit_delay import CommitDelay
from broker.network.connection import ClientConnection
from broker.network.connection_registry import ConnectionRegistry
from broker.network.turn import Turn
from broker.new_topics import NewTopics
from broker.preferred_leaders import PreferredLeaders
from broker.producer_ids import ProducerIds
from broker.publisher import Publisher
from broker.quotas import ClientQuotas
from broker.reconciler import Reconciler
from broker.registration import Registration
from broker.replication.heartbeat import Heartbeat
from broker.replication.messages import GroupMessages
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from broker.replication.replicas import LINGER_BYTES, Replicas
from broker.replication.timers import every
from broker.replication.wire import founding_configuration, row_from_log
from broker.views import ClusterView
from protocol import peer
from protocol.errors import ErrorCode, KafkaError
from protocol.peer import PeerMessage
from raft.liveness import NodeLiveness
from raft.liveness_types import LivenessTiming
from raft.types import RowKind, Timing
from storage.directory import MetaProperties, format_directory, write_clean_marker
from storage.disk import Disk
from storage.group_commit import FlushRounds
from storage.log import Log
from storage.log_types import FlushedEnd, GroupKey

logger = structlog.get_logger()

METADATA_KEY = GroupKey(METADATA_TOPIC_ID, 0)
#: The slow tick: commit indexes told, timeouts, registration.
TICK_S = 0.05
#: A log to which nothing is appended for so long, or twice, is trimmed.
QUIET_S = 1.0
#: How often what idle clients have used is forgotten.
IDLE_CLIENTS_S = 10.0


class Node:
    """See the module. `fail` is called with what makes going on impossible; it does not return in production."""

    def __init__(
        self,
        config: NodeConfig,
        disk: Disk,
        network: Network,
        clock: Clock,
        rng: random.Random,
        fail: Callable[[BaseException], None],
    ) -> None:
        #: What this node was started with, and above it what clients have set.
        self.settings = NodeSettings(config)
        self.resources = Resources(lambda: self.settings)
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self._disk = disk
        self._network = network
        self._rng = rng
        self._fail = fail
        self._listeners: list[Listener] = []
        self._stops: list[Callable[[], None]] = []
        self.boot_id = random_uuid(rng)
        self.pending_answers: dict[PendingAnswer[Any], None] = {}
        self.connections = ConnectionRegistry(
            config.max_connections_per_ip,
            config.connections_max_idle_ms,
            config.queued_max_request_bytes,
            config.queued_max_response_bytes,
        )
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, rng)
        self.kept_metadata = KeptAnswers()
        self.long_requests = LongRequests(self.loop)
        self.quotas = ClientQuotas(config.quota_window_num, config.quota_window_size_s, self.loop.time)
        self.connections.throttle_of = self.quotas.connected
        self.ready = asyncio.Event()
        self._cluster_id: str | None = None
        self._is_stopping = False

    @property
    def config(self) -> NodeConfig:
        """What counts now. Settings that are not dynamic never change."""
        return self.settings.config

    # -- start -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when clients are served. Raises StartError, DiskError."""
        self._open_directory()
        self._assemble_replication()
        self._assemble()
        await self._listen(
            self.config.controller_endpoint.host,
            self.config.controller_endpoint.port,
            self.cluster.accept,
            for_peers=True,
        )
        self.cluster.start()
        self.heartbeat.start()
        self._every(self.config.heartbeat_interval_ms / 1000, self._heartbeat)
        self._every(TICK_S, self._tick)
        self._every(QUIET_S, self.replicas.trim_quiet_logs)
        self._every(self.config.log_retention_check_interval_ms / 1000, self.replicas.apply_retention)
        self._every(self.config.offsets_retention_check_interval_ms / 1000, self.groups.expire_offsets)
        self._every(IDLE_CLIENTS_S, self.quotas.forget_idle)
        await self.ready.wait()
        for listener in self.config.client_listeners:
            await self._listen(listener.host, listener.port, self._client_factory(listener.name))

    def _open_directory(self) -> None:
        self._disk.make_directory(self._disk.root)
        self._disk.lock()
        identity = open_identity(self._disk, self.config, self._rng)
        self.directory_id, self._cluster_id, self._is_clean_start, self.journal = identity

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
            get_ready=self._get_ready,
        )
        self.turn.use(self.rounds)
        timing = Timing(election_timeout_s=config.election_timeout_ms / 1000, linger_bytes=LINGER_BYTES)
        self.replicas = Replicas(
            self,
            loop,
            self.clock,
            self._disk,
            self.journal,
            self.rounds,
            self.turn,
            self._rng,
            timing,
            config.node_id,
            self.directory_id,
            self._is_clean_start,
            config.replica_lag_time_max_ms / 1000,
            config.producer_id_expiration_ms / 1000,
        )
        self.leaders = LeaderTable()
        self.new_topics = NewTopics()
        self.leader_waits = LeaderWaits(self._leader_of)
        # An isolated leader must have stepped down after two election timeouts, a heartbeat included.
        liveness_timing = LivenessTiming(
            ping_interval_s=config.heartbeat_interval_ms / 1000,
            election_timeout_s=timing.election_timeout_s,
            check_quorum_s=1.5 * timing.election_timeout_s,
        )
        liveness = NodeLiveness(config.node_id, self.boot_id.bytes, liveness_timing, loop.time())
        self.heartbeat = Heartbeat(self, loop, liveness, self.replicas, self.leaders)

    def _assemble(self) -> None:
        """What stands on the groups: metadata, the other nodes, the services that handlers use."""
        config, loop = self.config, self.loop
        self.metadata = MetadataService(
            self,
            ControllerConfig(
                num_partitions=config.num_partitions,
                default_replication_factor=(
                    config.default_replication_factor
                    if "default.replication.factor" in config.given
                    else None  # min(3, brokers)
                ),
                expected_brokers=len(config.quorum_voters),
            ),
            self._rng,
        )
        held = self._open_metadata() if self._cluster_id is not None else None
        formation = ClusterFormation(
            config.node_id,
            self.directory_id,
            list(config.quorum_voters),
            self._rng,
            configured_cluster_id=config.cluster_id,
            cluster_id=self._cluster_id,
            held=held,
        )
        self.messages: GroupMessages = GroupMessages(self.replicas)
        self.cluster = Cluster(
            ClusterEvents(self),
            config,
            self._network,
            self.turn,
            loop,
            self.boot_id,
            self.directory_id,
            formation,
        )
        self.view = ClusterView(self)
        self.reads = Reads(loop, self.heartbeat)
        self.controller = ControllerClient(self, first_id=self.boot_id.int >> 66)
        self.registration = Registration(self)
        self.producer_ids = ProducerIds(self.controller.call)
        self.offsets_topic = OffsetsTopic(self)
        self.groups = GroupCoordinator(self, self.offsets_topic, self._rng)
        self.publisher = Publisher(self, self._disk)
        self.reconciler = Reconciler(self)
        self.preferred_leaders = PreferredLeaders(self)
        self.handlers = Handlers(self)

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
        self.metadata.attach(replica)
        rows = replica.log.lineage.rows
        if not rows or self._cluster_id is None:
            return None
        first = row_from_log(rows[0])
        assert first.kind is RowKind.CONFIGURATION and first.configuration is not None
        return Formation(
            self._cluster_id,
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
                self.handlers,
                self.turn,
                self.config.socket_request_max_bytes,
                self.loop.time,
                self.connections,
            )

        return make

    def _every(self, seconds: float, action: Callable[[], None]) -> None:
        self._stops.append(every(self.loop, seconds, action))

    # -- stop --------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Hand leaderships over, answer what is open, make everything durable, leave the clean-shutdown marker."""
        self._is_stopping = True
        self.replicas.stop_campaigning()
        self.publisher.close()
        await hand_over_all(self)
        self.groups.close()
        for listener in self._listeners:
            listener.close()
        self.connections.close_all()
        # Before the disk is waited for: while peers are heard they bring more, and the last flush never comes.
        self.heartbeat.close()
        self.cluster.close()
        for stop in self._stops:
            stop()
        while not self.rounds.is_idle:
            self.rounds.start()
            await asyncio.sleep(0.001)
        self.rounds.record_all()
        self.replicas.close_all(is_clean=True)
        self.journal.close()
        write_clean_marker(self._disk)
        self._disk.close()

    # -- ticks -------------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        self.cluster.tick()

    def _tick(self) -> None:
        now = self.loop.time()
        self.replicas.tell_commits()
        self.reads.tick(now)
        self.controller.tick()
        self.connections.close_idle(now)
        self.connections.close_unread(now)
        for pending in [pending for pending in self.pending_answers if pending.deadline <= now]:
            pending.time_out()
        self.replicas.is_low_on_space = self._disk.free_bytes() < self.config.log_min_free_bytes
        self.replicas.ask_again()
        self.publisher.open_what_lacked_space()
        if not self._is_stopping:
            self.registration.tick()
        self.reconciler.reconcile(now)
        self.reconciler.renew()
        self.preferred_leaders.tick(now)
        self.leader_waits.tick(now)
        self.rounds.start()

    # -- hosts of the parts ------------------------------------------------------------------------------

    def _get_ready(self, log: Log, end: FlushedEnd) -> Callable[[], None] | None:
        return self.replicas.get_ready(log, end)

    def _log_durable(self, log: Log, end: FlushedEnd) -> None:
        self.replicas.log_durable(log, end)

    def now(self) -> float:
        return self.loop.time()

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def own_node(self) -> int:
        return self.config.node_id

    def image_end(self) -> int:
        return self.metadata.image.end_offset

    def controller_node(self) -> int:
        return self.controller_id()

    def execute(self, operation: str, arguments: dict[str, Any], done: Done) -> None:
        if operation == "hand_over":
            done({"error_code": 0, "codes": self.preferred_leaders.execute(arguments["partitions"])})
        else:
            self.metadata.execute(operation, arguments, done)

    def is_connected(self, node_id: int) -> bool:
        return self.cluster.is_connected(node_id)

    def send(self, node_id: int, message: PeerMessage) -> None:
        self.cluster.send(node_id, message)

    def send_to(self, directory: tuple[int, bytes], message: PeerMessage) -> None:
        self.cluster.send_to(directory, message)

    def prepare_to(self, directory: tuple[int, bytes], message: PeerMessage) -> Callable[[], None] | None:
        return self.cluster.prepare_to(directory, message)

    def form(self, formation: Formation, founding: bool) -> None:
        """Become part of this cluster: row 0 first, then the identity that makes it count."""
        logger.info("joining a cluster", cluster_id=formation.cluster_id, founding=founding)
        self._cluster_id = formation.cluster_id
        self._open_metadata(formation if founding else None)
        format_directory(
            self._disk, MetaProperties(formation.cluster_id, self.config.node_id, self.directory_id)
        )
        # The others may have formed, and elected a leader, before this node heard of it.
        self.messages.opened(METADATA_KEY)

    def send_ping(self, node_id: int, ping: peer.Ping) -> None:
        self.cluster.send(node_id, ping)

    def echo_arrived(self) -> None:
        self.reads.echo_arrived()

    def _leader_of(self, key: GroupKey) -> int:
        return self.view.leader_of_id(*key)[0]

    def leaders_changed(self) -> None:
        self.leader_waits.leaders_changed()

    def assigned(self, key: GroupKey) -> Sequence[int]:
        return self.view.assigned(key)

    def role_changed(self, replica: Replica) -> None:
        """`ReplicasHost`: tell liveness, and through it everybody, what this node leads."""
        self.heartbeat.group_changed(replica)
        if replica.is_leader:
            self.reconciler.unsettle(replica.key)
        if replica is self.metadata.replica:
            self.metadata.role_changed()
        elif replica.topic == OFFSETS_TOPIC_NAME:
            self.groups.role_changed(replica)

    def replica_closed(self, key: GroupKey) -> None:
        self.heartbeat.group_closed(key)
        self.groups.replica_closed(key)

    def group_forgotten(self, key: GroupKey) -> None:
        self.heartbeat.group_forgotten(key)

    def quarantined(self, replica: Replica) -> None:
        """`ReplicasHost`: the node lives on without a partition's log, but not without the metadata."""
        if replica is self.metadata.replica:
            self._fail(StartError(f"the log of {METADATA_TOPIC_NAME} is corrupt; the next start rebuilds it"))
        else:
            self.publisher.reopen(replica.key)

    def commit_moved(self, replica: Replica) -> None:
        if replica is self.metadata.replica:
            self.metadata.commit_moved()

    # -- MetadataHost ------------------------------------------------------------------------------------

    def is_alive(self, broker: BrokerRecord) -> bool:
        if broker.node_id == self.config.node_id:
            return broker.directory_id == self.directory_id
        return self.cluster.directory_of(broker.node_id) == broker.directory_id

    def image_changed(self, change: Change) -> None:
        if isinstance(change, BrokerRemoved):
            self.registration.broker_removed(change)
        if isinstance(change, QuotaChanged):
            self.quotas.change(change.entity, change.limits)
        if isinstance(change, ConfigsChanged) and change.kind == "broker":
            self._use_settings()
        if isinstance(change, TopicCreated) and self.publisher.has_begun:
            self.new_topics.appeared(change.new.name, self.now())
        self.publisher.changed(change)
        self.groups.image_changed(change)

    def _use_settings(self) -> None:
        """Clients have set something for this node, or for all. Topics follow (`Publisher`)."""
        configs_of = self.metadata.image.configs_of
        self.settings = NodeSettings(
            self.settings.static, configs_of("broker", ""), configs_of("broker", str(self.config.node_id))
        )
        self.connections.max_per_ip = self.config.max_connections_per_ip
        self.replicas.producer_expiration_s = self.config.producer_id_expiration_ms / 1000

    def image_read(self) -> None:
        if not self.publisher.has_begun and self.registration.is_current:
            self.publisher.begin()
        self.controller.image_read()

    def partitions_opened(self) -> None:
        """All that the image assigns to this node is here: clients may come."""
        self.ready.set()

    # -- what handlers ask -------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        return self._cluster_id

    def controller_id(self) -> int:
        """The established leader of the metadata group; -1 if none is known."""
        known = self.leaders.get(*METADATA_KEY)
        return -1 if known is None or known.node_id is None or not known.established else known.node_id

    def check_space(self) -> None:
        """Clients' records leave a reserve for votes, rows and internal logs (replication.md section 2)."""
        if self.replicas.is_low_on_space:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, "less than log.min.free.bytes is left on the disk"
            )

    def disk_space(self) -> tuple[int, int]:
        """(total, free) bytes of the volume."""
        return self._disk.total_bytes(), self._disk.free_bytes()

    def auto_create(self, names: list[str]) -> None:
        if OFFSETS_TOPIC_NAME in names:
            self.offsets_topic.create()
        names = [name for name in names if name not in INTERNAL_TOPICS]
        if names:
            self.controller.call("auto_create", {"names": names}, _log_refused_topics)


def _log_refused_topics(result: dict[str, Any]) -> None:
    """The client that named them has its answer already, and is told nothing of why they are missing."""
    if result["error_code"] != ErrorCode.NONE:
        logger.warning("topics are not created", reason=result.get("message"))
    for topic in result.get("topics", ()):
        if topic["error_code"] not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning("topic is not created", topic=topic["name"], reason=topic["message"])
