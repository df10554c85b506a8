"""The four divergences of the specification, as far as the rules alone go: without the bounds the damage shows, with
them it does not.

Replica B is away after it has got the first part of the log. A goes on and compacts. Then B gets the rest from A.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.records.batch import parse_header
from storage.producer_state import ProducerStates
from tests.storage.compaction.model import FOREVER, History, Replica, last_values, read_committed

with_and_without = pytest.mark.parametrize(
    "is_coordinated", [True, False], ids=["with bounds", "without bounds"]
)


class Scene:
    def __init__(self, is_coordinated: bool) -> None:
        self.history = History()
        self.a, self.b = self.history.replica(), self.history.replica()
        self.is_coordinated = is_coordinated
        self.cut = 0

    def b_leaves(self) -> None:
        self.cut = self.history.end_offset

    def churn(self, replica: Replica) -> None:
        """Until whatever may go has gone. All producers expire."""
        bounds = {} if self.is_coordinated else dict.fromkeys(
            ["max_tombstone_remove_offset", "max_transaction_remove_offset"], FOREVER
        )  # fmt: skip
        for number in range(4):
            self.history.now_ms += 2000
            self.history.write((b"filler %d" % number, b"v"))
            self.history.roll()
            replica.compact(producers_last_offsets=frozenset(), **bounds)

    @property
    def of_b(self) -> list[bytes]:
        """The log of B when it has the rest."""
        kept = [batch for batch in self.b.batches if parse_header(batch).next_offset <= self.cut]
        return kept + [batch for batch in self.a.batches if parse_header(batch).base_offset >= self.cut]

    def b_says(self, key: bytes) -> bytes | None:
        return last_values(read_committed(self.of_b, self.history.end_offset)).get(key)


@with_and_without
def test_a_deleted_key_does_not_come_back(is_coordinated: bool) -> None:
    scene = Scene(is_coordinated)
    scene.history.write((b"k", b"V"))
    scene.b_leaves()
    scene.history.write((b"k", None))
    scene.churn(scene.a)
    assert scene.b_says(b"k") == (None if is_coordinated else b"V")


@with_and_without
def test_aborted_does_not_become_committed(is_coordinated: bool) -> None:
    scene = Scene(is_coordinated)
    history = scene.history
    history.write((b"poison", b"v"), pid=1, is_transactional=True)
    scene.b_leaves()
    history.end(1, is_commit=False)
    scene.churn(scene.a)
    history.write((b"good", b"v"), pid=1, is_transactional=True)
    history.end(1, is_commit=True)
    assert scene.b_says(b"good") == b"v"
    assert scene.b_says(b"poison") == (None if is_coordinated else b"v")


@with_and_without
def test_committed_does_not_become_aborted(is_coordinated: bool) -> None:
    scene = Scene(is_coordinated)
    history = scene.history
    history.write((b"g", b"OLD"))
    history.write((b"g", b"v"), pid=1, is_transactional=True)
    scene.b_leaves()
    history.end(1, is_commit=True)
    scene.churn(scene.a)
    history.write((b"junk", b"v"), pid=1, is_transactional=True)
    history.end(1, is_commit=False)
    assert scene.b_says(b"junk") is None
    assert scene.b_says(b"g") == (b"v" if is_coordinated else b"OLD")


@with_and_without
def test_readers_of_committed_data_do_not_freeze(is_coordinated: bool) -> None:
    scene = Scene(is_coordinated)
    history = scene.history
    base_offset = history.write((b"k", b"v"), pid=1, is_transactional=True)
    scene.b_leaves()
    history.end(1, is_commit=True)
    history.write((b"k", b"w"))
    scene.churn(scene.a)
    states = ProducerStates()
    for batch in scene.of_b:
        states.record_stored(memoryview(batch), parse_header(batch))
    end = history.end_offset
    assert states.last_stable_offset(end) == (end if is_coordinated else base_offset)


def deleted(history: History) -> None:
    history.write((b"k", b"V"), (b"k", None))


def aborted(history: History) -> None:
    history.write((b"k", b"V"), pid=1, is_transactional=True)
    history.end(1, is_commit=False)


@pytest.mark.parametrize("write", [deleted, aborted])
def test_the_return_of_a_replica_frees_the_bounds(write: Callable[[History], None]) -> None:
    scene = Scene(is_coordinated=True)
    write(scene.history)
    scene.churn(scene.a)
    assert scene.a.counts is not None
    assert scene.a.counts.tombstones.expired_count + scene.a.counts.markers.expired_count == 1
    for replica in (scene.b, scene.a, scene.b):
        scene.churn(replica)
    for replica in (scene.a, scene.b):
        assert all(parse_header(batch).base_offset >= 2 for batch in replica.batches)
