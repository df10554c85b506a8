"""Groups and committed offsets take a bounded part of a node's memory. What is there goes on when it is used up."""

from __future__ import annotations

import tracemalloc
from uuid import UUID

import pytest
import structlog

from broker.coordinator.memory import CoordinatorMemory
from broker.groups.classic_group import ClassicGroup
from broker.groups.classic_members import MIN_MEMBER_BYTES
from broker.groups.classic_messages import JoinAnswer
from broker.groups.classic_rebalance import ClassicLimits
from broker.groups.consumer_size import GROUP_BYTES
from broker.groups.offsets import OFFSET_BYTES, Offsets
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.group_records import OffsetCommitKey, OffsetCommitValue
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.asking import ask
from tests.broker.groups.classic_client import GroupClient
from tests.broker.groups.classic_driver import Driver
from tests.broker.groups.consumers import Consumer, Coordinator, Topics, joining, send_heartbeats_until_stable
from tests.broker.groups.world import FEW, commit, commit_request, committed, coordinator
from tests.broker.transactions import client as transactions
from tests.broker.world import running

TOO_LARGE = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


def _settings(max_group_bytes: int) -> dict[str, str]:
    return {
        **FEW,
        "varve.max.group.bytes": str(max_group_bytes),
        "group.initial.rebalance.delay.ms": "0",
    }


# -- offsets -------------------------------------------------------------------------------------------------


def _with_metadata(group_id: str, partition: int, metadata: str) -> OffsetCommitRequest:
    wanted = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=5, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id=group_id, topics=[OffsetCommitRequestTopic(name="foo", partitions=[wanted])]
    )


def test_new_offsets_are_refused_and_those_that_are_there_move_on() -> None:
    with (
        running(size=1, settings=_settings(50 * OFFSET_BYTES)) as world,
        structlog.testing.capture_logs() as logged,
    ):
        world.create_topic("foo", 100, replication_factor=1)
        node_id = coordinator(world, "g")
        codes = commit(world, node_id, commit_request("g", "foo", dict.fromkeys(range(100), 1)))
        accepted = codes.count(0)
        assert 40 < accepted < 50 and codes[accepted:] == [TOO_LARGE] * (100 - accepted)
        assert commit(world, node_id, commit_request("g", "foo", {0: 7, 99: 1})) == [0, TOO_LARGE]
        coordinator(world, "another")
        assert commit(world, node_id, commit_request("another", "foo", {0: 1})) == [TOO_LARGE]
        assert len(committed(world, node_id, "g")) == accepted
        world.loop.run_for(11)
        [line] = [line for line in logged if "varve.max.group.bytes" in line["event"]]
        assert line["count"] == 100 - accepted + 2 and line["used_bytes"] <= line["max_bytes"]
        deleted = ask(
            world,
            node_id,
            ApiKey.DELETE_GROUPS,
            2,
            DeleteGroupsRequest(groups_names=["g"]),
            DeleteGroupsResponse,
        )
        assert deleted.results[0].error_code == 0
        assert commit(world, node_id, commit_request("another", "foo", {0: 1})) == [0]


def test_longer_metadata_counts_as_new() -> None:
    with running(size=1, settings=_settings(4096)) as world:
        world.create_topic("foo", 2, replication_factor=1)
        node_id = coordinator(world, "g")
        assert commit(world, node_id, _with_metadata("g", 0, "x" * 1000)) == [0]
        assert commit(world, node_id, _with_metadata("g", 0, "x" * 4000)) == [TOO_LARGE]
        assert commit(world, node_id, _with_metadata("g", 0, "y" * 1020)) == [0]
        assert commit(world, node_id, _with_metadata("g", 0, "")) == [0]
        assert commit(world, node_id, _with_metadata("g", 1, "x" * 1000)) == [0]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (5, ErrorCode.TRANSACTION_ABORTABLE),
        (4, ErrorCode.TRANSACTION_ABORTABLE),
        (3, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_transaction_without_memory_for_its_offsets_can_be_aborted(version: int, error: int) -> None:
    """INVALID_COMMIT_OFFSET_SIZE would end a Java producer. Until the transaction ends, both offsets take memory."""
    settings = {**_settings(4 * OFFSET_BYTES), **transactions.FEW}
    with running(size=1, settings=settings) as world:
        world.create_topic("foo", 100, replication_factor=1)
        node_id = coordinator(world, "g")
        codes = commit(world, node_id, commit_request("g", "foo", dict.fromkeys(range(100), 1)))
        assert codes[0] == 0 and TOO_LARGE in codes
        client = transactions.Client(world)
        producer = client.new_producer()
        assert client.add_offsets(producer, "g") == 0
        assert client.commit_offset(producer, "g", "foo", 2, version=version) == error
        assert client.end(producer, is_commit=False).error_code == 0
        assert commit(world, node_id, commit_request("g", "foo", {0: 3})) == [0]


def test_a_node_that_takes_over_loads_everything_and_counts_it() -> None:
    with running(settings=_settings(50 * OFFSET_BYTES)) as world:
        world.create_topic("foo", 100)
        node_id = coordinator(world, "g")
        codes = commit(world, node_id, commit_request("g", "foo", dict.fromkeys(range(100), 1)))
        world.kill(node_id)
        successor = coordinator(world, "g")
        assert len(committed(world, successor, "g")) == codes.count(0)
        again = commit(world, successor, commit_request("g", "foo", dict.fromkeys(range(100), 2)))
        assert again == codes


# -- the classic protocol --------------------------------------------------------------------------------------


def _join(client: GroupClient, **how: object) -> tuple[int, str]:
    """Error code and member id of a member that joins as clients do, and is the only one."""
    given = client.result(client.put_join(**how))  # type: ignore[arg-type]
    if given.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        return given.error_code, ""
    joined = client.result(client.put_join(given.member_id, **how))  # type: ignore[arg-type]
    return joined.error_code, given.member_id


def test_new_members_are_refused_and_groups_that_are_there_go_on() -> None:
    with running(size=1, settings=_settings(20 * MIN_MEMBER_BYTES)) as world:
        node_id = coordinator(world, "g")
        joined = {}
        for number in range(30):
            client = GroupClient(world, node_id, f"g{number}")
            code, member_id = _join(client)
            if code == ErrorCode.NONE:
                joined[member_id] = client
                assert client.result(client.put_sync(member_id, 1, {member_id: b"a" * 500})).error_code == 0
            else:
                assert code == FULL
        assert 5 < len(joined) < 15
        for member_id, client in joined.items():
            assert client.result(client.put_join(member_id)).error_code == 0, "the leader wants a rebalance"
            assert client.result(client.put_sync(member_id, 2, {member_id: b"b" * 500})).error_code == 0


def test_member_ids_that_were_given_out_count() -> None:
    """Each is kept until its session is over, which may be half an hour."""
    with running(size=1, settings=_settings(20 * MIN_MEMBER_BYTES)) as world:
        client = GroupClient(world, coordinator(world, "g"))
        codes = [client.result(client.put_join(session_ms=1_800_000)).error_code for number in range(30)]
        assert codes[:10] == [ErrorCode.MEMBER_ID_REQUIRED] * 10 and codes[-1] == FULL


def _driver(max_bytes: int) -> Driver:
    driver = Driver()
    memory = CoordinatorMemory(max_bytes, lambda: driver.group.size_bytes)
    driver.limits = ClassicLimits(memory=memory)
    driver.group = ClassicGroup("g", driver.limits, driver._rng)
    return driver


def test_a_member_that_wants_more_than_before_is_refused_and_stays() -> None:
    driver = _driver(10_000)
    [member_id] = driver.stable(None)
    ticket = driver.join(member_id, protocols=(("range", b"x" * 9_000),))
    answer: JoinAnswer = driver.answers[ticket]
    assert answer.error == FULL
    assert driver.answers[driver.heartbeat(member_id)].error == ErrorCode.NONE
    driver.join(member_id, protocols=(("range", b"x" * 1_000),))
    driver.pass_time(5)
    assert driver.answers[driver.heartbeat(member_id)].error == ErrorCode.NONE


def test_an_assignment_that_finds_no_room_is_refused_and_members_join_again() -> None:
    driver = _driver(10_000)
    [member_id] = driver.completing(None)
    refused = driver.sync(member_id, {member_id: b"x" * 9_000})
    assert driver.answers[refused].error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert driver.answers[driver.heartbeat(member_id)].error == ErrorCode.REBALANCE_IN_PROGRESS
    ticket = driver.join(member_id)
    assert driver.answers[ticket].error == ErrorCode.NONE
    assert driver.answers[driver.sync(member_id, {member_id: b"x" * 100})].error == ErrorCode.NONE
    assert driver.group.size_bytes < 10_000


# -- the consumer protocol ---------------------------------------------------------------------------------------


def _coordinator(topics: Topics, max_bytes: int) -> Coordinator:
    made = Coordinator(topics)
    made.shard.memory = CoordinatorMemory(max_bytes, lambda: made.shard.size_bytes)
    return made


@pytest.fixture
def topics() -> Topics:
    made = Topics()
    for name in ("t", "u"):
        made.set(name, 10)
    return made


def test_a_member_that_finds_no_room_is_refused_with_the_setting_s_name(topics: Topics) -> None:
    coordinator = _coordinator(topics, GROUP_BYTES + 12_000)
    members = [Consumer(coordinator, f"{number}", "t") for number in range(3)]
    for member in members:
        assert member.heartbeat().error == ErrorCode.NONE
    assert coordinator.shard.size_bytes <= GROUP_BYTES + 12_000
    records = len(coordinator.log)
    answer = Consumer(coordinator, "late", "t").heartbeat()
    assert answer.error == FULL and "varve.max.group.bytes" in (answer.message or "")
    assert len(coordinator.log) == records
    send_heartbeats_until_stable(*members)
    members[0].leave()
    send_heartbeats_until_stable(*members[1:])
    assert Consumer(coordinator, "late", "t").heartbeat().error == ErrorCode.NONE


def test_partitions_count_before_they_are_assigned(topics: Topics) -> None:
    topics.set("large", 10_000)
    coordinator = _coordinator(topics, 1_000_000)
    assert Consumer(coordinator, "a", "large").heartbeat().error == FULL
    assert Consumer(coordinator, "b", regex=".*").heartbeat().error == FULL
    small = Consumer(coordinator, "c", "t")
    assert small.heartbeat().error == ErrorCode.NONE
    small.topics = ("t", "large")
    answer = coordinator.ask(joining(member_id="c", topic_names=("t", "large")))
    assert answer.error == FULL
    assert coordinator.ask(joining(member_id="c", topic_names=("t", "u"))).error == ErrorCode.NONE


# -- the estimates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metadata_bytes", [0, 100, 3000])
@pytest.mark.parametrize("per_group", [1, 100])
def test_offsets_take_about_as_much_memory_as_they_count(per_group: int, metadata_bytes: int) -> None:
    offsets = Offsets()
    topic_id = UUID(int=1)
    tracemalloc.start()
    for number in range(3000):
        key = OffsetCommitKey(
            group=f"group-{number // per_group}",
            topic=f"topic-{number % per_group // 10}",
            partition=number % 10,
        )
        metadata = f"{number:04}" + "x" * metadata_bytes if metadata_bytes else ""
        offsets.replay(
            key,
            OffsetCommitValue(
                offset=10**6 + number,
                metadata=metadata,
                commit_timestamp_ms=10**12 + number,
                topic_id=topic_id,
            ),
        )
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.6 * offsets.size_bytes < taken_bytes < 1.1 * offsets.size_bytes


@pytest.mark.parametrize(
    ("groups", "members", "topics_each", "partitions"), [(20, 5, 1, 10), (5, 20, 2, 20), (1, 5, 200, 1)]
)
def test_consumer_groups_take_no_more_memory_than_they_count(
    groups: int, members: int, topics_each: int, partitions: int
) -> None:
    topics = Topics()
    names = [f"topic-{number}" for number in range(topics_each)]
    for name in names:
        topics.set(name, partitions)
    made = []
    tracemalloc.start()
    for _ in range(groups):
        coordinator = Coordinator(topics)
        consumers = [Consumer(coordinator, f"member-{number}", *names) for number in range(members)]
        send_heartbeats_until_stable(*consumers)
        coordinator.log.clear()
        for consumer in consumers:
            consumer.owned.clear()
        made.append(coordinator)
    taken_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted_bytes = sum(coordinator.shard.size_bytes for coordinator in made)
    assert taken_bytes < counted_bytes + 12_000 * groups, "each has a shard and settings of its own here"
