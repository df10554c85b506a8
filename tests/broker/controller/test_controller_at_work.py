"""What the controller answers is what its log holds, also where an append was refused."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from broker.controller.operations import OPERATIONS, Leadership
from broker.scheduling.background import PAUSE
from protocol.controller.brokers import UnregisterBroker
from protocol.controller.settings import (
    AlteredQuota,
    AlterQuotas,
    AlterQuotasResult,
    QuotaEntity,
    QuotaOperation,
)
from protocol.controller.topics import (
    CreateTopics,
    CreateTopicsResult,
    DeleteTopics,
    NewTopic,
)
from protocol.errors import ErrorCode, KafkaError
from storage.disk import BLOCK_BYTES
from tests.broker.world import World, running
from tests.storage.helpers import segment_bases


def _new_topic(name: str, partitions: int = 1) -> CreateTopics:
    return CreateTopics(topics=[NewTopic(name=name, num_partitions=partitions, replication_factor=1)])


def _create(world: World, node_id: int, name: str) -> None:
    (topic,) = world.ask(node_id, _new_topic(name)).topics
    assert topic.error_code == ErrorCode.NONE, topic


def test_a_decision_that_the_full_disk_refused_was_never_made() -> None:
    with running(size=1) as world:
        disk = world.disks[1]
        room = disk.faults.capacity_bytes
        disk.faults.capacity_bytes = room - disk.free_bytes()
        too_many = BLOCK_BYTES // 4  # more than the padding of the log has room for
        with pytest.raises(KafkaError) as refusal:
            world.ask(1, _new_topic("foo", too_many))
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        disk.faults.capacity_bytes = room
        _create(world, 1, "foo")
        world.wait(lambda: world.nodes[1].metadata.image.topic_named("foo") is not None)
        world.produce("foo", b"a")


def _new_quota(character: str) -> AlterQuotas:
    """Its record is larger than the padding of the log."""
    entity = [QuotaEntity(entity_type="client-id", name=character * (BLOCK_BYTES + 1))]
    limit = QuotaOperation(key="producer_byte_rate", limit=1.0, remove=False)
    return AlterQuotas(quotas=[AlteredQuota(entity=entity, operations=[limit])], validate_only=False)


def test_what_is_asked_while_a_refused_write_is_answered_is_decided_once() -> None:
    """Each answer's callback asks for something at once. The second answer throws the image away that has what the
    first callback asked for, before the log has it."""
    with running(size=1) as world:
        node, disk = world.nodes[1], world.disks[1]
        room = disk.faults.capacity_bytes
        disk.faults.capacity_bytes = room - disk.free_bytes()
        answers: list[CreateTopicsResult | KafkaError] = []

        def ask_for_more(refused: AlterQuotasResult | KafkaError) -> None:
            assert isinstance(refused, KafkaError) and refused.code is ErrorCode.KAFKA_STORAGE_ERROR
            disk.faults.capacity_bytes = room
            node.controller.call(_new_topic("foo"), answers.append)

        def ask() -> None:
            for character in "ab":
                node.controller.call(_new_quota(character), ask_for_more)

        world.processes[1].call(ask)
        world.wait(lambda: len(answers) == 2, limit_s=5.0)
        results = [answer for answer in answers if isinstance(answer, CreateTopicsResult)]
        codes = [result.topics[0].error_code for result in results]
        assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
        assert node.metadata.image.contradictions == 0


def test_an_answer_without_records_does_not_rest_on_what_the_full_disk_refused() -> None:
    """It waits for a liveness round, and the write is refused meanwhile. The leadership stays, because no follower was
    sent any of it: they have not acknowledged what they were sent before."""
    with running() as world:
        leader = world.nodes[1].leaders.controller_id()
        node, disk = world.nodes[leader], world.disks[leader]
        assert node.metadata.replica is not None
        epoch = node.metadata.replica.leader_epoch
        for other in set(world.ids) - {leader}:
            world.disks[other].faults.hangs_until_s = world.loop.time() + 0.4
        for number in range(20):
            world.processes[leader].call(node.controller.call, _new_topic(f"t{number}"), lambda _: None)
            world.loop.run_for(0.002)
        room = disk.faults.capacity_bytes
        disk.faults.capacity_bytes = room - disk.free_bytes()
        refused: list[CreateTopicsResult | KafkaError] = []
        answers: list[CreateTopicsResult | KafkaError] = []

        def ask() -> None:
            node.controller.call(_new_topic("foo", BLOCK_BYTES // 4), refused.append)
            node.controller.call(_new_topic("foo"), answers.append)

        world.processes[leader].call(ask)
        world.wait(lambda: bool(refused), limit_s=0.1)
        disk.faults.capacity_bytes = room
        assert isinstance(refused[0], KafkaError) and refused[0].code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not answers
        world.wait(lambda: bool(answers), limit_s=5.0)
        assert isinstance(answers[0], CreateTopicsResult), answers
        assert answers[0].topics[0].error_code == ErrorCode.NONE, "it was asked again"
        assert node.metadata.replica.leader_epoch == epoch


def test_partitions_that_a_full_disk_has_no_room_for_are_opened_when_it_has() -> None:
    """The controller's log had room for the decision. The node goes on, and what it has can be deleted."""
    with running(size=1) as world:
        world.create_topic("bar", replication_factor=1)
        world.produce("bar", b"a")
        disk = world.disks[1]
        room = disk.faults.capacity_bytes
        disk.faults.capacity_bytes = room - disk.free_bytes()
        _create(world, 1, "foo")
        world.loop.run_for(2.0)
        image = world.nodes[1].metadata.image
        assert image.topic_named("foo") is not None and ("foo", 0) not in world.nodes[1].replicas.by_name
        world.delete_topic("bar")
        disk.faults.capacity_bytes = room
        assert world.produce("foo", b"a") == 0


def test_a_request_during_a_leadership_transfer_is_answered_by_the_next_controller() -> None:
    with running() as world:
        leader = world.nodes[1].leaders.controller_id()
        node = world.nodes[leader]
        group = node.metadata.replica.group  # type: ignore[union-attr]
        target = next(voter for voter in group.configuration.voters if voter != group.self_id)

        def transfer() -> None:
            assert node.metadata.replica is not None
            node.metadata.replica.driver.transfer_leadership(target)

        world.processes[leader].call(transfer)
        assert not group.can_propose
        _create(world, leader, "foo")


def deposed_controller(world: World) -> int:
    """A controller that is cut off and does not know that it has a successor."""
    old = world.nodes[1].leaders.controller_id()
    others = [node_id for node_id in world.ids if node_id != old]
    for other in others:
        world.network.cut(f"n{old}", f"n{other}")
        world.network.cut(f"n{other}", f"n{old}")
    world.wait(lambda: any(world.nodes[node_id].leaders.controller_id() in others for node_id in others))
    _create(world, others[0], "foo")
    replica = world.nodes[old].metadata.replica
    assert replica is not None and replica.is_serving, "it does not know yet"
    return old


def test_a_stale_controller_does_not_say_of_a_topic_that_it_is_unknown() -> None:
    """Nothing is appended for such an answer, so no commit shows that the controller still leads: the answer waits for
    a liveness round."""
    with running() as world:
        old = deposed_controller(world)
        other = next(node_id for node_id in world.ids if node_id != old)
        with pytest.raises(KafkaError) as refusal:
            world.ask(old, DeleteTopics(topic_ids=[world.topic_id(other, "foo")]))
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_stale_controller_does_not_refuse_either() -> None:
    """A refusal says what is there, too: here, that a broker is not registered."""
    with running() as world:
        old = deposed_controller(world)
        with pytest.raises(KafkaError) as refusal:
            world.ask(old, UnregisterBroker(node_id=9))
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_an_answer_that_the_link_lost_is_asked_for_again_when_there_is_a_new_one() -> None:
    """The controller took the request, and its way back was cut without a word: nobody closed a connection."""
    with running() as world:
        controller = world.nodes[1].leaders.controller_id()
        asker = 1 + controller % 3
        answers: list[CreateTopicsResult | KafkaError] = []
        world.network.cut(f"n{controller}", f"n{asker}")
        ask = world.nodes[asker].controller.call
        world.processes[asker].call(ask, _new_topic("foo"), answers.append)
        world.loop.run_for(1)
        world.network.heal_all()
        world.wait(lambda: bool(answers), limit_s=5)
        assert isinstance(answers[0], CreateTopicsResult), answers


def test_the_metadata_log_rolls_by_its_own_settings_and_is_read_again_whole() -> None:
    with running(settings={"metadata.log.segment.bytes": "4096"}) as world:
        names = [f"t{number}" for number in range(30)]
        for name in names:
            world.create_topic(name)
        node_id, node = next(iter(world.nodes.items()))
        assert node.metadata.replica is not None
        assert len(segment_bases(node.metadata.replica.log)) > 1
        assert len(segment_bases(world.replica(node_id, names[0]).log)) == 1
        world.stop(node_id)
        world.start(node_id)
        world.wait_ready(node_id)
        world.wait(lambda: set(world.nodes[node_id].metadata.image.topic_names()) >= set(names))


def test_what_nobody_waits_for_any_more_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller is busy with another request for longer than anybody waits."""
    with running(size=1) as world:
        service, held = world.nodes[1].metadata, [True]
        unregister = OPERATIONS[UnregisterBroker]

        def hold(leading: Leadership, request: UnregisterBroker) -> Generator[Any, None, Any]:
            while held:
                yield PAUSE
            return (yield from unregister(leading, request))

        table: Any = OPERATIONS
        monkeypatch.setitem(table, UnregisterBroker, hold)
        answers: list[Any] = []
        for request in (UnregisterBroker(node_id=9), _new_topic("late")):
            world.processes[1].call(world.nodes[1].controller.call, request, answers.append)
        world.wait(lambda: len(answers) == 2)
        assert [answer.code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT] * 2
        held.clear()
        _create(world, 1, "next")
        assert list(service.image.topic_names()) == ["next"]
