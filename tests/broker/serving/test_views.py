"""What clients are shown of the cluster while nodes come and go."""

from __future__ import annotations

from broker.node import Node
from tests.broker.world import running


def shown(node: Node) -> list[int]:
    return [node_id for node_id, _, _ in node.view.live_brokers("PLAINTEXT")]


def test_a_dead_broker_is_not_shown_but_the_controller_always_is() -> None:
    with running() as world:
        controller = world.nodes[1].leaders.controller_id()
        world.kill(controller)
        survivors = list(world.nodes.values())

        def has_changed() -> bool:
            for node in survivors:
                assert node.leaders.controller_id() in (-1, *shown(node))
            return all(node.leaders.controller_id() not in (-1, controller) for node in survivors)

        world.wait(has_changed)
        world.wait(lambda: all(shown(node) == sorted(world.nodes) for node in survivors))


def test_a_node_without_a_majority_shows_all_brokers() -> None:
    with running() as world:
        world.kill(1)
        world.kill(2)
        node = world.nodes[3]
        world.wait(lambda: not (node.cluster.is_connected(1) or node.cluster.is_connected(2)))
        assert shown(node) == [1, 2, 3]
