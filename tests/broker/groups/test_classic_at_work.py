"""Classic groups on simulated nodes, from the socket to the log and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from broker.groups.shard import Shard
from broker.scheduling import background
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.describe_groups import NOT_ASKED
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.broker.asking import ask
from tests.broker.groups.classic_client import GroupClient
from tests.broker.groups.world import commit, commit_request, committed, coordinator, pass_time
from tests.broker.world import World, running
from tests.simulator.loop import SimulatedLoop


@contextmanager
def group(delay_ms: int = 200) -> Iterator[tuple[World, GroupClient]]:
    """A cluster, and a client at the coordinator of "g"."""
    with running(settings={"group.initial.rebalance.delay.ms": str(delay_ms)}) as world:
        yield world, GroupClient(world, coordinator(world, "g"))


def successor(world: World, client: GroupClient) -> GroupClient:
    """Kills the node of this client. Returns a client at the next coordinator of "g"."""
    world.kill(client.node_id, power=True)
    return GroupClient(world, coordinator(world, "g"))


def test_members_join_are_assigned_and_described() -> None:
    with group() as (_, client):
        first, second = client.new_id(), client.new_id()
        joins = [client.put_join(first), client.put_join(second)]
        answers = [client.result(join) for join in joins]
        assert [(x.error_code, x.generation_id, x.protocol_type, x.protocol_name) for x in answers] == [
            (0, 1, "consumer", "range")
        ] * 2
        (leader,) = {x.leader for x in answers}
        follower = second if leader == first else first
        told = {x.member_id: [(m.member_id, bytes(m.metadata)) for m in x.members] for x in answers}
        assert told[follower] == []
        assert sorted(told[leader]) == sorted([(first, b"r"), (second, b"r")])
        parked = client.put_sync(follower, 1)
        assert client.describe().group_state == "CompletingRebalance"
        assert client.heartbeat(follower, 1) == 0
        synced = client.result(client.put_sync(leader, 1, {leader: b"L", follower: b"F"}))
        assert (synced.protocol_type, synced.protocol_name, synced.assignment) == ("consumer", "range", b"L")
        assert client.result(parked).assignment == b"F"
        described = client.describe()
        assert (described.group_state, described.protocol_type, described.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        assert sorted((x.member_id, x.client_id, x.member_assignment) for x in described.members) == sorted(
            [(leader, "sim", b"L"), (follower, "sim", b"F")]
        )
        assert {x.client_host[0] for x in described.members} == {"/"}
        assert described.authorized_operations == NOT_ASKED
        # READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: as Kafka 4 (librdkafka 0081 looks at it).
        assert client.describe(with_operations=True).authorized_operations == 0b110101001000


def test_members_that_start_together_are_in_one_generation_even_without_a_delay() -> None:
    with group(delay_ms=0) as (world, client):
        joins = []
        for number in range(4):
            joins.append(client.put_join(instance=f"i{number}"))
            pass_time(world, 0.02)
        assert [client.result(join).generation_id for join in joins] == [1] * 4


def test_the_next_coordinator_continues_the_generation() -> None:
    with group() as (world, client):
        members, generation = client.stable(3)
        client = successor(world, client)
        assert [client.heartbeat(member, generation) for member in members] == [0, 0, 0]
        again = client.result(client.put_sync(members[1], generation))
        assert (again.error_code, again.assignment) == (0, f"for {members[1]}".encode())
        assert client.describe().group_state == "Stable"
        # A member that does not find the new coordinator is removed after a session timeout, not before.
        pass_time(world, 8)
        assert [client.heartbeat(member, generation) for member in members[:2]] == [0, 0]
        pass_time(world, 3)
        assert client.heartbeat(members[0], generation) == ErrorCode.REBALANCE_IN_PROGRESS
        assert client.heartbeat(members[2], generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_parked_requests_are_answered_not_coordinator_at_a_fail_over() -> None:
    with group() as (world, client):
        members, _ = client.stable(2)
        parked = client.put_join(members[0])
        world.loop.run_for(0.1)
        assert not parked.done()
        stopping = world.processes[client.node_id].create_task(world.nodes[client.node_id].stop())
        assert client.result(parked).error_code == ErrorCode.NOT_COORDINATOR
        world.wait(stopping.done)


def test_a_generation_survives_a_restart_of_the_whole_cluster() -> None:
    with group() as (world, client):
        members, generation = client.stable(2)
        for node_id in list(world.nodes):
            world.kill(node_id, power=True)
        world.start_all()
        client = GroupClient(world, coordinator(world, "g"))
        assert client.heartbeat(members[1], generation) == 0
        assert {bytes(x.member_assignment) for x in client.describe().members} == {
            f"for {member}".encode() for member in members
        }


def test_a_silent_member_is_removed() -> None:
    with group() as (world, client):
        (leader, follower), generation = client.stable(2)
        for _ in range(3):
            pass_time(world, 4)
            answer = client.heartbeat(leader, generation)
        assert answer == ErrorCode.REBALANCE_IN_PROGRESS
        assert client.heartbeat(follower, generation) == ErrorCode.UNKNOWN_MEMBER_ID
        joined = client.result(client.put_join(leader))
        assert (joined.generation_id, joined.leader, len(joined.members)) == (generation + 1, leader, 1)


def test_only_members_of_the_generation_can_commit() -> None:
    with group() as (world, client):
        world.create_topic("foo")
        (leader, follower), generation = client.stable(2)

        def put(member: str, in_generation: int) -> list[int]:
            member_data = {"member_id": member, "generation_id_or_member_epoch": in_generation}
            return commit(world, client.node_id, commit_request("g", "foo", {0: 5}, **member_data))

        assert put(follower, generation) == [0]
        assert put(follower, generation - 1) == [ErrorCode.ILLEGAL_GENERATION]
        assert put("nobody", generation) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert put("", -1) == [ErrorCode.UNKNOWN_MEMBER_ID]
        parked = client.put_join(leader)
        world.loop.run_for(0.1)
        assert put(follower, generation) == [0], "a member may commit before it joins again"
        client.result(client.put_join(follower))
        client.result(parked)
        assert put(follower, generation + 1) == [ErrorCode.REBALANCE_IN_PROGRESS]
        client.leave((leader, None), (follower, None))
        assert put("", -1) == [0]


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    with group() as (world, client):
        world.create_topic("foo")
        members, generation = client.stable(2)
        member_data = {"member_id": members[0], "generation_id_or_member_epoch": generation}
        assert commit(world, client.node_id, commit_request("g", "foo", {0: 5}, **member_data)) == [0]

        def delete() -> int:
            body = DeleteGroupsRequest(groups_names=["g"])
            answer = ask(world, client.node_id, ApiKey.DELETE_GROUPS, 2, body, DeleteGroupsResponse)
            return answer.results[0].error_code

        assert delete() == ErrorCode.NON_EMPTY_GROUP
        assert client.leave(*((member, None) for member in members)) == (
            0,
            [(member, None, 0) for member in members],
        )
        assert client.describe().group_state == "Empty"
        assert delete() == 0
        assert delete() == ErrorCode.GROUP_ID_NOT_FOUND
        assert client.describe().group_state == "Dead"
        client = successor(world, client)
        assert client.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert committed(world, client.node_id, "g") == {}


def test_refusals_are_those_of_apache_kafka() -> None:
    """Apache Kafka 4.3.1 answered the same requests like this."""
    with group() as (_, client):

        def join(member_id: str = "", **how: object) -> tuple[int, int, str | None, str | None, str]:
            answer = client.result(client.put_join(member_id, **how))  # type: ignore[arg-type]
            return (
                answer.error_code,
                answer.generation_id,
                answer.protocol_type,
                answer.protocol_name,
                answer.member_id,
            )

        assert join("nobody") == (25, -1, None, None, "nobody")
        assert join("nobody", version=5) == (25, -1, None, "", "nobody")
        assert join(session_ms=5999) == (26, -1, None, None, "")
        assert join(session_ms=5999, version=4) == (26, -1, None, "", "")
        assert join(session_ms=1_800_001) == (26, -1, None, None, "")
        assert join(protocols=()) == (23, -1, None, None, "")
        assert join(protocol_type="") == (23, -1, None, None, "")
        assert join(protocols=(), instance="i") == (23, -1, None, None, "")
        assert client.heartbeat("x", 1) == 25
        assert client.result(client.put_sync("x", 1)).error_code == 25
        assert client.result(client.put_sync("x", 1, protocol=None)).error_code == 23
        assert client.leave(("x", None)) == (0, [("x", None, 25)])
        assert client.leave(("x", None), version=2) == (25, [])
        dead = client.describe()
        assert (dead.error_code, dead.error_message, dead.group_state) == (69, "Group g not found.", "Dead")
        assert client.describe(version=5).error_code == 0
        assert client.describe(version=5).group_state == "Dead"
        pending = client.new_id()
        assert pending.startswith("sim-")
        assert client.describe().error_code == 69, "a member id that was given out makes no group"
        assert client.heartbeat(pending, -1) == 25
        assert client.leave((pending, None)) == (0, [(pending, None, 0)])
        (leader, follower), generation = client.stable(2)
        assert join(protocol_type="connect")[0] == 23
        assert join(protocols=(("other", b""),))[0] == 23
        assert client.result(client.put_sync(leader, generation, protocol="other")).error_code == 23
        assert client.result(client.put_sync(leader, generation, protocol_type="connect")).error_code == 23
        assert client.heartbeat(leader, generation, instance="unknown") == 25
        parked = client.put_join(follower, protocols=(("range", b"new"),))
        leavers = (("q", None), ("", None), ("", "i"), (follower, "i"), (follower, None))
        codes = (25, 25, 25, 25, 0)
        assert client.leave(*leavers) == (0, [(*who, code) for who, code in zip(leavers, codes, strict=True)])
        assert client.result(parked).error_code == 25
        assert client.leave((leader, None), version=2) == (0, [])
        assert client.leave((leader, None), version=2) == (25, [])
        empty = client.describe()
        assert (empty.group_state, empty.protocol_type, empty.members) == ("Empty", "consumer", [])
        assert join(leader)[0] == 25
        long = "x" * 32768
        assert (
            join(instance=long)[0] == join(protocols=((long, b""),))[0] == join(protocol_type=long)[0] == 42
        )
        nameless = GroupClient(client.world, client.node_id, "")
        assert nameless.result(nameless.put_join()).error_code in (16, 24)
        assert nameless.heartbeat("x", 1) in (16, 24)


def test_a_static_member_that_is_back_has_its_place() -> None:
    """Apache Kafka 4.3.1 answered the same requests like this."""
    with group() as (_, client):
        first = client.result(client.put_join(instance="i"))
        assert first.member_id.startswith("i-") and first.leader == first.member_id
        client.result(client.put_sync(first.member_id, 1, {first.member_id: b"A"}, instance="i"))
        second = client.result(client.put_join(instance="i", protocols=(("range", b"new"),)))
        assert (second.error_code, second.generation_id, second.skip_assignment) == (0, 1, True)
        assert second.leader == second.member_id != first.member_id
        assert [(x.group_instance_id, bytes(x.metadata)) for x in second.members] == [("i", b"new")]
        assert client.heartbeat(first.member_id, 1, "i") == ErrorCode.FENCED_INSTANCE_ID
        assert client.heartbeat(first.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        again = client.result(client.put_join(first.member_id, instance="i"))
        assert (again.error_code, again.member_id) == (ErrorCode.FENCED_INSTANCE_ID, first.member_id)
        assert client.result(client.put_sync(second.member_id, 1, instance="i")).assignment == b"A"
        third = client.result(client.put_join(instance="i", version=8))
        assert (third.leader, third.skip_assignment, third.members) == (second.member_id, False, [])
        assert client.heartbeat(third.member_id, 1, "i") == 0
        assert client.leave(("", "i"), ("", "j")) == (0, [("", "i", 0), ("", "j", 25)])
        assert client.describe().group_state == "Empty"


def test_a_refused_join_makes_no_group_and_ends_none() -> None:
    """An empty consumer group becomes a classic group only if the join is accepted."""
    with group() as (world, client):
        epoch = join_by_consumer_protocol(world, client.node_id, 0)
        assert client.result(client.put_join()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert client.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert epoch > 0 and join_by_consumer_protocol(world, client.node_id, -1) == -1
        assert client.result(client.put_join(protocols=())).error_code == 23
        assert listed(world, client.node_id) == [("g", "consumer")]
        members, generation = client.stable(1)
        assert listed(world, client.node_id) == [("g", "classic")]
        client = successor(world, client)
        assert listed(world, client.node_id) == [("g", "classic")]
        assert client.heartbeat(members[0], generation) == 0


def join_by_consumer_protocol(world: World, node_id: int, epoch: int) -> int:
    """The member epoch after it."""
    body = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=10_000 if epoch == 0 else -1,
        subscribed_topic_names=["foo"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )
    answer = ask(world, node_id, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body, ConsumerGroupHeartbeatResponse)
    assert answer.error_code == 0, answer
    return answer.member_epoch


def listed(world: World, node_id: int) -> list[tuple[str, str]]:
    answer = ask(world, node_id, ApiKey.LIST_GROUPS, 5, ListGroupsRequest(), ListGroupsResponse)
    return [(each.group_id, each.group_type) for each in answer.groups]


def test_groups_of_many_lost_members_expire_over_several_loop_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After loading, the sessions of all members end at the same moment."""
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    iterations: list[list[str]] = [[]]
    run_callback, expire = SimulatedLoop._run_callback, Shard.expire

    def iterate(*arguments: Any) -> None:
        iterations.append([])
        run_callback(*arguments)

    def noted(shard: Shard, group_id: str, *arguments: Any) -> Any:
        iterations[-1].append(group_id)
        return expire(shard, group_id, *arguments)

    with group(delay_ms=0) as (world, client):
        found = (GroupClient(world, client.node_id, f"g{number}") for number in range(60))
        here = [
            each for each in found if each.result(each.put_join()).error_code != ErrorCode.NOT_COORDINATOR
        ]
        assert len(here) >= 5
        for each in here:
            each.stable(1)
        world.kill(client.node_id, power=True)
        for each in here:
            coordinator(world, each.group_id)
        monkeypatch.setattr(SimulatedLoop, "_run_callback", iterate)
        monkeypatch.setattr(Shard, "expire", noted)
        pass_time(world, 15)
    assert {name for names in iterations for name in names} == {each.group_id for each in here}
    assert max(map(len, iterations)) == 2
