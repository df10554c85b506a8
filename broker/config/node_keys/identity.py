"""Who a node is, where it is reached, and where it keeps its data."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import (
    Address,
    Listener,
    addresses,
    advertised,
    choices,
    integer,
    listeners,
    long,
    optional_text,
    protocol_map,
    setting,
    text,
    voters,
)


@dataclass(frozen=True, kw_only=True)
class IdentityKeys:
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
