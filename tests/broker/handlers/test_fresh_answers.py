"""A client that asks for a leader or coordinator at the moment when one dies is not sent to the dead one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import permutations

import pytest

from broker.serving.dispatcher import LEADER_ANSWER_DELAY_S
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.asking import ask, begin_ask
from tests.broker.world import World, running
from tests.simulator.client import Connection

#: The time from the client's dialling of another node to the death: its request is under way, or has just come.
DEATHS_S = [number * 0.000_1 for number in range(1, 20)]


@contextmanager
def running_on_even_links() -> Iterator[World]:
    """No packet is late by chance: the delay of an answer does not cover that."""
    with running() as world:
        for source, target in permutations(world.ids, 2):
            world.network.link(f"n{source}", f"n{target}").delay.spike_rate = 0
        yield world


@pytest.mark.parametrize("death_s", DEATHS_S)
def test_a_leader_that_has_just_died_is_not_named(death_s: float) -> None:
    with running_on_even_links() as world:
        world.create_topic("foo")
        dead = world.leader("foo")
        world.loop.run_for(1)
        question = MetadataRequest(topics=[MetadataRequestTopic(name="foo")], allow_auto_topic_creation=False)
        asked = begin_ask(world, 1 + dead % 3, ApiKey.METADATA, 9, question, MetadataResponse)
        world.loop.run_for(death_s)
        world.kill(dead)
        world.wait(asked.done)
        (partition,) = asked.result().topics[0].partitions
        assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)


@pytest.mark.parametrize("death_s", DEATHS_S)
def test_a_coordinator_that_has_just_died_is_not_named(death_s: float) -> None:
    with running_on_even_links() as world:
        question = FindCoordinatorRequest(key="g")
        found = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        while found.error_code:
            world.loop.run_for(0.5)
            found = ask(world, 1, ApiKey.FIND_COORDINATOR, 3, question, FindCoordinatorResponse)
        dead = found.node_id
        asked = begin_ask(world, 1 + dead % 3, ApiKey.FIND_COORDINATOR, 3, question, FindCoordinatorResponse)
        world.loop.run_for(death_s)
        world.kill(dead)
        world.wait(asked.done)
        assert asked.result().node_id != dead


@pytest.mark.parametrize(("version", "is_late"), [(0, True), (1, False), (9, False)])
def test_a_request_for_brokers_only_is_answered_at_once(version: int, is_late: bool) -> None:
    """In version 0 an empty list asks for all topics."""
    with running() as world:
        connection = Connection()
        connected = world.loop.create_task(world.network.of("client").connect("n1", 9092, lambda: connection))
        world.wait(connected.done)
        asked = world.loop.create_task(
            connection.request(ApiKey.METADATA, version, MetadataRequest(topics=[]), MetadataResponse)
        )
        began_s = world.loop.time()
        world.wait(asked.done)
        assert len(asked.result().brokers) == 3
        assert (world.loop.time() - began_s > LEADER_ANSWER_DELAY_S) == is_late
