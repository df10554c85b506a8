"""A topic that a question makes is unknown until it can be used, as with Apache Kafka."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest

from broker.new_topics import HIDDEN_S, MAX_HIDDEN, NewTopics
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
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


def look(world: World, node_id: int, name: str) -> MetadataResponseTopic:
    body = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
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
        body = MetadataRequest(topics=[MetadataRequestTopic(name="foo")], allow_auto_topic_creation=False)
        (found,) = ask(world, 2, ApiKey.METADATA, 9, body, MetadataResponse).topics
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


def test_who_waits_is_told_once_and_not_for_ever() -> None:
    led: set[tuple[UUID, int]] = set()
    new = NewTopics(lambda topic_id, number: (topic_id, number) in led)
    told: list[str] = []
    first, second = [(UUID(int=1), number) for number in range(2)], [(UUID(int=2), 0)]
    new.wait_led([], 5.0, lambda: told.append("nothing"))
    assert told == ["nothing"]
    new.wait_led(first, 5.0, lambda: told.append("first"))
    new.wait_led(first + second, 1.0, lambda: told.append("both"))
    led.add(first[0])
    new.leaders_changed()
    assert told == ["nothing"]
    new.tick(0.9)
    assert told == ["nothing"]
    new.tick(1.0)
    assert told == ["nothing", "both"]
    led.add(first[1])
    new.leaders_changed()
    new.tick(9.0)
    assert told == ["nothing", "both", "first"]


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
    new = NewTopics(lambda topic_id, number: False)
    new.appeared("a", 0.0)
    new.appeared("b", 0.0)
    assert new.is_hidden("a", has_leaders=False, now=1.0)
    assert not new.is_hidden("a", has_leaders=True, now=1.0)
    assert not new.is_hidden("a", has_leaders=False, now=1.0), "it was shown; a client has seen it"
    assert new.is_hidden("b", has_leaders=False, now=HIDDEN_S - 0.1)
    assert not new.is_hidden("b", has_leaders=False, now=HIDDEN_S)
    assert not new.is_hidden("another", has_leaders=False, now=1.0)


def test_no_more_than_so_many_are_kept() -> None:
    new = NewTopics(lambda topic_id, number: False)
    for number in range(MAX_HIDDEN + 1):
        new.appeared(f"n{number}", 0.0)
    assert new.is_hidden(f"n{MAX_HIDDEN - 1}", has_leaders=False, now=1.0)
    assert not new.is_hidden(f"n{MAX_HIDDEN}", has_leaders=False, now=1.0)
