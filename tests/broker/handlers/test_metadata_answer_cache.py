"""The cache of Metadata answers: the same bytes while nothing has changed, and never a stale answer."""

from __future__ import annotations

import random

import pytest

import broker.node
from broker.handlers import metadata
from broker.partitions.controlled_shutdown import transfer_leadership
from broker.serving import answer_cache
from broker.serving.answer_cache import AnswerCache
from protocol.api_keys import ApiKey
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.asking import ask
from tests.broker.world import World, running

VERSION = 12


def request(*names: str) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def answer(world: World, *names: str, node_id: int = 1) -> MetadataResponse:
    return ask(world, node_id, ApiKey.METADATA, VERSION, request(*names), MetadataResponse)


def test_a_cached_answer_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    describe = metadata._describe
    with running(size=1) as world:
        for name, partitions in (("large", 300), ("small", 1)):
            world.create_topic(name, partitions, 1)
            for partition in range(partitions):
                world.leader(name, partition)
        world.loop.run_for(1 - world.loop.time() % 1)  # the period of the cache has just begun

        def noted(node: object, topic: object) -> object:
            described.append(topic.name)  # type: ignore[attr-defined]
            return describe(node, topic)  # type: ignore[arg-type]

        monkeypatch.setattr(metadata, "_describe", noted)
        first, second = answer(world, "large"), answer(world, "large")
        assert first == second
        assert described == ["large"]
        answer(world, "small")
        answer(world, "small")
        assert described[1:] == ["small", "small"], "small answers are not cached"
        answer(world)
        assert sorted(described[3:]) == ["large", "small"], "a request for all topics is another question"


class Checked(AnswerCache):
    """Returns no answer, and compares each new answer with the one that the cache has."""

    def __init__(self) -> None:
        super().__init__()
        self.compared = 0
        self._would_give: bytes | None = None

    def get(self, question: tuple[object, ...], stamp: tuple[object, ...]) -> bytes | None:
        self._would_give = super().get(question, stamp)
        return None

    def put(self, question: tuple[object, ...], answer: bytes, stamp: tuple[object, ...]) -> None:
        if self._would_give is None:
            super().put(question, answer, stamp)
        else:
            assert without_isr(self._would_give) == without_isr(answer)
            self.compared += 1


def without_isr(answer: bytes) -> MetadataResponse:
    """The answer without in-sync replicas, which may be up to a second old."""
    decoded, _ = decode(MetadataResponse, VERSION, memoryview(answer))
    for topic in decoded.topics:
        for partition in topic.partitions:
            partition.isr_nodes = []
    return decoded


@pytest.mark.parametrize("seed", range(3))
def test_a_cached_answer_equals_a_new_one(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """On every node, while leaders, live nodes, topics and the time change."""
    monkeypatch.setattr(metadata, "MIN_CACHED_BYTES", 0)
    monkeypatch.setattr(broker.node, "AnswerCache", Checked)
    rng = random.Random(seed)
    with running(seed=seed + 1) as world:
        world.create_topic("t", 12)
        compared = 0
        for step in range(12):
            match rng.choice(("transfer", "kill", "start", "create")):
                case "transfer":
                    leader = world.leader("t", step)
                    replica = world.replica(leader, "t", step)
                    node = world.nodes[leader]
                    world.processes[leader].call(transfer_leadership, replica, node.replicas, node.cluster)
                case "kill" if len(world.nodes) == len(world.ids):
                    world.kill(rng.choice(list(world.nodes)))
                case "start":
                    for node_id in set(world.ids) - set(world.nodes):
                        world.start(node_id)
                        world.wait_ready(node_id)
                case "create" if len(world.nodes) == len(world.ids):
                    world.create_topic(f"t{step}")
            for _ in range(10):
                world.loop.run_for(rng.choice((0.001, 0.01, 0.1)))
                for node_id in world.nodes:
                    answer(world, node_id=node_id)
                    answer(world, "t", node_id=node_id)
        for node in world.nodes.values():
            assert isinstance(node.context.metadata_answers, Checked)
            compared += node.context.metadata_answers.compared
        assert compared > 50


def test_the_death_of_a_node_without_leaderships_is_visible_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "MIN_CACHED_BYTES", 0)
    monkeypatch.setattr(metadata, "_MAX_AGE_S", 1e9)
    with running() as world:
        world.create_topic("t")
        leader = world.leader("t")
        controller = world.nodes[leader].leaders.controller_id()
        follower = next(node_id for node_id in world.ids if node_id not in (leader, controller))
        assert answer(world, "t", node_id=leader).topics[0].partitions[0].offline_replicas == []
        world.kill(follower)
        world.wait(lambda: follower not in world.nodes[leader].view.alive_brokers())
        assert answer(world, "t", node_id=leader).topics[0].partitions[0].offline_replicas == [follower]


def test_an_answer_with_a_missing_topic_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request itself may have the topic created."""
    monkeypatch.setattr(metadata, "MIN_CACHED_BYTES", 0)
    with running(size=1) as world:
        assert answer(world, "later").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        body = request("later")
        body.allow_auto_topic_creation = True
        ask(world, 1, ApiKey.METADATA, VERSION, body, MetadataResponse)
        world.leader("later")
        assert answer(world, "later").topics[0].error_code == ErrorCode.NONE


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_cache, "_MAX_CACHE_BYTES", 10_000)
    kept = AnswerCache()
    for number in range(3):
        assert kept.get((number,), ("now",)) is None
        kept.put((number,), b"x" * 4096, ("now",))
    assert [kept.get((number,), ("now",)) is None for number in range(3)] == [False, False, True]
    assert kept.get((0,), ("later",)) is None, "something has changed"
    kept.put((0,), b"x" * 4096, ("now",))
    assert kept.get((0,), ("later",)) is None, "made before something changed"
