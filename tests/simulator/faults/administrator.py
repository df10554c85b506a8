"""What administrators ask of a cluster in the middle of everything: once, of some node, whatever becomes of the
answer."""

from __future__ import annotations

import random

from protocol.api_keys import ApiKey
from protocol.schema import Message
from tests.simulator.client import Connection
from tests.simulator.cluster import CLIENT_PORT, SimulatedCluster, host_of


def ask_some_node(
    cluster: SimulatedCluster,
    rng: random.Random,
    key: ApiKey,
    version: int,
    body: Message,
    response: type[Message],
) -> None:
    """Nobody asks again where the question or its answer is lost."""
    ready = [
        node_id
        for node_id in cluster.alive()
        if node_id in cluster.nodes and cluster.nodes[node_id].ready.is_set()
    ]
    if not ready:
        return
    host = host_of(rng.choice(ready))

    async def question() -> None:
        connection = Connection()
        try:
            await cluster.network.of("administrator").connect(host, CLIENT_PORT, lambda: connection)
            await connection.request(key, version, body, response)
        except (OSError, TimeoutError):
            return
        finally:
            connection.abort()

    cluster.loop.create_task(question())
