"""A topic that a question makes is unknown until it can be used, as with Apache Kafka."""

from __future__ import annotations

import pytest

from broker.auto_creation import HIDDEN_S, MAX_HIDDEN, AutoCreation
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
            while (found := look(world, 1, name)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                assert not found.partitions
            assert (found.error_code, [x.error_code for x in found.partitions]) == (
                0,
                [0] * len(found.partitions),
            )


def test_what_was_refused_may_be_asked_for_again() -> None:
    creation = AutoCreation()
    assert creation.begin(["a", "b"], 0.0) == ["a", "b"]
    assert creation.begin(["a", "c"], 1.0) == ["c"]
    creation.failed("a")
    assert creation.begin(["a"], 1.0) == ["a"]


def test_hidden_until_there_are_leaders_or_it_took_too_long() -> None:
    creation = AutoCreation()
    creation.begin(["a", "b"], 0.0)
    assert creation.is_hidden("a", has_leaders=False, now=1.0)
    assert not creation.is_hidden("a", has_leaders=True, now=1.0)
    assert not creation.is_hidden("a", has_leaders=False, now=1.0), "it was shown; a client has seen it"
    assert creation.is_hidden("b", has_leaders=False, now=HIDDEN_S - 0.1)
    assert not creation.is_hidden("b", has_leaders=False, now=HIDDEN_S)
    assert not creation.is_hidden("another", has_leaders=False, now=1.0)


def test_no_more_than_so_many_are_kept() -> None:
    creation = AutoCreation()
    names = [f"n{number}" for number in range(MAX_HIDDEN + 5)]
    assert creation.begin(names, 0.0) == names
    assert creation.is_hidden(names[MAX_HIDDEN - 1], has_leaders=False, now=1.0)
    assert not creation.is_hidden(names[MAX_HIDDEN], has_leaders=False, now=1.0)
