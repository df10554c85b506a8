"""Partitions that move: the fact follows the wish, and a log goes only when its removal is committed."""

from __future__ import annotations

from broker.node import Node
from tests.broker.world import World, running


def reassign(world: World, name: str, *replicas: int) -> None:
    """Ask for it; the wish is committed when this returns."""
    answer = world.ask(next(iter(world.nodes)), "reassign_partitions", {"partitions": [(name, 0, replicas)]})
    assert [tuple(result) for result in answer["partitions"]] == [(name, 0, 0, None)], answer


def nodes_of(world: World, name: str) -> list[int]:
    return [node_id for node_id, _, _ in world.voters(name)]


def removing(node: Node, name: str) -> bool:
    topic = node.metadata.image.topic_named(name)
    return topic is None or topic.partitions[0].removing != ()


def wait_moved(world: World, name: str, *replicas: int) -> None:
    """The fact is the wish, the controller has recorded it, and nobody else has a log."""
    world.wait(lambda: nodes_of(world, name) == sorted(replicas))
    world.wait(
        lambda: all(
            (node_id in replicas) == (f"{name}-0" in world.folders(node_id, name)) for node_id in world.nodes
        )
    )
    world.wait(lambda: not any(removing(node, name) for node in world.nodes.values()))


def create(world: World, name: str, replicas: list[int]) -> None:
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [(0, replicas)],
        "configs": {},
    }
    answer = world.ask(1, "create_topics", {"topics": [topic], "validate_only": False})
    assert answer["topics"][0]["error_code"] == 0, answer
    world.produce(name, b"before")


def contents(world: World, name: str, replicas: tuple[int, ...]) -> list[bytes]:
    world.wait(lambda: len({world.replica(x, name).high_watermark for x in replicas}) == 1)
    return [world.content(node_id, name) for node_id in replicas]


def test_a_partition_moves_to_other_nodes_with_all_that_it_holds() -> None:
    with running(size=5) as world:
        create(world, "foo", [1, 2, 3])
        reassign(world, "foo", 4, 5, 3)
        wait_moved(world, "foo", 3, 4, 5)
        assert world.produce("foo", b"after") == 1
        one, *others = contents(world, "foo", (3, 4, 5))
        assert one and others == [one, one]
        world.wait(lambda: world.folders(1, "foo-0") == [])


def test_a_partition_grows_and_shrinks() -> None:
    with running(size=4) as world:
        create(world, "foo", [1, 2])
        reassign(world, "foo", 1, 2, 3, 4)
        wait_moved(world, "foo", 1, 2, 3, 4)
        world.produce("foo", b"four")
        reassign(world, "foo", 4)
        wait_moved(world, "foo", 4)
        assert world.produce("foo", b"one") == 2


def test_who_comes_back_to_a_partition_is_somebody_else() -> None:
    """Its log went, and with it what it had promised: it must not vote as who it was (replication.md section 3)."""
    with running(size=4) as world:
        create(world, "foo", [1, 2, 3])
        reassign(world, "foo", 2, 3, 4)
        wait_moved(world, "foo", 2, 3, 4)
        reassign(world, "foo", 1, 2, 3)
        wait_moved(world, "foo", 1, 2, 3)
        assert [(node_id, life) for node_id, _, life in world.voters("foo")] == [(1, 1), (2, 0), (3, 0)]
        one, *others = contents(world, "foo", (1, 2, 3))
        assert one and others == [one, one]


def test_the_only_copy_moves_away_and_back() -> None:
    with running(size=3) as world:
        create(world, "foo", [1])
        for there in (2, 1, 3, 1):
            reassign(world, "foo", there)
            wait_moved(world, "foo", there)
        assert world.produce("foo", b"after") == 1


def test_a_node_that_goes_and_restarts_is_needed_until_its_removal_is_committed() -> None:
    """Its log holds the only whole copy: the new nodes have nothing yet."""
    with running(size=3) as world:
        create(world, "foo", [1])
        for node_id in (2, 3):
            world.network.partition(["n1"], [f"n{node_id}"])
        world.ask(2, "reassign_partitions", {"partitions": [("foo", 0, [2])]})
        world.kill(1)
        world.network.heal_all()
        world.start(1)
        world.wait_ready(1)
        wait_moved(world, "foo", 2)
        assert world.produce("foo", b"after") == 1


def test_a_node_that_was_away_while_it_was_removed_gives_its_log_up() -> None:
    with running(size=4) as world:
        create(world, "foo", [1, 2, 3])
        world.kill(1)
        reassign(world, "foo", 2, 3, 4)
        wait_moved(world, "foo", 2, 3, 4)
        assert world.disks[1].exists("/n1/foo-0")
        world.start(1)
        world.wait_ready(1)
        world.wait(lambda: not world.folders(1, "foo-0."))
        assert not world.disks[1].exists("/n1/foo-0")
        world.delete_topic("foo")
        assert all(key.topic_id.int == 1 for key in world.nodes[1].journal.groups()), (
            "and nothing is remembered"
        )


def test_a_wish_that_is_changed_before_it_is_fulfilled() -> None:
    with running(size=5) as world:
        create(world, "foo", [1, 2, 3])
        reassign(world, "foo", 4, 5)
        reassign(world, "foo", 1, 5, 2)
        wait_moved(world, "foo", 1, 2, 5)
        assert world.produce("foo", b"after") == 1


def test_a_deleted_topic_goes_from_where_it_was_moving_to_and_from() -> None:
    with running(size=4) as world:
        create(world, "foo", [1, 2])
        reassign(world, "foo", 3, 4)
        world.delete_topic("foo")
        world.wait(lambda: not any(world.folders(node_id, "foo-0") for node_id in world.nodes))
