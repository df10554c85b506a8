"""What a leader tells clients and nodes: a deposed one, one that a restarted node has to find, an idle one."""

from __future__ import annotations

from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataResponseTopic
from tests.broker.asking import produce_one
from tests.broker.world import World, running
from tests.simulator.client import Client

PRODUCER_ID = 77
#: The slow tick and a few round trips.
SOON_S = 0.5


def _client(world: World, node_id: int) -> Client:
    """One that asks this node and no other."""
    return Client(world.network.of("client"), [(f"n{node_id}", 9092)])


def _described(world: World, node_id: int, topic: str) -> MetadataResponseTopic:
    return world.loop.run_until_complete(_client(world, node_id).metadata(topic))


def test_a_deposed_leader_does_not_refuse_a_sequence_that_its_successor_would_take() -> None:
    """Out of order ends an idempotent producer, and the one who says so did not see what came before. It does not know
    yet that it is deposed: its links lose what it hears."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        produce_one(world, "foo", PRODUCER_ID, 0)
        world.wait_equal("foo")
        others = [node_id for node_id in world.ids if node_id != leader]
        world.network.partition([f"n{leader}"], [f"n{other}" for other in others])
        world.wait(lambda: any(world.replica(other, "foo").is_serving for other in others))
        successor = next(other for other in others if world.replica(other, "foo").is_serving)
        answer = produce_one(world, "foo", PRODUCER_ID, 1, node_id=successor)
        assert answer.error_code == ErrorCode.NONE
        assert world.replica(leader, "foo").is_leader, "it does not know yet"
        codes = [produce_one(world, "foo", PRODUCER_ID, 2, node_id=leader).error_code for _ in range(2)]
        assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert produce_one(world, "foo", PRODUCER_ID, 2, node_id=successor).error_code == ErrorCode.NONE


def test_a_restarted_node_knows_who_leads_though_nobody_changed() -> None:
    """Leaders announce themselves when they change and to whom they connect: a restarted node hears of partitions that
    its metadata does not name yet."""
    with running() as world:
        for name in ("foo", "bar", "baz"):
            world.create_topic(name)
        leaders = {name: world.leader(name) for name in ("foo", "bar", "baz")}
        restarted = next(node_id for node_id in world.ids if node_id != leaders["foo"])
        world.kill(restarted)
        world.loop.run_for(0.05)
        world.start(restarted)
        world.wait_ready(restarted)
        world.loop.run_for(SOON_S)
        for name, leader in leaders.items():
            if leader != restarted:
                assert _described(world, restarted, name).partitions[0].leader_id == leader


def test_an_idle_leader_tells_the_commit_index() -> None:
    """The last batch is committed by an answer that nothing else follows; and who was away at that moment comes back
    to a leader that has nothing to send."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        follower = next(node_id for node_id in world.ids if node_id != leader)
        world.produce("foo", b"the last one")
        world.loop.run_for(SOON_S)
        assert {world.replica(node_id, "foo").high_watermark for node_id in world.ids} == {1}
        world.kill(follower, power=True)
        world.start(follower)
        world.wait_ready(follower)
        world.loop.run_for(SOON_S)
        assert world.leader("foo") == leader
        assert world.replica(follower, "foo").high_watermark == 1
