"""Leadership goes back to the replica that is named first: by itself after a while, or because somebody asks."""

from __future__ import annotations

import pytest

from broker.partitions.preferred_leaders import MAX_LAG_S
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from storage.errors import CorruptLogError
from tests.broker.asking import ask
from tests.broker.partitions.test_reassignment import create, reassign
from tests.broker.world import World, running

PREFERRED, UNCLEAN = 0, 1
NEVER = {"auto.leader.rebalance.enable": "false"}


def elect(
    world: World,
    *partitions: tuple[str, int],
    election_type: int = PREFERRED,
    via: int = 1,
    timeout_ms: int = 1500,
) -> dict[tuple[str, int], int]:
    """Without partitions: of all."""
    topics = [TopicPartitions(topic=name, partitions=[number]) for name, number in partitions]
    body = ElectLeadersRequest(
        election_type=election_type, topic_partitions=topics or None, timeout_ms=timeout_ms
    )
    answer = ask(world, via, ApiKey.ELECT_LEADERS, 2, body, ElectLeadersResponse)
    assert answer.error_code == ErrorCode.NONE
    return {
        (topic.topic, result.partition_id): result.error_code
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }


def move_leadership(world: World, name: str) -> None:
    """Node 1, the preferred leader, is away for a while, and has caught up again."""
    world.kill(1)
    leader = world.leader(name)
    group = world.replica(leader, name).group
    assert leader != 1
    world.start(1)
    world.wait_ready(1)
    world.wait(lambda: 1 in [voter.node_id for voter in group.in_sync(world.loop.time(), MAX_LAG_S)])


def test_leadership_comes_back_by_itself_after_a_while() -> None:
    with running(settings={"leader.imbalance.check.interval.seconds": "5"}) as world:
        for number in range(20):
            create(world, f"foo{number}", [1, 2, 3])
        move_leadership(world, "foo0")
        world.wait(lambda: all(world.replica(1, f"foo{number}").is_serving for number in range(20)), 7)
        assert world.produce("foo0", b"after") == 1


def test_nothing_is_transferred_to_what_a_preferred_leader_was_before_it_began_anew() -> None:
    """Its old identity lacks nothing as long as nobody writes, and never takes over. Transfers to it, one after the
    other, kept the leader from taking it out (seed 896810821095)."""
    with running(settings=NEVER) as world:
        create(world, "foo", [1, 2, 3])
        move_leadership(world, "foo")
        leader, damaged = world.leader("foo"), world.replica(1, "foo")
        node, replica = world.nodes[leader], world.replica(leader, "foo")
        error = CorruptLogError(damaged.log.directory, 0, "rot")
        world.processes[1].call(damaged.host.log_corrupt, damaged, error)
        image = node.metadata.image
        world.wait(lambda: image.topics[replica.key.topic_id].partitions[0].incarnations[0] == 1)
        assert (1, 0) in [(x.node_id, x.incarnation) for x in replica.group.configuration.voters]
        code = world.processes[leader].call(node.preferred_leaders.transfer_leadership, replica.key)
        assert code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_leadership_stays_where_it_is_if_rebalancing_is_off() -> None:
    with running(settings={**NEVER, "leader.imbalance.check.interval.seconds": "1"}) as world:
        create(world, "foo", [1, 2, 3])
        move_leadership(world, "foo")
        world.loop.run_for(10)
        assert world.leader("foo") != 1


@pytest.mark.parametrize("via", [1, 2, 3])
def test_an_election_is_over_when_the_preferred_leader_serves(via: int) -> None:
    with running(settings=NEVER) as world:
        create(world, "foo", [1, 2, 3])
        move_leadership(world, "foo")
        world.wait(lambda: world.nodes[via].view.leader_of("foo", 0)[0] > 0)
        assert elect(world, ("foo", 0), via=via) == {("foo", 0): ErrorCode.NONE}
        assert world.replica(1, "foo").is_serving
        assert elect(world, ("foo", 0)) == {("foo", 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_all_are_asked_for_and_those_that_need_none_are_left_out() -> None:
    with running(settings=NEVER) as world:
        create(world, "bar", [2, 1, 3])
        create(world, "foo", [1, 2, 3])
        move_leadership(world, "foo")
        world.wait(lambda: world.nodes[1].view.leader_of("bar", 0)[0] > 0)
        world.wait(lambda: world.nodes[1].view.leader_of("foo", 0)[0] > 0)
        assert elect(world) == {("foo", 0): ErrorCode.NONE}
        assert elect(world) == {}


def test_a_preferred_leader_that_is_away_is_not_available() -> None:
    with running(settings=NEVER) as world:
        create(world, "foo", [3, 2, 1])
        world.kill(3)
        leader = world.leader("foo")
        world.wait(lambda: world.nodes[1].view.leader_of("foo", 0)[0] == leader)
        away = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert elect(world, ("foo", 0)) == {("foo", 0): away}


def test_a_preferred_leader_that_has_not_caught_up_is_not_available() -> None:
    """It would keep the partition waiting. It is first in the assignment and not even a voter yet."""
    with running(size=4, settings=NEVER) as world:
        create(world, "foo", [1, 2, 3])
        world.kill(4)
        reassign(world, "foo", 4, 1, 2)
        assert elect(world, ("foo", 0)) == {("foo", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_an_election_that_may_lose_records_is_never_held() -> None:
    with running() as world:
        create(world, "foo", [2])
        world.wait(lambda: world.nodes[1].view.leader_of("foo", 0)[0] == 2)
        assert elect(world, ("foo", 0), election_type=UNCLEAN) == {("foo", 0): ErrorCode.ELECTION_NOT_NEEDED}
        world.kill(2)
        world.wait(lambda: world.nodes[1].view.leader_of("foo", 0)[0] < 0)
        assert elect(world, ("foo", 0), election_type=UNCLEAN) == {
            ("foo", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        }


def test_what_is_not_there_cannot_be_led() -> None:
    with running(size=1) as world:
        create(world, "foo", [1])
        assert elect(world, ("foo", 7), ("nope", 0), ("foo", 0)) == {
            ("foo", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("foo", 0): ErrorCode.ELECTION_NOT_NEEDED,
        }
        body = ElectLeadersRequest(election_type=5, topic_partitions=[])
        answer = ask(world, 1, ApiKey.ELECT_LEADERS, 2, body, ElectLeadersResponse)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
