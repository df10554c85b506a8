"""Offsets of groups on simulated nodes, from the socket to the log and back."""

from __future__ import annotations

import pytest

from broker.coordinator.internal_topic import partition_of
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tests.broker.asking import ask
from tests.broker.groups.world import FEW, commit, commit_request, committed, coordinator, fetch
from tests.broker.world import World, running


def list_groups(world: World, node_id: int, **filters: list[str]) -> list[tuple[str, str, str, str]]:
    body = ListGroupsRequest(**filters)  # type: ignore[arg-type]
    answer = ask(world, node_id, ApiKey.LIST_GROUPS, 5, body, ListGroupsResponse)
    assert answer.error_code == ErrorCode.NONE
    return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in answer.groups]


def delete_offsets(
    world: World, node_id: int, group_id: str, topic: str, partitions: list[int]
) -> OffsetDeleteResponse:
    wanted = [OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
    body = OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=wanted)]
    )
    return ask(world, node_id, ApiKey.OFFSET_DELETE, 0, body, OffsetDeleteResponse)


def test_offsets_are_committed_and_fetched_at_the_coordinator_and_nowhere_else() -> None:
    with running(settings=FEW) as world:
        world.create_topic("foo", 3)
        node_id = coordinator(world, "g")
        assert commit(world, node_id, commit_request("g", "foo", {0: 7, 2: 9, 3: 1})) == [0, 0, 3]
        assert committed(world, node_id, "g") == {("foo", 0): 7, ("foo", 2): 9}
        other = next(x for x in world.nodes if x != node_id)
        assert commit(world, other, commit_request("g", "foo", {0: 8})) == [ErrorCode.NOT_COORDINATOR]
        assert fetch(world, other, "g").error_code == ErrorCode.NOT_COORDINATOR
        assert delete_offsets(world, other, "g", "foo", [0]).error_code == ErrorCode.NOT_COORDINATOR


def test_the_first_find_coordinator_creates_the_topic() -> None:
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


def test_share_groups_have_no_coordinator() -> None:
    with running(size=1) as world:
        for key_type in (2, 3):
            body = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
            answer = ask(world, 1, ApiKey.FIND_COORDINATOR, 6, body, FindCoordinatorResponse)
            assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("g", 3),
        ("core-group", 39),
        ("ümlaut", 13),
        ("😀 smile", 15),
        ("polygenelubricants", 0),  # Its hash is the one number that has no positive counterpart.
        ("console-consumer-12345", 6),
    ],
)
def test_a_group_has_the_same_partition_as_in_kafka(group_id: str, partition: int) -> None:
    assert partition_of(group_id, 50) == partition


def test_commits_from_outside_a_group_are_answered_as_by_kafka() -> None:
    """Apache Kafka 4.3.1 answered the same requests like this (2026-11-21)."""
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 3, replication_factor=1)
        node = coordinator(world, "g")

        def codes(version: int = 9, topic: str = "foo", **member: object) -> list[int]:
            return commit(world, node, commit_request("g", topic, {0: 5}, **member), version)

        assert codes(generation_id_or_member_epoch=3, member_id="m") == [ErrorCode.GROUP_ID_NOT_FOUND]
        assert codes(8, generation_id_or_member_epoch=3, member_id="m") == [ErrorCode.ILLEGAL_GENERATION]
        assert codes(member_id="m") == [0]
        assert codes(generation_id_or_member_epoch=0, member_id="m") == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert codes(8, generation_id_or_member_epoch=0) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert codes(member_id="m", group_instance_id="i") == [0]
        assert codes(topic="nope") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert codes(10) == [ErrorCode.UNKNOWN_TOPIC_ID]
        assert committed(world, node, "g") == {("foo", 0): 5}


def test_metadata_is_stored_with_an_offset_within_its_limits() -> None:
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 400, replication_factor=1)
        node = coordinator(world, "g")

        def body(texts: list[str | None]) -> OffsetCommitRequest:
            partitions = [
                OffsetCommitRequestPartition(partition_index=x, committed_offset=x, committed_metadata=text)
                for x, text in enumerate(texts)
            ]
            topics = [OffsetCommitRequestTopic(name="foo", partitions=partitions)]
            return OffsetCommitRequest(group_id="g", topics=topics)

        assert commit(world, node, body(["ü" * 4096, "x" * 4097, None])) == [0, 12, 0]
        partitions = fetch(world, node, "g", "foo", [0, 1, 2]).topics[0].partitions
        assert [(x.committed_offset, x.metadata) for x in partitions] == [(0, "ü" * 4096), (-1, ""), (2, "")]
        too_much = commit(world, node, body(["x" * 4096] * 400))
        assert too_much == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 400
        assert len(committed(world, node, "g")) == 2


def test_an_offset_that_was_never_committed_is_no_error() -> None:
    with running(size=1, settings=FEW) as world:
        topic = world.create_topic("foo", 2, replication_factor=1)
        node = coordinator(world, "g")
        assert commit(world, node, commit_request("g", "foo", {1: 4})) == [0]
        wanted = [OffsetFetchRequestTopic(name="foo", partition_indexes=[0, 1, 9])]
        for version in (1, 2, 5, 7):
            body = OffsetFetchRequest(group_id="g", topics=wanted)
            answer = ask(world, node, ApiKey.OFFSET_FETCH, version, body, OffsetFetchResponse)
            found = [(x.committed_offset, x.metadata, x.error_code) for x in answer.topics[0].partitions]
            assert found == [(-1, "", 0), (4, "", 0), (-1, "", 0)]
            body = OffsetFetchRequest(group_id="nobody", topics=wanted)
            answer = ask(world, node, ApiKey.OFFSET_FETCH, version, body, OffsetFetchResponse)
            assert {(x.committed_offset, x.error_code) for x in answer.topics[0].partitions} == {(-1, 0)}
        wanted = [
            OffsetFetchRequestTopic(topic_id=topic.topic_id, partition_indexes=[1]),
            OffsetFetchRequestTopic(topic_id=world.nodes[1].me.boot_id, partition_indexes=[1]),
        ]
        body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=wanted)])
        by_id = ask(world, node, ApiKey.OFFSET_FETCH, 10, body, OffsetFetchResponse).groups[0]
        found_by_id = [(x.committed_offset, x.error_code) for t in by_id.topics for x in t.partitions]
        assert found_by_id == [(4, 0), (-1, ErrorCode.UNKNOWN_TOPIC_ID)]
        body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")])
        everything = ask(world, node, ApiKey.OFFSET_FETCH, 10, body, OffsetFetchResponse).groups[0]
        assert [(t.topic_id, t.partitions[0].partition_index) for t in everything.topics] == [
            (topic.topic_id, 1)
        ]


def test_a_refused_fetch_has_its_error_where_the_version_expects_it() -> None:
    with running(settings=FEW) as world:
        node = coordinator(world, "g")
        other = next(x for x in world.nodes if x != node)
        wanted = [OffsetFetchRequestTopic(name="foo", partition_indexes=[0, 1])]
        body = OffsetFetchRequest(group_id="g", topics=wanted)
        first = ask(world, other, ApiKey.OFFSET_FETCH, 1, body, OffsetFetchResponse)
        assert [x.error_code for x in first.topics[0].partitions] == [16, 16]
        fifth = ask(world, other, ApiKey.OFFSET_FETCH, 5, body, OffsetFetchResponse)
        assert fifth.error_code == 16
        assert [x.error_code for x in fifth.topics[0].partitions] == [16, 16]


def test_simple_groups_are_listed_and_deleted() -> None:
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 2, replication_factor=1)
        coordinator(world, "g")
        for group_id in ("g", "h"):
            assert commit(world, 1, commit_request(group_id, "foo", {0: 1, 1: 1})) == [0, 0]
        g, h = [(group_id, "", "Empty", "classic") for group_id in ("g", "h")]
        assert sorted(list_groups(world, 1)) == [g, h]
        assert sorted(list_groups(world, 1, states_filter=["empty"], types_filter=["Classic"])) == [g, h]
        assert list_groups(world, 1, states_filter=["Stable"]) == []
        assert list_groups(world, 1, types_filter=["consumer"]) == []
        body = DeleteGroupsRequest(groups_names=["g", "g", "nobody"])
        answer = ask(world, 1, ApiKey.DELETE_GROUPS, 2, body, DeleteGroupsResponse)
        deleted = [(each.group_id, each.error_code) for each in answer.results]
        assert deleted == [("g", 0), ("nobody", ErrorCode.GROUP_ID_NOT_FOUND)]
        assert list_groups(world, 1) == [h]
        assert committed(world, 1, "g") == {}


def test_single_offsets_are_deleted() -> None:
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 3, replication_factor=1)
        coordinator(world, "g")
        assert delete_offsets(world, 1, "g", "foo", [0]).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert commit(world, 1, commit_request("g", "foo", {0: 1, 1: 1})) == [0, 0]
        answer = delete_offsets(world, 1, "g", "foo", [0, 2, 9])
        assert [x.error_code for x in answer.topics[0].partitions] == [0, 0, 3]
        assert committed(world, 1, "g") == {("foo", 1): 1}


def test_a_group_with_more_offsets_than_fit_into_a_batch_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(settings=FEW) as world:
        world.create_topic("foo", 40)
        node_id = coordinator(world, "g")
        monkeypatch.setattr("broker.coordinator.decisions.MAX_TOMBSTONES_BYTES", 400)
        for partition in range(40):
            assert commit(world, node_id, commit_request("g", "foo", {partition: 7})) == [0]
        body = DeleteGroupsRequest(groups_names=["g"])
        answer = ask(world, node_id, ApiKey.DELETE_GROUPS, 2, body, DeleteGroupsResponse)
        assert answer.results[0].error_code == ErrorCode.NONE
        assert committed(world, node_id, "g") == {}
        world.kill(node_id)
        assert committed(world, coordinator(world, "g"), "g") == {}


def test_a_partition_that_a_fetch_names_twice_is_answered_once() -> None:
    """Otherwise its metadata could make an answer of any size."""
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 2, replication_factor=1)
        coordinator(world, "g")
        body = commit_request("g", "foo", {0: 7, 1: 8})
        body.topics[0].partitions[0].committed_metadata = "x" * 4096
        assert commit(world, 1, body) == [0, 0]
        topics = [OffsetFetchRequestTopic(name="foo", partition_indexes=[0] * 9 + [1])] * 2
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
        (group,) = ask(world, 1, ApiKey.OFFSET_FETCH, 8, asked, OffsetFetchResponse).groups
        assert [[x.committed_offset for x in topic.partitions] for topic in group.topics] == [[7, 8], []]
