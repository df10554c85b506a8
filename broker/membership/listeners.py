"""The ports at which a node is reached."""

from __future__ import annotations

from broker.environment import Listener, Network, ProtocolFactory
from broker.membership.identity import StartError


class Listeners:
    """The ports of one node, for its clients and for its peers."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._listeners: list[Listener] = []

    async def listen(
        self, host: str, port: int, factory: ProtocolFactory, *, for_peers: bool = False
    ) -> None:
        """As `Network.listen`. Raises StartError if the port cannot be had."""
        try:
            self._listeners.append(await self._network.listen(host, port, factory, for_peers=for_peers))
        except OSError as error:
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error

    def close(self) -> None:
        """Accept no connections any more."""
        for listener in self._listeners:
            listener.close()
