"""Links between nodes: none ends unnoticed, none outlives its node."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from broker.environment import Listener, ProtocolFactory
from storage.log_types import GroupKey
from tests.broker.world import empty, running
from tests.simulator.loop import SimulationError


class _Unresolvable:
    """What a host name with a label of 64 letters does to getaddrinfo: an error that is no OSError."""

    async def listen(
        self, host: str, port: int, factory: ProtocolFactory, *, for_peers: bool = False
    ) -> Listener:
        raise AssertionError("not this test")

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> asyncio.BaseTransport:
        raise UnicodeError("label too long")


def test_a_link_that_cannot_go_on_stops_the_node() -> None:
    with empty() as world:
        node = world.start(1)
        world.loop.run_for(0)  # everything is assembled, nothing is dialled yet
        for link in node.cluster.links.values():
            link._network = _Unresolvable()
        with pytest.raises(SimulationError) as stopped:
            world.loop.run_for(1)
        assert isinstance(stopped.value.__cause__, UnicodeError)


def test_a_stopping_node_closes_the_connections_that_its_peers_dialled() -> None:
    with running() as world:
        cluster = world.nodes[1].cluster
        accepted = list(cluster._accepted._open)
        assert sorted(x.identity.node_id for x in accepted if x.identity is not None) == [2, 3]
        world.processes[1].call(cluster.close)
        world.loop.run_for(0.01)
        assert all(x.transport is None for x in accepted)


def test_nothing_is_kept_of_who_leads_a_topic_that_is_gone() -> None:
    """A node that has not replayed the deletion yet still says that it leads; topic ids never come again."""
    with running() as world:
        gone = GroupKey(UUID(int=77), 0)
        late, node = world.nodes[2], world.nodes[1]
        world.processes[2].call(late.heartbeat._liveness.led_changed, gone, 3, 5, True, late.loop.time())
        world.loop.run_for(1)
        assert [x.node for x in node.heartbeat._liveness.listed(gone)] == [2], "it was heard"
        assert node.leaders.get(*gone) is None
