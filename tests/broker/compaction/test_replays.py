"""Logs that are compacted while somebody replays them, in steps."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.compaction.facts import removal_bounds
from broker.controller.replay import replay
from broker.coordinator import loading
from broker.metadata.ids import METADATA_TOPIC_ID
from broker.metadata.image import MetadataImage
from storage import short_walks
from storage.journal_records import UNSET
from storage.log_types import GroupKey
from tests.broker.compacting import create, pass_over
from tests.broker.world import World, running


class _Values:
    """What counts in the end."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, bytes] = {}

    def replay(self, record: tuple[bytes, bytes]) -> None:
        self.by_key[record[0]] = record[1]

    def replay_pending(self, producer_id: int, record: tuple[bytes, bytes]) -> None:
        raise AssertionError("nothing is pending")


CODEC: Any = SimpleNamespace(decode=lambda key, value: (bytes(key), bytes(value)))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(loading, "RECORDS_PER_STEP", 1)
    monkeypatch.setattr(short_walks, "BATCHES_PER_WALK", 1)
    with running(size=1) as world:
        create(world, delete_retention_ms="0")
        yield world


def _pass_over_all(world: World) -> None:
    """Until everything has gone that may go."""
    for _ in range(3):
        world.produce("table", b"", key=b"last")
        pass_over(world)
        world.loop.run_for(1)


def _has_tombstone(world: World) -> bool:
    log = world.replica(1, "table").log
    return any(header.base_offset == 2 and header.count for header, _ in log.checked_batches(0))


def test_who_has_read_a_record_finds_the_tombstone_that_deletes_it(world: World) -> None:
    world.produce("table", b"1", key=b"deleted")
    world.produce("table", b"1", key=b"kept")
    world.produce("table", None, key=b"deleted")
    replica, values = world.replica(1, "table"), _Values()
    steps = loading.load(replica, CODEC, values)
    next(steps)
    _pass_over_all(world)
    assert replica.bounds.mtro > 2
    for _ in steps:
        pass
    assert values.by_key.keys() == {b"kept"}
    assert _has_tombstone(world)
    _pass_over_all(world)
    assert not _has_tombstone(world)


def test_a_replay_that_is_given_up_holds_nothing_back(world: World) -> None:
    world.produce("table", b"1", key=b"k")
    replica = world.replica(1, "table")
    replica.bounds.durable = replica.bounds.durable._replace(mtro=1, mxro=1)
    steps = loading.load(replica, CODEC, _Values())
    next(steps)
    assert removal_bounds(replica, is_coordinated=True) == (UNSET, UNSET)
    del steps
    assert removal_bounds(replica, is_coordinated=True) == (1, 1)


def test_metadata_is_replayed_under_the_same_rule(world: World) -> None:
    replica = world.nodes[1].replicas.by_key[GroupKey(METADATA_TOPIC_ID, 0)]
    steps = replay(replica, MetadataImage(), lambda: replica.high_watermark)
    next(steps)
    assert replica.is_being_replayed
    for _ in steps:
        pass
    assert not replica.is_being_replayed
