"""A topic that a question makes is unknown until it can be used, as with Apache Kafka."""

from __future__ import annotations

import itertools

import pytest

from broker.new_topics import HIDDEN_S, MAX_HIDDEN, NewTopics
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
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
