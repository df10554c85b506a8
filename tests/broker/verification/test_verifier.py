"""Comparisons in the background, and what a replica needs for a digest of its log."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
import structlog

from broker.replication.digest_state import DigestState
from broker.verification.results import Answer, Outcome, Question
from protocol import peer
from storage.compaction.view_digest import OffsetRange, RangeDigest
from storage.disk import MissingPathError
from tests.broker.asking import until
from tests.broker.compacting import pass_over
from tests.broker.verification.changed import change_bytes
from tests.broker.verification.comparing import create, verify
from tests.broker.world import World, running

OFTEN = {"varve.verify.interval.ms": "1000"}


def question(start: int, end: int, *, is_by_key: bool = True) -> Question:
    view = OffsetRange(start, end)
    return Question(view, view, is_by_key, is_background=False)


def make(world: World, node_id: int, asked: Question) -> Answer:
    node, process = world.nodes[node_id], world.processes[node_id]
    task = process.create_task(node.verification._maker.make(world.replica(node_id, "table"), asked))
    world.wait(task.done)
    return task.result()


def test_every_partition_is_compared_again_and_again() -> None:
    with running(settings=OFTEN) as world:
        world.create_topic("table", partitions=4)
        for partition in range(4):
            world.produce("table", b"value", partition=partition)
        world.loop.run_for(20)
        verifiers = [node.verification for node in world.nodes.values()]
        # Those of the metadata, too.
        outcomes = sum((each.outcomes for each in verifiers), Counter())
        assert outcomes[Outcome.EQUAL] >= 10
        assert outcomes[Outcome.DIFFERENT] == 0


def test_a_changed_record_is_found_in_the_background_and_told() -> None:
    with running(settings=OFTEN) as world, structlog.testing.capture_logs() as lines:
        leader, others = create(world)
        for number in range(5):
            world.produce("table", b"value-%d" % number, key=b"k%d" % number)
        world.wait_equal("table")
        change_bytes(world, others[0], "table", 3, b"value-3", b"value_3")
        until(world, lambda: world.nodes[leader].verification.outcomes[Outcome.DIFFERENT] > 0)
        line = next(line for line in lines if line["event"] == "replicas differ")
        assert line["log_level"] == "error"
        assert (line["topic"], line["partition"]) == ("table", 0)
        assert (line["leader"], line["broker"]) == (leader, others[0])
        assert (line["first_offset"], line["end_offset"]) == (3, 4)
        # Nothing is done about it.
        assert world.replica(others[0], "table").is_open


def test_nothing_is_compared_in_the_background_when_it_is_off() -> None:
    with running(settings={"varve.verify.interval.ms": "0"}) as world:
        create(world)
        world.loop.run_for(120)
        assert all(not node.verification.outcomes for node in world.nodes.values())


def test_a_background_digest_reads_slowly() -> None:
    with running(settings={"varve.verify.io.max.bytes.per.second": "100000"}) as world:
        leader, _ = create(world, "delete")
        for _ in range(40):
            world.produce("table", b"x" * 100_000)
        asked = question(0, 40, is_by_key=False)
        began = world.loop.time()
        make(world, leader, asked)
        quick_s = world.loop.time() - began
        task = world.processes[leader].create_task(
            world.nodes[leader].verification._maker.make(
                world.replica(leader, "table"), asked._replace(is_background=True)
            )
        )
        world.wait(task.done, limit_s=60)
        assert quick_s < 1 < 25 < world.loop.time() - began


def test_a_question_is_repeated_once_a_second() -> None:
    """It was asked anew as soon as a member had said that it was not done."""
    with running(settings={"varve.verify.io.max.bytes.per.second": "100000"}) as world:
        leader, others = create(world, "delete")
        for _ in range(20):
            world.produce("table", b"x" * 100_000)
        world.wait_equal("table")
        heard: list[float] = []
        world.nodes[others[0]].messages.on_digest_request.append(lambda *_: heard.append(world.loop.time()))
        replica, verifier = world.replica(leader, "table"), world.nodes[leader].verification
        task = world.processes[leader].create_task(verifier._compare(replica, is_background=True))
        world.wait(task.done, limit_s=60)
        assert len(heard) >= 19
        assert all(later - earlier >= 0.99 for earlier, later in pairwise(heard))


def test_what_keeps_a_replica_from_making_a_digest() -> None:
    with running() as world:
        leader, _ = create(world)
        for number in range(10):
            world.produce("table", b"%d" % number, key=b"k")
        assert isinstance(make(world, leader, question(0, 10)), RangeDigest)
        assert make(world, leader, question(0, 11)) is DigestState.BEHIND
        pass_over(world, leader)
        assert make(world, leader, question(0, 9)) is DigestState.COMPACTED_FURTHER
        # Nine of ten records are gone.
        assert make(world, leader, question(0, 10, is_by_key=False)) is DigestState.REWRITTEN
        replica = world.replica(leader, "table")
        world.processes[leader].call(replica.log_start.raise_target, 5)
        until(world, lambda: replica.log.start_offset == 5)
        assert make(world, leader, question(4, 10)) is DigestState.STARTS_LATER
        assert isinstance(make(world, leader, question(5, 10)), RangeDigest)


def test_no_pass_begins_while_a_log_is_compared() -> None:
    with running(settings={"varve.compaction.initial.delay.ms": "0"}) as world:
        leader, _ = create(world)
        for number in range(10):
            world.produce("table", b"%d" % number, key=b"k")
        worker, replica = world.nodes[leader].compaction, world.replica(leader, "table")
        assert worker.hold(replica)
        assert worker.hold(replica)
        asked = world.processes[leader].call(worker.ask, replica)
        done: list[object] = []
        asked.answers.append(done.append)
        worker.release(replica)
        world.loop.run_for(20)
        assert not done
        worker.release(replica)
        world.wait(lambda: bool(done) and replica.bounds.cleaned_end == 10)


def test_a_log_that_is_being_compacted_is_not_compared() -> None:
    with running() as world:
        leader, _ = create(world)
        world.produce("table", b"value", key=b"k")
        pass_over(world, leader)
        node, replica = world.nodes[leader], world.replica(leader, "table")
        node.compaction._folders.add(replica.log.directory)
        assert make(world, leader, question(0, 1)) is DigestState.BUSY


def test_files_that_somebody_took_away_end_the_node() -> None:
    with running() as world:
        leader, _ = create(world)
        world.produce("table", b"value", key=b"k")
        disk, replica = world.disks[leader], world.replica(leader, "table")
        disk.unlink(f"{replica.log.directory}/{0:020}.log")
        with pytest.raises(MissingPathError):
            make(world, leader, question(0, 1))


def test_a_follower_that_is_told_something_else_than_its_leader_says_is_silent() -> None:
    """Of another term, or from somebody who does not lead."""
    with running() as world:
        leader, others = create(world)
        world.produce("table", b"value", key=b"k")
        replica, me = world.replica(others[0], "table"), world.replica(leader, "table").group.self_id
        answers = world.nodes[others[0]].verification._answers
        request = peer.DigestRequest(
            topic_id=replica.key.topic_id,
            partition=0,
            incarnation=me.incarnation,
            follower_incarnation=replica.group.self_id.incarnation,
            term=replica.group.term,
            number=1,
            start_offset=0,
            end_offset=1,
            focus_start=0,
            focus_end=1,
            is_by_key=True,
            is_background=False,
        )
        world.wait(lambda: replica.high_watermark == 1)
        process = world.processes[others[0]]
        process.call(answers.requested, replica, replica.group.self_id, request)
        request.term -= 1
        process.call(answers.requested, replica, me, request)
        assert not answers._asked
        request.term += 1
        process.call(answers.requested, replica, me, request)
        assert len(answers._asked) == 1


def test_what_a_leader_has_given_up_is_given_up() -> None:
    with running(settings={"varve.verify.io.max.bytes.per.second": "1"} | OFTEN) as world:
        leader, others = create(world, "delete")
        for _ in range(20):
            world.produce("table", b"x" * 100_000)
        answers = world.nodes[others[0]].verification._answers
        until(world, lambda: any(asked.leader.node_id == leader for asked in answers._asked.values()))
        world.kill(leader)
        until(world, lambda: not any(asked.leader.node_id == leader for asked in answers._asked.values()))
        replica = world.replica(others[0], "table")
        assert world.nodes[others[0]].compaction._held[replica.key] <= 1


def test_a_node_that_compares_stops_at_once() -> None:
    with running(settings={"varve.verify.io.max.bytes.per.second": "1"} | OFTEN) as world:
        leader, _ = create(world, "delete")
        for _ in range(20):
            world.produce("table", b"x" * 100_000)
        verifier = world.nodes[leader].verification
        until(world, lambda: verifier._in_background is not None)
        world.stop(leader)
        assert leader not in world.nodes


def test_comparisons_of_several_partitions_are_answered_one_after_the_other() -> None:
    with running(size=1) as world:
        world.create_topic("table", partitions=3, replication_factor=1)
        for partition in range(3):
            world.produce("table", b"value", partition=partition)
        assert [verify(world, 1, partition=n).records for n in range(3)] == [1, 1, 1]
