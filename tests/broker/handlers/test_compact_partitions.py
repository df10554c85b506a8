"""CompactPartitions: passes that are asked for, and why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from broker.compaction.asked import PATIENCE_S
from broker.environment import Cleaner
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.compact_partitions import CompactPartitionsResponse
from storage.log_cleaning import CleaningEvent, CleaningTask
from tests.broker.asking import ask, begin_ask
from tests.broker.compacting import COMPACTED, compact, request, write
from tests.broker.world import running
from tests.simulator.loop import SimulationError


def test_a_replica_is_compacted_with_its_active_segment() -> None:
    with running() as world:
        world.create_topic("table", configs=COMPACTED)
        write(world, "table")
        answer = compact(world, request("table"))
        assert (answer.error_code, answer.cleaned_end_offset, answer.limit) == (ErrorCode.NONE, 20, "")
        assert 0 < answer.bytes_after < answer.bytes_before


def test_the_answer_does_not_wait_longer_than_asked_and_the_pass_goes_on() -> None:
    with running() as world:
        world.create_topic("table", configs=COMPACTED)
        write(world, "table")
        assert compact(world, request("table", timeout_ms=1)).error_code == ErrorCode.REQUEST_TIMED_OUT
        replica = world.nodes[1].replicas.by_name["table", 0]
        world.wait(lambda: replica.bounds.cleaned_end == 20)
        assert compact(world, request("table", timeout_ms=0)).error_code == ErrorCode.NONE


def test_a_replica_that_does_not_know_what_is_committed_waits() -> None:
    """It would remove the batches that its producers wrote last (seed 67694275322)."""
    with running() as world:
        record = world.create_topic("table", replication_factor=2, configs=COMPACTED)
        here, away = record.partitions[0].replicas
        write(world, "table")
        assert compact(world, request("table"), here).error_code == ErrorCode.NONE
        world.kill(here)
        world.kill(away)
        world.start(here)
        world.wait_ready(here)
        assert compact(world, request("table", timeout_ms=0), here).error_code == ErrorCode.NONE
        world.loop.run_for(PATIENCE_S - 0.5)
        waits = request("table", timeout_ms=1500)
        assert compact(world, waits, here).error_code == ErrorCode.REQUEST_TIMED_OUT
        world.start(away)
        world.wait_ready(away)
        world.leader("table")
        assert compact(world, request("table"), here).error_code == ErrorCode.NONE


def test_a_pass_that_fails_is_answered_with_the_reason_and_may_be_asked_for_again_at_once() -> None:
    with running() as world:
        world.create_topic("table", configs=COMPACTED)
        write(world, "table")
        disk = world.disks[1]
        room = disk.faults.capacity_bytes
        asked = begin_ask(world, 1, ApiKey.COMPACT_PARTITIONS, 0, request("table"), CompactPartitionsResponse)
        world.wait(lambda: len(world.nodes[1].replicas.by_name["table", 0].log.segments()) == 2)
        disk.faults.capacity_bytes = room - disk.free_bytes()
        world.wait(asked.done)
        failed = asked.result().topics[0].partitions[0]
        assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert failed.error_message
        disk.faults.capacity_bytes = room
        assert compact(world, request("table")).error_code == ErrorCode.NONE


class OneAtATime:
    """A cleaner that is never to be given a log that it works on."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner
        self.digest = cleaner.digest
        self.folders: set[str] = set()
        self.passes = 0

    async def clean(self, task: CleaningTask, max_bytes_per_second: float) -> AsyncGenerator[CleaningEvent]:
        assert task.directory not in self.folders
        self.folders.add(task.directory)
        await asyncio.sleep(3 if "long" in task.directory else 1)
        async for event in self._cleaner.clean(task, max_bytes_per_second):
            yield event
        self.folders.remove(task.directory)
        self.passes += 1


def test_who_asks_during_a_pass_gets_the_next_one() -> None:
    with running(settings={"log.cleaner.threads": "2"}) as world:
        for topic in ("short", "long"):
            world.create_topic(topic, configs=COMPACTED)
            write(world, topic)
        write(world, "long")
        worker = world.nodes[1].compaction
        cleaner = worker._cleaner = OneAtATime(worker._cleaner)
        assert compact(world, request("short", "long", timeout_ms=0)).error_code == ErrorCode.NONE
        # The thread of the short one is free before the other pass is over.
        world.wait(lambda: len(cleaner.folders) == 2)
        write(world, "long")
        assert compact(world, request("long", timeout_ms=0)).error_code == ErrorCode.NONE
        replica = world.replica(1, "long")
        world.wait(lambda: replica.bounds.cleaned_end == 60)
        assert cleaner.passes == 3


class LateCleaner:
    """Begins when it may."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner
        self.digest = cleaner.digest
        self.may_begin = asyncio.Event()

    async def clean(self, task: CleaningTask, max_bytes_per_second: float) -> AsyncGenerator[CleaningEvent]:
        await self.may_begin.wait()
        async for event in self._cleaner.clean(task, max_bytes_per_second):
            yield event


def test_a_node_ends_if_a_folder_is_gone_also_if_the_log_has_grown_meanwhile() -> None:
    """It went on (seed 978041899145)."""
    with running() as world:
        world.create_topic("table", configs=COMPACTED)
        write(world, "table")
        worker = world.nodes[1].compaction
        cleaner = worker._cleaner = LateCleaner(worker._cleaner)
        replica = world.replica(1, "table")
        assert compact(world, request("table", timeout_ms=0)).error_code == ErrorCode.NONE
        world.wait(lambda: worker._is_running(replica))
        write(world, "table")
        world.disks[1].vanish(replica.log.directory)
        world.loop.call_soon(cleaner.may_begin.set)
        with pytest.raises(SimulationError, match="CompactionWorker"):
            world.loop.run_for(1)


def test_who_asks_for_a_topic_that_goes_is_told() -> None:
    with running() as world:
        world.create_topic("table", configs=COMPACTED)
        asked = begin_ask(world, 1, ApiKey.COMPACT_PARTITIONS, 0, request("table"), CompactPartitionsResponse)
        world.delete_topic("table")
        world.wait(asked.done)
        assert asked.result().topics[0].partitions[0].error_code in (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )


def test_refusals() -> None:
    with running(settings={"log.cleaner.enable": "false"}) as world:
        world.create_topic("plain")
        world.create_topic("table", configs=COMPACTED)
        assert compact(world, request("none")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (
            compact(world, request("table", partition=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert compact(world, request("no/name")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        off = compact(world, request("table"))
        assert off.error_code == ErrorCode.POLICY_VIOLATION
        assert "log.cleaner.enable" in (off.error_message or "")
    with running() as world:
        world.create_topic("plain")
        assert compact(world, request("plain")).error_code == ErrorCode.POLICY_VIOLATION


def test_clients_are_not_offered_what_kafka_does_not_know() -> None:
    with running() as world:
        answer = ask(world, 1, ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)
        assert ApiKey.COMPACT_PARTITIONS not in [each.api_key for each in answer.api_keys]
