"""Offsets of groups, from the socket to the log and back (broker.groups, simulated nodes)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.asking import ask
from tests.broker.groups.world import commit, commit_request, committed, coordinator, fetch
from tests.broker.world import running


def test_offsets_are_committed_and_fetched_at_the_coordinator_and_nowhere_else() -> None:
    with running() as world:
        world.create_topic("foo", 3)
        node_id = coordinator(world, "g")
        assert commit(world, node_id, commit_request("g", "foo", {0: 7, 2: 9, 3: 1})) == [0, 0, 3]
        assert committed(world, node_id, "g") == {("foo", 0): 7, ("foo", 2): 9}
        other = next(x for x in world.nodes if x != node_id)
        assert commit(world, other, commit_request("g", "foo", {0: 8})) == [ErrorCode.NOT_COORDINATOR]
        assert fetch(world, other, "g").error_code == ErrorCode.NOT_COORDINATOR


def test_offsets_outlive_the_coordinator() -> None:
    with running() as world:
        world.create_topic("foo")
        node_id = coordinator(world, "g")
        assert commit(world, node_id, commit_request("g", "foo", {0: 1})) == [0]
        assert commit(world, node_id, commit_request("g", "foo", {0: 2})) == [0]
        world.kill(node_id, power=True)
        successor = coordinator(world, "g")
        assert successor != node_id
        assert committed(world, successor, "g") == {("foo", 0): 2}


def test_the_first_question_creates_the_topic() -> None:
    with running() as world:
        body = FindCoordinatorRequest(key="g")
        first = ask(world, 1, ApiKey.FIND_COORDINATOR, 2, body, FindCoordinatorResponse)
        assert (first.error_code, first.node_id, first.host, first.port) == (15, -1, "", -1)
        node_id = coordinator(world, "g")
        again = ask(world, 1, ApiKey.FIND_COORDINATOR, 2, body, FindCoordinatorResponse)
        assert (again.error_code, again.node_id, again.host) == (0, node_id, f"n{node_id}")
        record = world.nodes[1].metadata.image.topic_named("__consumer_offsets")
        assert record is not None and len(record.partitions) == 50
        assert {len(partition.replicas) for partition in record.partitions} == {3}
        assert record.configs["cleanup.policy"] == "compact"
