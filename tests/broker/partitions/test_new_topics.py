"""What a question makes is unknown until it can be used, as with Apache Kafka; who makes a topic waits until then."""

from __future__ import annotations

import itertools

import pytest

from broker.partitions.new_topics import HIDDEN_S, MAX_HIDDEN, NewTopics
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.broker.asking import ask
from tests.broker.world import World, running


def look(world: World, node_id: int, name: str, *, as_client: bool = True) -> MetadataResponseTopic:
    body = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=as_client)
    (found,) = ask(world, node_id, ApiKey.METADATA, 9, body, MetadataResponse).topics
    return found


def creatable(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=3, replication_factor=3)


@pytest.mark.parametrize("seed", range(5))
def test_a_new_topic_is_shown_with_its_leaders(seed: int) -> None:
    with running(seed=seed) as world:
        for number in range(5):
            name = f"made-{number}"
            nodes = itertools.cycle(world.nodes)
            while (
                found := look(world, next(nodes), name)
            ).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                assert not found.partitions
            assert (found.error_code, [x.error_code for x in found.partitions]) == (
                0,
                [0] * len(found.partitions),
            )


def test_administrators_see_a_new_topic_at_once() -> None:
    with running() as world:
        world.create_topic("foo")
        found = look(world, 2, "foo", as_client=False)
        assert (found.error_code, len(found.partitions)) == (0, 1)


@pytest.mark.parametrize("seed", range(5))
def test_who_creates_a_topic_is_answered_when_it_can_be_used(seed: int) -> None:
    with running(seed=seed) as world:
        for number in range(5):
            name = f"made-{number}"
            body = CreateTopicsRequest(topics=[creatable(name)], timeout_ms=30_000)
            (made,) = ask(world, number % 3 + 1, ApiKey.CREATE_TOPICS, 7, body, CreateTopicsResponse).topics
            assert made.error_code == ErrorCode.NONE
            found = look(world, number % 3 + 1, name)
            assert (found.error_code, [x.error_code for x in found.partitions]) == (0, [0] * 3)


@pytest.mark.parametrize("seed", range(5))
def test_who_adds_partitions_is_answered_when_they_can_be_used(seed: int) -> None:
    with running(seed=seed) as world:
        world.create_topic("foo", partitions=1)
        for count in range(2, 7):
            more = CreatePartitionsTopic(name="foo", count=count, assignments=None)
            body = CreatePartitionsRequest(topics=[more], timeout_ms=30_000)
            node_id = count % 3 + 1
            (made,) = ask(world, node_id, ApiKey.CREATE_PARTITIONS, 3, body, CreatePartitionsResponse).results
            assert made.error_code == ErrorCode.NONE
            found = look(world, node_id, "foo", as_client=False)
            (new,) = (x for x in found.partitions if x.partition_index == count - 1)
            assert new.error_code == ErrorCode.NONE, "its leader is known here"


def test_a_client_that_cannot_wait_is_answered_when_the_topic_is_there() -> None:
    with running() as world:
        body = CreateTopicsRequest(topics=[creatable("foo")], timeout_ms=0)
        (made,) = ask(world, 1, ApiKey.CREATE_TOPICS, 7, body, CreateTopicsResponse).topics
        assert made.error_code == ErrorCode.NONE
        assert world.nodes[1].metadata.image.topic_named("foo") is not None
        assert look(world, 1, "foo").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (
            "it has no leaders yet"
        )


def test_hidden_until_there_are_leaders_or_it_took_too_long() -> None:
    new = NewTopics()
    new.appeared("a", 0.0)
    new.appeared("b", 0.0)
    assert new.is_hidden("a", has_leaders=False, now=1.0)
    assert not new.is_hidden("a", has_leaders=True, now=1.0)
    assert not new.is_hidden("a", has_leaders=False, now=1.0), "it was shown; a client has seen it"
    assert new.is_hidden("b", has_leaders=False, now=HIDDEN_S - 0.1)
    assert not new.is_hidden("b", has_leaders=False, now=HIDDEN_S)
    assert not new.is_hidden("another", has_leaders=False, now=1.0)


def test_no_more_than_so_many_are_kept() -> None:
    new = NewTopics()
    for number in range(MAX_HIDDEN + 1):
        new.appeared(f"n{number}", 0.0)
    assert new.is_hidden(f"n{MAX_HIDDEN - 1}", has_leaders=False, now=1.0)
    assert not new.is_hidden(f"n{MAX_HIDDEN}", has_leaders=False, now=1.0)


def test_a_topic_that_is_created_again_does_not_hide_others_for_longer() -> None:
    new = NewTopics()
    new.appeared("again", 0.0)
    new.appeared("other", 1.0)
    new.appeared("again", 4.0)
    assert new.is_hidden("other", has_leaders=False, now=0.9 + HIDDEN_S)
    assert not new.is_hidden("other", has_leaders=False, now=1.0 + HIDDEN_S)
    assert new.is_hidden("again", has_leaders=False, now=1.0 + HIDDEN_S)
