"""What nodes show of compaction, next to what was done to their logs."""

from __future__ import annotations

import pytest

from protocol.records.batch import parse_header
from protocol.records.builder import NewRecord, build_batch
from tests.broker.admin_http.http_client import SETTINGS
from tests.broker.asking import until
from tests.broker.compacting import compact, create, request, write
from tests.broker.metrics.scrape import Scrape, scrape
from tests.broker.world import World, running


def test_a_log_is_dirty_until_a_pass_has_cleaned_it() -> None:
    with running(1, settings=SETTINGS) as world:
        create(world, delete_retention_ms="90000")
        write(world, "table")
        world.replica(1, "table").log.roll()
        until(
            world, lambda: scrape(world)("varve_log_cleaner_dirty_ratio", topic="table", partition="0") == 1
        )
        before = scrape(world)
        assert not before.all("varve_log_cleaner_last_compacted_timestamp_seconds", topic="table")
        assert before("varve_topic_delete_retention_seconds", topic="table") == 90
        assert before("varve_log_cleaner_uncleanable", topic="table") == 0
        compact(world, request("table"))
        after = scrape(world)
        assert after("varve_log_cleaner_dirty_ratio", topic="table", partition="0") == 0
        now_s = world.nodes[1].replicas.now_ms() / 1000
        at_s = after("varve_log_cleaner_last_compacted_timestamp_seconds", topic="table")
        assert at_s == pytest.approx(now_s, abs=1)


def test_topics_that_are_not_compacted_are_left_out() -> None:
    with running(1, settings=SETTINGS) as world:
        world.create_topic("events", replication_factor=1)
        seen = scrape(world)
        named = [name for name in seen.names if seen.all(name, topic="events")]
        assert "varve_topic_bytes" in named
        assert not [name for name in named if name.startswith(("varve_log_cleaner", "varve_compaction"))]


def test_a_log_whose_pass_failed_is_uncleanable() -> None:
    with running(1, settings=SETTINGS | {"varve.compaction.initial.delay.ms": "1000"}) as world:
        create(world, min_cleanable_dirty_ratio="0.01")
        write(world, "table")
        world.replica(1, "table").log.roll()
        disk = world.disks[1]
        disk.faults.capacity_bytes -= disk.free_bytes()
        until(world, lambda: scrape(world)("varve_log_cleaner_uncleanable", topic="table") == 1)
        seen = scrape(world)
        assert seen("varve_log_cleaner_uncleanable_partitions") == 1
        assert seen("kafka_log_logcleanermanager_uncleanable_partitions_count") == 1
        assert seen("varve_log_cleaner_uncleanable_bytes") == world.replica(1, "table").log.size_bytes
        assert seen("varve_log_cleaner_failures_total") >= 1
        assert seen("varve_log_cleaner_compactions_total") == 0


def test_who_keeps_a_bound_from_rising_is_shown_by_the_leader_with_the_reason() -> None:
    with running(settings=SETTINGS) as world:
        create(world, replication_factor=3)
        write(world, "table")
        leader = world.leader("table")
        away, there = (node_id for node_id in world.nodes if node_id != leader)
        world.kill(away)
        for node_id in (leader, there):
            compact(world, request("table"), node_id)

        def pinned() -> dict[frozenset[tuple[str, str]], float]:
            return scrape(world, leader).all(
                "varve_compaction_pinned_seconds", replica=str(away), reason="offline"
            )

        until(world, lambda: len(pinned()) == 2)
        began = min(pinned().values())
        world.loop.run_for(100.0)
        seen = scrape(world, leader)
        assert {dict(labels)["bound"] for labels in pinned()} == {"tombstones", "markers"}
        assert min(pinned().values()) == pytest.approx(began + 100, abs=1)
        assert seen("varve_compaction_mcco_offset", replica=str(leader)) == 20
        assert seen("varve_compaction_mcco_offset", replica=str(there)) == 20
        assert not seen.all("varve_compaction_mcco_offset", replica=str(away)), "it has cleaned nothing"
        assert not seen.all("varve_compaction_mtro_offset")
        assert not scrape(world, there).all("varve_compaction_pinned_seconds"), "a follower does not know"

        world.start(away)
        world.wait_ready(away)
        until(world, lambda: world.replica(away, "table").high_watermark == 20)
        compact(world, request("table"), away)
        until(world, lambda: bool(scrape(world, leader).all("varve_compaction_mtro_offset")))
        seen = scrape(world, leader)
        assert seen("varve_compaction_mtro_offset", topic="table", partition="0") == 20
        assert seen("varve_compaction_mxro_offset", topic="table", partition="0") == 20
        assert not seen.all("varve_compaction_pinned_seconds")


def test_tombstones_that_a_bound_keeps_are_held() -> None:
    with running(settings=SETTINGS) as world:
        create(world, replication_factor=3, delete_retention_ms="1000")
        write(world, "table")
        leader = world.leader("table")
        away = next(node_id for node_id in world.nodes if node_id != leader)
        world.kill(away)
        delete(world, leader)
        compact(world, request("table"), leader)
        young = scrape(world, leader)
        assert tombstones(young, "pending_records") == 1
        assert tombstones(young, "held_records") == 0
        world.loop.run_for(5.0)
        world.produce("table", b"x", key=b"other")
        compact(world, request("table"), leader)
        old = scrape(world, leader)
        assert tombstones(old, "pending_records") == 1
        assert tombstones(old, "held_records") == 1
        assert tombstones(old, "held_bytes") > 0


def delete(world: World, leader: int) -> None:
    node = world.nodes[leader]
    replica = world.replica(leader, "table")
    batch = build_batch([NewRecord(b"k", None, node.clock.now_ms())])
    _, end_offset = world.processes[leader].call(replica.append, parse_header(batch), batch)
    world.wait(lambda: replica.high_watermark >= end_offset)


def tombstones(seen: Scrape, what: str) -> float:
    return seen(f"varve_compaction_{what}", topic="table", kind="tombstones")
