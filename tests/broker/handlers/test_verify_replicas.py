"""VerifyReplicas: what a leader finds when it compares its replica with the others."""

from __future__ import annotations

from dataclasses import replace

from broker.verification.results import Outcome
from broker.verification.verifier import MAX_WAITING
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.verify_replicas import (
    VerifyPartition,
    VerifyReplicasResponse,
    VerifyTopic,
)
from tests.broker.asking import connect, until
from tests.broker.compacting import pass_over
from tests.broker.verification.changed import change_bytes
from tests.broker.verification.comparing import create, request_for, verify, verify_again
from tests.broker.world import running

NOT_IN_BACKGROUND = {"varve.verify.interval.ms": "0"}


def found(answer: VerifyPartition) -> dict[int, tuple[int, int]]:
    """Where brokers differ from the leader."""
    assert answer.error_code == ErrorCode.NONE, answer
    return {
        each.node_id: (each.first_offset, each.end_offset)
        for each in answer.replicas
        if each.first_offset >= 0
    }


def alike(answer: VerifyPartition) -> dict[int, int]:
    return {each.node_id: each.like for each in answer.replicas}


def test_replicas_of_a_topic_that_is_not_compacted_are_equal() -> None:
    with running() as world:
        leader, _ = create(world, "delete")
        for number in range(10):
            world.produce("table", b"%d" % number, b"without a key")
        answer = verify(world, leader)
        assert found(answer) == {}
        assert alike(answer) == dict.fromkeys(world.ids, 1)
        assert (answer.start_offset, answer.end_offset, answer.records) == (0, 20, 10)
        assert not answer.is_by_key


def test_it_does_not_matter_which_replica_has_compacted() -> None:
    with running() as world:
        leader, others = create(world)
        for number in range(10):
            world.produce("table", b"%d" % number, key=b"k%d" % (number % 3))
        world.wait_equal("table")
        pass_over(world, others[0])
        world.produce("table", b"10", key=b"k0")
        pass_over(world, leader)
        answer = verify(world, leader)
        assert found(answer) == {}
        assert alike(answer) == dict.fromkeys(world.ids, 1)
        assert (answer.end_offset, answer.records, answer.is_by_key) == (11, 3, True)


def test_one_that_has_compacted_before_the_policy_changed_makes_no_difference() -> None:
    with running() as world:
        leader, others = create(world)
        for number in range(10):
            world.produce("table", b"%d" % number, key=b"k")
        world.wait_equal("table")
        pass_over(world, others[0])
        world.wait(lambda: world.replica(others[0], "table").bounds.cleaned_end == 10)
        for node_id in world.ids:
            replica = world.replica(node_id, "table")
            replica.reconfigure(replace(replica.config, cleanup_policy=("delete",)))
        answer = verify(world, leader)
        assert (found(answer), answer.is_by_key, answer.records) == ({}, True, 1)


def test_a_changed_record_is_found_with_its_broker_and_offset() -> None:
    for policy in ("compact", "delete"):
        with running() as world:
            leader, others = create(world, policy)
            for number in range(30):
                world.produce("table", b"value-%02d" % number, key=b"k%d" % number)
            world.wait_equal("table")
            change_bytes(world, others[1], "table", 17, b"value-17", b"value_17")
            answer = verify(world, leader)
            assert found(answer) == {others[1]: (17, 18)}
            differing = next(each for each in answer.replicas if each.node_id == others[1])
            assert (differing.records_of_leader, differing.records) == (1, 1)
            assert alike(answer)[leader] == alike(answer)[others[0]] != alike(answer)[others[1]]
            assert sum(world.nodes[leader].verification.mismatches.values()) == 1


def test_the_first_difference_is_searched_for_in_a_long_log() -> None:
    with running() as world:
        leader, others = create(world)
        for number in range(60):
            world.produce(
                "table", *[b"value-%02d-%02d" % (number, n) for n in range(50)], key=b"k%d" % number
            )
        world.wait_equal("table")
        change_bytes(world, others[0], "table", 2049, b"value-40-49", b"value_40-49")
        assert found(verify(world, leader)) == {others[0]: (2049, 2050)}


def test_a_leader_that_differs_from_both_others_is_seen_to_be_alone() -> None:
    with running() as world:
        leader, others = create(world)
        for number in range(5):
            world.produce("table", b"value-%d" % number, key=b"k%d" % number)
        world.wait_equal("table")
        change_bytes(world, leader, "table", 3, b"value-3", b"value_3")
        answer = verify(world, leader)
        assert found(answer) == {others[0]: (3, 4), others[1]: (3, 4)}
        assert alike(answer)[others[0]] == alike(answer)[others[1]] != alike(answer)[leader]


def test_a_change_of_what_is_superseded_makes_no_difference() -> None:
    with running() as world:
        leader, others = create(world)
        for number in range(5):
            world.produce("table", b"value-%d" % number, key=b"k")
        world.wait_equal("table")
        change_bytes(world, others[0], "table", 3, b"value-3", b"value_3")
        assert found(verify(world, leader)) == {}


def test_a_replica_that_is_away_is_not_compared() -> None:
    with running() as world:
        leader, others = create(world)
        world.produce("table", b"value", key=b"k")
        world.kill(others[0])
        node = world.nodes[leader]
        until(world, lambda: others[0] not in node.view.alive_brokers())
        answer = verify(world, leader)
        said = {each.node_id: each.not_compared for each in answer.replicas}
        assert said == {leader: "", others[0]: "offline", others[1]: ""}
        assert found(answer) == {}
        assert node.verification.outcomes == {Outcome.INCOMPLETE: 1}


def test_an_empty_partition_is_equal() -> None:
    with running() as world:
        leader, _ = create(world)
        answer = verify(world, leader)
        assert (found(answer), answer.records, answer.end_offset) == ({}, 0, 0)
        assert set(alike(answer).values()) == {1}


def test_refusals() -> None:
    with running() as world:
        leader, others = create(world)
        assert verify(world, others[0]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert verify(world, leader, "none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert verify(world, leader, partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert verify(world, leader, "no/name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_partition_that_is_named_again_and_again_is_compared_once() -> None:
    with running(settings=NOT_IN_BACKGROUND) as world:
        leader, _ = create(world, "delete")
        world.produce("table", b"value")
        answers = verify_again(world, leader, 50)
        assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 50
        assert world.nodes[leader].verification.outcomes == {Outcome.EQUAL: 1}


def test_what_too_many_questions_ask_for_is_refused() -> None:
    with running(settings=NOT_IN_BACKGROUND) as world:
        leader, _ = create(world, "delete")
        codes = [answer.error_code for answer in verify_again(world, leader, MAX_WAITING + 1)]
        assert codes == [ErrorCode.NONE] * MAX_WAITING + [ErrorCode.POLICY_VIOLATION]


def test_nothing_is_compared_for_a_client_that_is_gone() -> None:
    with running(settings=NOT_IN_BACKGROUND) as world:
        world.create_topic("many", partitions=30)
        leader = world.leader("many")
        led = [number for number in range(30) if world.leader("many", number) == leader]
        request = request_for(VerifyTopic(name="many", partition_indexes=led))
        opening = world.loop.create_task(connect(world, leader))
        world.wait(opening.done)
        client = opening.result()
        world.loop.create_task(
            client.request(ApiKey.VERIFY_REPLICAS, 0, request, VerifyReplicasResponse)
        ).add_done_callback(lambda task: task.exception())
        outcomes = world.nodes[leader].verification.outcomes
        world.wait(lambda: bool(outcomes))
        client.abort()
        world.loop.run_for(60)
        assert outcomes.total() <= 2 < len(led)
        # Nobody waits behind what they had asked for.
        assert found(verify(world, leader, "many", led[-1])) == {}
