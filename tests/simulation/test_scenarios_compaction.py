"""Liveness of coordinated compaction, and what may become of its messages: invariants 10, 11 and 12 of
coordinated-compaction.md, section 5; and a pass over what a killed process has left. The oracle looks on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from broker.compaction.worker import CompactionWorker
from broker.config.node_config import NodeConfig
from broker.config.values import INT64_MAX
from broker.replication.producer_state_maintenance import ProducerStateMaintenance
from broker.replication.replica import Replica
from broker.replication.watermarks.bounds_exchange import BoundsExchange
from broker.replication.watermarks.compaction_bounds import CompactionBounds
from storage import producer_snapshot
from storage.disk import Disk
from storage.log import Log
from tests.simulator.cluster import TINY, SimulatedCluster, captured_logs
from tests.simulator.mutations.compacted_topic import CompactedTopic
from tests.simulator.mutations.stage import TOPIC, Stage, demand_progress
from tests.simulator.mutations.switch import Owner, replaced
from tests.simulator.mutations.transactional_id import TransactionalId

#: A pass that removes values, one that keeps a tombstone for `delete.retention.ms`, the exchange of bounds every second
#: at the latest, and the pass that removes it; twice.
TWO_PERIODS_S = 5.0


@contextmanager
def told(seed: int, config: NodeConfig = TINY) -> Iterator[Stage]:
    """... and then everything has to be there and equal."""
    cluster = SimulatedCluster(random.Random(seed), config=config)
    try:
        with captured_logs(cluster.loop):
            cluster.start()
            stage = Stage(cluster, random.Random(seed))
            stage.ready()
            yield stage
            demand_progress(stage)
    finally:
        cluster.close()


def markers_in(topic: CompactedTopic, node_id: int) -> list[int]:
    log = topic.stage.replica(node_id).log
    return [x.header.base_offset for x in log.batches(0) if x.header.is_control and x.header.count]


@pytest.mark.parametrize("seed", range(1, 6))
def test_whatever_has_expired_goes_while_all_members_are_up(seed: int) -> None:
    """Invariant 10: nobody writes any more, so nothing is dirty."""
    with told(seed) as stage:
        topic = CompactedTopic(stage)
        tombstones = []
        for number in range(stage.rng.randint(2, 5)):
            key = b"%d" % number
            topic.put(b"value" * stage.rng.randint(1, 100), key)
            tombstones.append(topic.put(None, key))
        producer = TransactionalId(stage, version=2)
        producer.init()
        producer.key = b"of a transaction"
        for _ in range(2):
            transaction = producer.begin()
            producer.write(transaction, TOPIC)
            producer.end(transaction, is_commit=stage.rng.random() < 0.5)
        topic.put(b"last", b"last")
        stage.everybody_has_all()
        is_gone = stage.waited(
            lambda: (
                not any(
                    markers_in(topic, node_id) or any(topic.holds(node_id, offset) for offset in tombstones)
                    for node_id in (1, 2, 3)
                )
            ),
            TWO_PERIODS_S,
        )
        assert is_gone, [(markers_in(topic, n), [topic.holds(n, x) for x in tombstones]) for n in (1, 2, 3)]


@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_member_that_is_away_freezes_the_bounds(seed: int, *, returns: bool) -> None:
    """Invariant 11. Its return frees them, and so does its removal, once that is committed."""
    with told(seed) as stage:
        topic = CompactedTopic(stage)
        topic.put(b"value")
        stage.everybody_has_all()
        away = stage.followers()[0]
        stay = [node_id for node_id in (1, 2, 3) if node_id != away]
        stage.cluster.kill(away)
        tombstone = topic.put(None)
        topic.wait_cleaned(*stay, above=tombstone)
        frozen = [topic.bounds(node_id).mtro for node_id in stay]
        for number in range(5):
            topic.put(b"%d" % number, b"another")
            stage.run_for(stage.rng.uniform(0.5, 1.5))
        assert [topic.bounds(node_id).mtro for node_id in stay] == frozen
        assert max(frozen) <= tombstone
        assert all(topic.holds(node_id, tombstone) for node_id in stay)
        if returns:
            stage.start(away)
            stay.append(away)
        else:
            topic.reassign(*stay)
        is_gone = stage.waited(
            lambda: not any(topic.holds(node_id, tombstone) for node_id in stay), 2 * TWO_PERIODS_S
        )
        assert is_gone


@contextmanager
def remembered_messages(stage: Stage) -> Iterator[list[tuple[int, Callable[[], None]]]]:
    """Every report and all bounds that arrive, each as (node, what has it arrive once more)."""
    messages: list[tuple[int, Callable[[], None]]] = []

    def arrived(receive: Callable[..., None], node_of: Callable[..., int]) -> Any:
        def called(*args: Any) -> None:
            messages.append((node_of(*args), partial(receive, *args)))
            receive(*args)

        return called

    def bounds(receive: Callable[..., None]) -> Any:
        return arrived(receive, lambda bounds, *_: bounds._replica.group.self_id.node_id)

    def report(receive: Callable[..., None]) -> Any:
        return arrived(receive, lambda exchange, replica, *_: replica.group.self_id.node_id)

    with replaced(CompactionBounds, "bounds_received", bounds), replaced(BoundsExchange, "reported", report):
        yield messages


@pytest.mark.parametrize("seed", range(1, 6))
def test_messages_of_old_leaders_come_again_and_in_any_order(seed: int) -> None:
    """Invariant 12, over changes of leaders and of members."""
    with told(seed) as stage, remembered_messages(stage) as messages:
        topic = CompactedTopic(stage)
        repeated = 0
        for number in range(6):
            topic.put(b"value", b"%d" % (number % 3))
            topic.put(None, b"%d" % (number % 3))
            stage.run_for(stage.rng.uniform(0.2, 1.0))
            if number == 2:
                topic.reassign(1, 2)
            elif number == 4:
                topic.reassign(1, 2, 3)
            else:
                stage.lead(stage.followers()[0])
            for node_id, again in stage.rng.sample(messages, min(len(messages), 30)):
                replica = stage.cluster.replica(node_id, TOPIC)
                if replica is not None and replica.is_open:
                    stage.call(node_id, again)
                    repeated += 1
                    stage.run_for(0.01)
        assert repeated > 50
        stage.wait(lambda: all(topic.bounds(node_id).mtro > 0 for node_id in (1, 2, 3)))


@contextmanager
def death_at(
    stage: Stage, node_id: int, owner: Owner, name: str, end: Callable[[int], None], *, after: bool
) -> Iterator[None]:
    """Once this node has called a function with its log of the topic, or a file of it, or is about to (not `after`),
    `end` comes in place of its disk's next operation. Waits for that."""
    disk, dead = stage.cluster.disks[node_id], list[int]()

    def death() -> None:
        end(node_id)
        dead.append(node_id)

    def dies(function: Callable[..., None]) -> Any:
        def called(of: Log | Disk, *args: Any) -> None:
            is_meant = f"{disk.root}/{TOPIC}-0" in (of.directory if isinstance(of, Log) else args[0])
            if is_meant and not after:
                disk.die_after(0, death)
            function(of, *args)
            if is_meant and after:
                disk.die_after(0, death)

        return called

    with replaced(owner, name, dies):
        yield
        stage.wait(lambda: bool(dead))


@pytest.mark.parametrize("seed", range(1, 11))
def test_the_snapshot_on_which_a_pass_rests_survives_a_loss_of_power(seed: int) -> None:
    """A process is killed before the name of a snapshot is durable. The next one finds it, and begins a pass."""
    with told(seed) as stage:
        # Nothing rolls but for its size: a new segment would make all names of the folder durable.
        topic = CompactedTopic(stage, segment_ms=str(INT64_MAX))
        victim = topic.leader_and_followers()[1]
        cluster, disk = stage.cluster, stage.cluster.disks[victim]

        def not_on_victim(write: Callable[..., None]) -> Any:
            def written(maintenance: object, log: Log, *args: Any) -> None:
                if log.disk is not disk:
                    write(maintenance, log, *args)

            return written

        # The only snapshot is that for the pass, as if there had been no room for others.
        with replaced(ProducerStateMaintenance, "write_snapshot", not_on_victim):
            with topic.passes_held(victim) as held:
                for number in range(20):
                    topic.put(b"value" * 40, b"%d" % (number % 2))
                    stage.everybody_has_all()
                stage.run_for(1.0)  # the ends are recorded
                with death_at(stage, victim, producer_snapshot, "replace_file", cluster.kill, after=True):
                    held.clear()
            with death_at(stage, victim, Log, "swap", cluster.cut_power, after=False):
                stage.start(victim)
        stage.start(victim)
        assert topic.identities(victim)[0].incarnation == 0


@contextmanager
def pass_halfway(topic: CompactedTopic, node_id: int) -> Iterator[asyncio.Event]:
    """A pass on this node has its key map, and builds one segment of several when the event is set."""
    go_on, held = asyncio.Event(), list[Replica]()

    def holds(record: Callable[..., Any]) -> Any:
        async def recorded(worker: CompactionWorker, replica: Replica, end_offset: int) -> None:
            await record(worker, replica, end_offset)
            if replica.group.self_id.node_id == node_id and replica.topic == TOPIC and not held:
                held.append(replica)
                await go_on.wait()

        return recorded

    with topic.passes_held(node_id):
        write_small_segments(topic)
    with replaced(CompactionWorker, "_record_rewriting", holds):
        topic.stage.wait(lambda: bool(held))
        yield go_on


def write_small_segments(topic: CompactedTopic) -> None:
    for number in range(5):
        topic.put(b"value", b"%d" % (number % 2))
        topic.stage.run_for(0.3)
    topic.stage.everybody_has_all()


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_pass_does_not_bring_back_the_folder_of_a_replica_that_was_given_up(seed: int) -> None:
    with told(seed) as stage:
        topic = CompactedTopic(stage)
        leader, stays, goes = topic.leader_and_followers()
        with pass_halfway(topic, goes) as go_on:
            topic.reassign(leader, stays)
            disk = stage.cluster.disks[goes]
            folder = f"{disk.root}/{TOPIC}-0"
            stage.wait(lambda: not disk.exists(folder))
            stage.call(goes, go_on.set)
            stage.run_for(TWO_PERIODS_S)
        assert not disk.exists(folder)


@pytest.mark.parametrize("seed", range(1, 4))
def test_no_pass_begins_in_a_folder_in_which_that_of_a_deleted_topic_is_under_way(seed: int) -> None:
    """They would mix up what they build."""
    two_threads = replace(TINY, cleaner_threads=2)
    with told(seed, two_threads) as stage:
        topic = CompactedTopic(stage)
        leader, *_ = topic.leader_and_followers()
        with pass_halfway(topic, leader) as go_on:
            stage.delete_topic()
            again = CompactedTopic(stage)
            write_small_segments(again)
            stage.call(leader, stage.cluster.nodes[leader].compaction.ask, stage.replica(leader))
            stage.run_for(TWO_PERIODS_S)
            assert not again.is_cleaned(leader, above=0)
            stage.call(leader, go_on.set)
            again.wait_cleaned(1, 2, 3, above=0)
