"""Noticing that clients are told an address at which they cannot reach this node.

A client connects to the address that it was given, asks for the brokers, and connects to what it is told then
(advertised.listeners). A client of another machine that is told `localhost` looks for the node on its own machine.
"""

from __future__ import annotations

import structlog

from broker.config.node_config import Address, NodeConfig
from broker.config.values import is_loopback

log = structlog.get_logger()


class ListenerHint:
    """Of one node. Writes a line of the log for such a client, and only for such a one."""

    def __init__(self, config: NodeConfig) -> None:
        #: What clients are told where only this machine can connect to it, by listener.
        self._told: dict[str, Address] = {
            each.name: address
            for each in config.client_listeners
            if is_loopback((address := config.advertised_address(each)).host)
        }
        self._ports = {each.name: each.port for each in config.client_listeners}
        self._gateway = config.gateway

    def connected(self, listener: str, peer_host: str, own_host: str) -> None:
        """A client at `peer_host` has connected to `own_host`, both of them addresses without a port.

        A client of this machine may connect to any of its addresses. Where this is a container, clients of the machine
        that it runs on come from its gateway, and reach a published port at localhost."""
        told = self._told.get(listener)
        if told is None or peer_host in (own_host, self._gateway) or is_loopback(peer_host):
            return
        log.warning(
            "a client of another machine is told an address of its own",
            peer=peer_host,
            told=f"{told.host}:{told.port}",
            connected_to=f"{own_host}:{self._ports[listener]}",
            help=f"set advertised.listeners to {listener}://HOST:PORT, by which such clients reach this node",
            cause=(listener, peer_host),
        )
