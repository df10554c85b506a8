"""Which members keep a bound from rising, and since when."""

from __future__ import annotations

from broker.replication.watermarks.pins import Pin, Pins
from raft.types import RemovalBounds, ReplicaId

A, B, C = (ReplicaId(number, bytes(16), 0) for number in (1, 2, 3))


def both(end: int) -> RemovalBounds:
    return RemovalBounds(end, end)


def test_members_that_stand_at_the_same_place_keep_nobody_waiting() -> None:
    pins = Pins()
    pins.update({A: both(10), B: both(10)}, 5.0)
    assert not pins.of_tombstones
    assert not pins.of_markers


def test_the_least_member_pins_from_when_another_one_went_past_it() -> None:
    pins = Pins()
    pins.update({A: both(10), B: both(10), C: both(10)}, 5.0)
    pins.update({A: both(20), B: both(10), C: both(20)}, 7.0)
    pins.update({A: both(30), B: both(10), C: both(20)}, 9.0)
    assert pins.of_tombstones == {B: Pin(10, 7.0)}
    pins.update({A: both(30), B: both(25), C: both(20)}, 11.0)
    assert pins.of_tombstones == {C: Pin(20, 11.0)}


def test_who_moves_on_and_is_still_last_pins_anew() -> None:
    pins = Pins()
    pins.update({A: both(20), B: both(10)}, 7.0)
    pins.update({A: both(30), B: both(20)}, 8.0)
    assert pins.of_tombstones == {B: Pin(20, 8.0)}


def test_who_is_unknown_pins_and_nobody_else_does() -> None:
    pins = Pins()
    pins.update({A: both(20), B: None, C: both(10)}, 7.0)
    pins.update({A: both(20), B: None, C: both(10)}, 8.0)
    assert pins.of_tombstones == {B: Pin(None, 7.0)}


def test_the_two_bounds_are_apart() -> None:
    pins = Pins()
    pins.update({A: RemovalBounds(20, 10), B: RemovalBounds(20, 5)}, 7.0)
    assert not pins.of_tombstones
    assert pins.of_markers == {B: Pin(5, 7.0)}
