"""The identity of a node, its addresses, and its data directory."""

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
    # Identity

    node_id: int = setting(
        "node.id",
        integer(0),
        "1",
        "The id of this node. It is unique in the cluster and never changes.",
        scaled=[("broker.id", 1)],
    )
    cluster_id: str | None = setting(
        "cluster.id",
        optional_text,
        "",
        """The id of the cluster that this node belongs to. Also read from CLUSTER_ID. Empty: the nodes choose an id
        when they form the cluster. A node whose data belongs to another cluster does not start.""",
    )
    process_roles: tuple[str, ...] = setting(
        "process.roles",
        choices("broker", "controller"),
        "broker,controller",
        """Must contain `broker`, because every node serves clients. Every node is a voter, with `controller` or
        without.""",
    )
    quorum_voters: dict[int, Address] = setting(
        "controller.quorum.voters",
        voters,
        "",
        """The voters of the metadata quorum, which are all nodes of the cluster: 1@host:port,... with the addresses of
        their controller listeners. The same on every node. Empty: a cluster of this node alone.""",
    )
    quorum_bootstrap: tuple[Address, ...] = setting(
        "controller.quorum.bootstrap.servers",
        addresses,
        "",
        """Kafka's way to find voters without naming them. Accepted if it names this node alone. A cluster of several
        nodes needs controller.quorum.voters.""",
    )
    rack: str | None = setting(
        "broker.rack",
        optional_text,
        "",
        "Accepted without effect: it is neither used for placement nor told to clients.",
    )

    # Addresses

    listeners: tuple[Listener, ...] = setting(
        "listeners",
        listeners,
        "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        """The addresses to listen on: NAME://host:port,... An empty host is every address of the machine, localhost is
        both loopback addresses. The default is reachable from this machine only.""",
    )
    advertised: dict[str, Address] = setting(
        "advertised.listeners",
        advertised,
        "",
        """The addresses that clients are given, for each listener. A listener that is not named here advertises its own
        host and port, or localhost if it listens on every address.""",
    )
    security_protocols: dict[str, str] = setting(
        "listener.security.protocol.map",
        protocol_map,
        "",
        "The security protocol of each listener. Only PLAINTEXT is built so far. Others are refused.",
    )
    inter_broker_listener: str = setting(
        "inter.broker.listener.name",
        text,
        "",
        "Must name a listener, and has no other effect: nodes connect to each other's controller listener.",
    )
    controller_listener: str = setting(
        "controller.listener.names",
        text,
        "CONTROLLER",
        "The listener for other nodes: votes, replication, requests to the controller. Clients cannot use it.",
    )

    # Data directory

    log_dir: str = setting(
        "log.dirs",
        text,
        "varve-data",
        "The data directory, exactly one. It is created if it is missing, and locked while the node runs.",
        scaled=[("log.dir", 1)],
    )
    log_min_free_bytes: int = setting(
        "log.min.free.bytes",
        long(0),
        str(256 << 20),
        """Produce requests are refused while less than this is free on the volume. Votes and metadata can still be
        written then, so topics can be deleted.""",
    )
