"""All settings of one node, and the rules by which they must agree.

The names are Kafka's (`node.id`, `log.dirs`), so existing server.properties files and compose environments can be used
as they are. `varve.*` and `log.min.free.bytes` are ours. Each setting is declared, with its default and its meaning, in
broker.config.node_keys. broker.config.sources reads their values. Tests and the simulator may also construct a
`NodeConfig` directly.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.node_keys.compaction import CompactionKeys
from broker.config.node_keys.connections import ConnectionKeys
from broker.config.node_keys.groups import GroupKeys
from broker.config.node_keys.identity import IdentityKeys
from broker.config.node_keys.metrics import MetricsKeys
from broker.config.node_keys.replication import ReplicationKeys
from broker.config.node_keys.security import SecurityKeys
from broker.config.node_keys.topics import TopicKeys
from broker.config.node_keys.transactions import TransactionKeys
from broker.config.values import Address, ConfigError, Listener, is_loopback

__all__ = ["Address", "ConfigError", "Listener", "NodeConfig"]

#: Hosts that stand for every address of this machine. Clients cannot connect to them.
WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})


# A dataclass has the fields of its last base first.
@dataclass(frozen=True, kw_only=True)
class NodeConfig(
    ReplicationKeys,
    CompactionKeys,
    TransactionKeys,
    GroupKeys,
    ConnectionKeys,
    MetricsKeys,
    TopicKeys,
    SecurityKeys,
    IdentityKeys,
):
    #: Names of the settings that were set at the start, by any source. DescribeConfigs tells them from defaults.
    given: frozenset[str] = frozenset()
    #: How many files and sockets the process may open. No setting: the system says it.
    descriptor_limit: int = 1 << 20
    #: The address of the default gateway: in a container, that of the machine which it runs on. "": there is none. No
    #: setting either.
    gateway: str = ""

    @property
    def controller_endpoint(self) -> Listener:
        """The listener for other nodes."""
        return next(x for x in self.listeners if x.name == self.controller_listener)

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        return tuple(x for x in self.listeners if x.name != self.controller_listener)

    @property
    def peer_address(self) -> Address:
        """The address at which other nodes reach this one."""
        return self.quorum_voters[self.node_id]

    @property
    def stale_leader_ms(self) -> int:
        """A leader that has a successor answers no longer than this after the successor's election: what
        `raft.liveness_types.LivenessTiming.check_quorum_s` is checked against."""
        return 2 * self.election_timeout_ms

    def advertised_address(self, listener: Listener) -> Address:
        """The address that clients of this listener are given."""
        if listener.name in self.advertised:
            return self.advertised[listener.name]
        host = "localhost" if listener.host in WILDCARD_HOSTS else listener.host
        return Address(host, listener.port)

    def validate(self) -> None:
        """Raises ConfigError if settings contradict each other. Each value was checked when it was parsed."""
        if "broker" not in self.process_roles:
            raise ConfigError("process.roles: every Varve node serves clients; use broker,controller")
        self._validate_listeners()
        self._validate_voters()
        if not self.log_dir or "," in self.log_dir:
            raise ConfigError(f"log.dirs: exactly one directory for now, not {self.log_dir!r}")
        if self.election_timeout_ms < 3 * self.heartbeat_interval_ms:
            raise ConfigError(
                f"varve.election.timeout.ms ({self.election_timeout_ms}) must be at least three times "
                f"varve.heartbeat.interval.ms ({self.heartbeat_interval_ms}), or one lost packet deposes a leader"
            )
        if self.consumer_heartbeat_interval_ms >= self.consumer_session_timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms ({self.consumer_heartbeat_interval_ms}) must be below "
                f"group.consumer.session.timeout.ms ({self.consumer_session_timeout_ms}), or every member is removed"
            )
        if self.message_max_bytes >= self.socket_request_max_bytes:
            raise ConfigError(
                f"message.max.bytes ({self.message_max_bytes}) must be below socket.request.max.bytes "
                f"({self.socket_request_max_bytes}), or such a message can never arrive"
            )
        if 0 <= self.queued_max_request_bytes < 2 * self.message_max_bytes + (1 << 20):
            raise ConfigError(
                f"message.max.bytes ({self.message_max_bytes}) must be below half of queued.max.request.bytes "
                f"({self.queued_max_request_bytes}) with 512 KiB to spare, or such a message can never arrive"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError("group.min.session.timeout.ms must not be above group.max.session.timeout.ms")
        if self.uncoordinated_compaction and not all(is_loopback(x.host) for x in self.listeners):
            raise ConfigError(
                "varve.unsafe.uncoordinated.compaction destroys data. It is for demonstrations on one machine: every "
                "listener must be on localhost"
            )

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
                    f"listeners: {name} needs a port that is not 0, because others must know it"
                )
            if (host, port) in seen:
                raise ConfigError(f"listeners: {seen[host, port]} and {name} have the same address")
            seen[host, port] = name
            if port == self.metrics_port:
                raise ConfigError(f"varve.metrics.port: the listener {name} has port {port}, too")
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
            raise ConfigError("controller.quorum.voters: there are no voters")
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
