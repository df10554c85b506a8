"""What one node is told: names, defaults and meaning of its settings, and how they must fit together.

The names are Kafka's (`node.id`, `log.dirs`), so that server.properties files and compose environments that people
have can be used as they are; `varve.*` and `log.min.free.bytes` are ours. Where the values come from stands in
broker.config.sources. Tests and the simulator make a `NodeConfig` directly and call `validate` or do not.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import (
    INT32_MAX,
    INT64_MAX,
    Address,
    ConfigError,
    Listener,
    addresses,
    advertised,
    boolean,
    choice,
    choices,
    integer,
    listeners,
    long,
    number,
    optional_text,
    protocol_map,
    setting,
    text,
    voters,
)

__all__ = ["Address", "ConfigError", "Listener", "NodeConfig"]

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
#: Hosts that mean "every address of this machine"; nobody can connect to them.
WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    # Who this node is.

    node_id: int = setting(
        "node.id",
        integer(0),
        "1",
        "The number of this node, unique in the cluster and the same for ever.",
        scaled=[("broker.id", 1)],
    )
    cluster_id: str | None = setting(
        "cluster.id",
        optional_text,
        "",
        """The cluster to belong to; also read from CLUSTER_ID. Without it the first formation makes one. A node whose
        data belongs to another cluster does not start.""",
    )
    process_roles: tuple[str, ...] = setting(
        "process.roles",
        choices("broker", "controller"),
        "broker,controller",
        "Every node serves clients, so `broker` must be there. Every node votes, too, with `controller` or without.",
    )
    quorum_voters: dict[int, Address] = setting(
        "controller.quorum.voters",
        voters,
        "",
        """All nodes of the cluster, which vote on its metadata, as 1@host:port,... with the address of their
        controller listener. The same on every node. Empty: this node alone.""",
    )
    quorum_bootstrap: tuple[Address, ...] = setting(
        "controller.quorum.bootstrap.servers",
        addresses,
        "",
        """Kafka's way to find voters without naming them. Accepted where it names this node alone; a cluster of several
        names its voters in controller.quorum.voters.""",
    )
    rack: str | None = setting(
        "broker.rack", optional_text, "", "Accepted, not used yet: neither for placement nor told to clients."
    )

    # Where it is reached.

    listeners: tuple[Listener, ...] = setting(
        "listeners",
        listeners,
        "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        """Where to listen, as NAME://host:port,... An empty host is every address of the machine, localhost
        both address families. The default is reachable from this machine only.""",
    )
    advertised: dict[str, Address] = setting(
        "advertised.listeners",
        advertised,
        "",
        """What clients are told to connect to, per listener. A listener that is not named here advertises its own
        host and port, and localhost where it listens on every address.""",
    )
    security_protocols: dict[str, str] = setting(
        "listener.security.protocol.map",
        protocol_map,
        "",
        "Protocol of each listener. Only PLAINTEXT is built so far; anything else is refused.",
    )
    inter_broker_listener: str = setting(
        "inter.broker.listener.name",
        text,
        "",
        "Accepted for Kafka's sake: nodes talk to each other on the controller listener. Empty: the first one.",
    )
    controller_listener: str = setting(
        "controller.listener.names",
        text,
        "CONTROLLER",
        "The one listener on which nodes meet: votes, replication, calls to the controller. No clients there.",
    )

    # Where it keeps its data.

    log_dir: str = setting(
        "log.dirs",
        text,
        "varve-data",
        "The data directory: exactly one for now, made where it is missing, locked while the node runs.",
        scaled=[("log.dir", 1)],
    )
    log_min_free_bytes: int = setting(
        "log.min.free.bytes",
        long(0),
        str(256 << 20),
        """Produce is refused when less than this is free. The reserve keeps votes and metadata writable, so
        that topics can still be deleted on a full disk.""",
    )

    # Topics: what CreateTopics and auto-creation start from. Topic settings override most of these.

    num_partitions: int = setting(
        "num.partitions", integer(1), "1", "Partitions of a topic whose creator does not say."
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        integer(1, 32767),
        "3",
        "Replicas of a topic whose creator does not say. Not set: three, or one for each broker. (Kafka: 1.)",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        integer(1),
        "1",
        """Replicas that must hold an acks=all record on disk before it is acknowledged, where that is more than a
        majority: a majority it always is.""",
        dynamic=True,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        boolean,
        "true",
        "Create a topic when a client that wants that asks for it.",
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", boolean, "true", "Whether topics can be deleted."
    )
    log_segment_bytes: int = setting(
        "log.segment.bytes",
        integer(1024),
        str(1 << 30),
        "Size at which a segment is closed. (Kafka 4 asks for at least 1 MiB.)",
        dynamic=True,
    )
    log_roll_ms: int = setting(
        "log.roll.ms",
        long(1),
        str(168 * _HOUR_MS),
        "Age at which a segment is closed although it is small.",
        scaled=[("log.roll.hours", _HOUR_MS)],
        dynamic=True,
    )
    log_retention_ms: int = setting(
        "log.retention.ms",
        long(-1),
        str(168 * _HOUR_MS),
        "How long records are kept; -1 is for ever.",
        scaled=[("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)],
        dynamic=True,
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes",
        long(-1),
        "-1",
        "Bytes that a partition may hold before old segments go; -1 is no bound.",
        dynamic=True,
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        long(1),
        "300000",
        "How often retention looks for segments to delete.",
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes",
        integer(0),
        "4096",
        "Bytes between two entries of a segment's sparse index.",
        dynamic=True,
    )
    message_max_bytes: int = setting(
        "message.max.bytes",
        integer(0),
        "1048588",
        "Largest record batch, after compression, that is taken.",
        dynamic=True,
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        choice("CreateTime", "LogAppendTime"),
        "CreateTime",
        "Whose time records carry: the producer's or the broker's.",
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms",
        long(0),
        str(INT64_MAX),
        "How far a producer's timestamp may lie behind the broker's clock.",
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms",
        long(0),
        str(_HOUR_MS),
        "How far a producer's timestamp may lie ahead of the broker's clock.",
        dynamic=True,
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy",
        choices("delete", "compact"),
        "delete",
        "What happens to old records. compact is accepted; until compaction is built it removes nothing.",
        dynamic=True,
    )
    compression_type: str = setting(
        "compression.type",
        choice("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "producer",
        "Kept with the topic. Batches are stored as the producer compressed them.",
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms",
        long(0),
        str(24 * _HOUR_MS),
        "How long a compacted topic keeps tombstones. For compaction, when it comes.",
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms",
        long(0),
        "0",
        "Age below which a record is not compacted. As above.",
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms",
        long(1),
        str(INT64_MAX),
        "Age by which a record has been looked at by compaction. As above.",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        number(0, 1),
        "0.5",
        "Dirty part from which compaction is worth while. As above.",
        dynamic=True,
    )

    # Connections and requests.

    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        integer(1024),
        str(100 << 20),
        "Largest request; a larger one closes the connection.",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        integer(1),
        "2147483647",
        "Connections that one client address may hold open.",
        dynamic=True,
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        long(1),
        "600000",
        "A client connection without a request for so long is closed.",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        integer(1024),
        str(55 << 20),
        "Most bytes in one answer to a fetch, whatever the client asks for.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        integer(0),
        "1000",
        "How many consumers may have this node remember what they fetch, so that they name only changes (KIP-227).",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        long(-1),
        "-1",
        "Bytes of requests that may wait unanswered in this node before it stops reading; -1 is no bound.",
    )
    queued_max_response_bytes: int = setting(
        "varve.queued.max.response.bytes",
        long(1 << 20),
        str(256 << 20),
        """Bytes of answers that clients have not taken yet at which answers to fetches become small, and clients that
        take nothing for ten seconds are disconnected.""",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        integer(1),
        str(24 * _HOUR_MS),
        "An idempotent producer that has not written for so long is forgotten.",
        dynamic=True,
    )

    # Consumer groups.

    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        integer(1),
        "50",
        "Partitions of __consumer_offsets when it is created; each group belongs to one of them, for ever.",
    )
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        integer(1, 32767),
        "3",
        "Replicas of __consumer_offsets. Not set: three, or one for each broker.",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        integer(1024),
        str(100 << 20),
        "segment.bytes of __consumer_offsets when it is created.",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        integer(0),
        "4096",
        "Characters of text that a client may store beside a committed offset.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        integer(1),
        str(7 * 24 * 60),
        "How long offsets are kept once nobody uses them: their group is empty, or not subscribed to their topic.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        long(1),
        "600000",
        "How often offsets that nobody uses are looked for.",
    )

    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        integer(0),
        "3000",
        """How long the first rebalance of an empty group waits for more members, so that a start is one rebalance.
        Never less than 50 ms.""",
    )
    group_max_size: int = setting(
        "group.max.size",
        integer(1),
        str(INT32_MAX),
        "How many members a group of the classic protocol may have.",
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        integer(1),
        "6000",
        "The shortest session that a member of a classic group may ask for.",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        integer(1),
        str(30 * _MINUTE_MS),
        "The longest session that a member of a classic group may ask for.",
    )
    consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        integer(1),
        "45000",
        "A member of the consumer protocol that has sent no heartbeat for so long is put out of its group.",
    )
    consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        integer(1),
        "5000",
        "How often members of the consumer protocol are told to send a heartbeat: how soon they learn of a change.",
    )
    consumer_group_max_size: int = setting(
        "group.consumer.max.size",
        integer(1),
        str(INT32_MAX),
        "Members that a group of the consumer protocol may have.",
    )
    consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        integer(0),
        "1000",
        "A group of the consumer protocol is assigned anew at most this often, however many members come and go.",
    )
    group_protocols: tuple[str, ...] = setting(
        "group.coordinator.rebalance.protocols",
        choices("classic", "consumer"),
        "classic,consumer",
        "The protocols that groups may have members of.",
    )

    # Quotas.

    quota_window_num: int = setting(
        "quota.window.num",
        integer(2),
        "11",
        "Windows over which a client's rate is measured: what it saved in them it may use at once.",
    )
    quota_window_size_s: int = setting(
        "quota.window.size.seconds",
        integer(1),
        "1",
        "Length of such a window.",
    )

    # Replication.

    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        long(1),
        "30000",
        """A follower that has not caught up for so long is no longer in sync: it does not count for min.insync.replicas
        above 1, and takes no leadership over from a node that stops.""",
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        boolean,
        "true",
        """Whether a leader hands its partition over to the preferred replica, the first of the list, when that has come
        back and caught up.""",
    )
    leader_imbalance_check_interval_s: int = setting(
        "leader.imbalance.check.interval.seconds",
        integer(1),
        "300",
        "How often each node looks for partitions that it leads in another's place.",
    )
    election_timeout_ms: int = setting(
        "varve.election.timeout.ms",
        integer(150),  # raft.types.Timing: campaigns are spread over as much
        "1000",
        """Silence after which a follower stands for election, at a random moment of the next 150 ms. A leader that
        hears no majority for one and a half times as long steps down.""",
    )
    heartbeat_interval_ms: int = setting(
        "varve.heartbeat.interval.ms",
        integer(5),  # raft.liveness_types.LivenessTiming: changes are told after as much
        "100",
        "How often two nodes tell each other that they live.",
    )
    loop: str = setting(
        "varve.loop",
        choice("uvloop", "asyncio"),
        "uvloop",
        "The event loop; asyncio's own where uvloop is not installed.",
    )

    #: Keys that were set at the start, by any source: DescribeConfigs and CreateTopics tell these from defaults.
    given: frozenset[str] = frozenset()

    @property
    def controller_endpoint(self) -> Listener:
        """Where this node listens for its peers."""
        return next(x for x in self.listeners if x.name == self.controller_listener)

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        return tuple(x for x in self.listeners if x.name != self.controller_listener)

    @property
    def peer_address(self) -> Address:
        """Where other nodes reach this one."""
        return self.quorum_voters[self.node_id]

    def advertised_address(self, listener: Listener) -> Address:
        """What clients of this listener are told to connect to."""
        if listener.name in self.advertised:
            return self.advertised[listener.name]
        host = "localhost" if listener.host in WILDCARD_HOSTS else listener.host
        return Address(host, listener.port)

    def validate(self) -> None:
        """Raise ConfigError where settings contradict each other. Single values were checked when parsed."""
        if "broker" not in self.process_roles:
            raise ConfigError("process.roles: every Varve node serves clients; use broker,controller")
        self._validate_listeners()
        self._validate_voters()
        if not self.log_dir or "," in self.log_dir:
            raise ConfigError(f"log.dirs: exactly one directory for now, not {self.log_dir!r}")
        if self.election_timeout_ms < 3 * self.heartbeat_interval_ms:
            raise ConfigError(
                f"varve.election.timeout.ms ({self.election_timeout_ms}) must be at least three times "
                f"varve.heartbeat.interval.ms ({self.heartbeat_interval_ms}), or a lost packet costs a leader"
            )
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms ({self.consumer_heartbeat_interval_ms}) must be below "
                f"group.consumer.session.timeout.ms ({self.consumer_session_timeout_ms}), or every member is put out"
            )
        if self.message_max_bytes >= self.socket_request_max_bytes:
            raise ConfigError(
                f"message.max.bytes ({self.message_max_bytes}) must be below socket.request.max.bytes "
                f"({self.socket_request_max_bytes}), or such a message can never arrive"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError("group.min.session.timeout.ms must not be above group.max.session.timeout.ms")

    def _validate_listeners(self) -> None:
        names = [x.name for x in self.listeners]
        if self.controller_listener not in names:
            raise ConfigError(
                f"listeners: there is none called {self.controller_listener} (controller.listener.names); "
                "Varve nodes talk to each other on it"
            )
        if not self.client_listeners:
            raise ConfigError(f"listeners: there is none for clients beside {self.controller_listener}")
        for listener in self.listeners:
            default = listener.name if listener.name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL") else "PLAINTEXT"
            protocol = self.security_protocols.get(listener.name, default)
            if protocol != "PLAINTEXT":
                raise ConfigError(
                    f"listener.security.protocol.map: {listener.name} wants {protocol}; only PLAINTEXT is built so far"
                )
        seen: dict[tuple[str, int], str] = {}
        for name, host, port in self.listeners:
            if not port:
                raise ConfigError(
                    f"listeners: {name} needs a port of its own, nobody could be told of any free one"
                )
            if (host, port) in seen:
                raise ConfigError(f"listeners: {seen[host, port]} and {name} have the same address")
            seen[host, port] = name
        for name, address in self.advertised.items():
            if name not in names:
                raise ConfigError(f"advertised.listeners: there is no listener called {name}")
            if address.host in WILDCARD_HOSTS:
                raise ConfigError(
                    f"advertised.listeners: {name} advertises {address.host or 'no host'}, where no client can connect"
                )
        if self.inter_broker_listener and self.inter_broker_listener not in names:
            raise ConfigError(
                f"inter.broker.listener.name: there is no listener {self.inter_broker_listener}"
            )

    def _validate_voters(self) -> None:
        if not self.quorum_voters:
            raise ConfigError("controller.quorum.voters: nobody votes")
        if len(set(self.quorum_voters.values())) != len(self.quorum_voters):
            raise ConfigError("controller.quorum.voters: two voters have the same address")
        if self.node_id not in self.quorum_voters:
            raise ConfigError(
                f"controller.quorum.voters: this node ({self.node_id}) is not among them; nodes that do not vote are "
                "not built yet"
            )
        own, port = self.quorum_voters[self.node_id], self.controller_endpoint.port
        if own.port != port and not self.advertised.get(self.controller_listener):
            raise ConfigError(
                f"controller.quorum.voters: this node ({self.node_id}) is to be found at port {own.port}, "
                f"but its {self.controller_listener} listener has port {port}"
            )
