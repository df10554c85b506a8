"""The options of `varve group reset-offsets`, and the offsets that result."""

from __future__ import annotations

from typing import Any

import click
import pytest

from broker.cli.group_offsets import Bounds, Scope, Target, datetime_ms, duration_ms, parse_target

NOW_MS = 1_000_000
LOG = Bounds(10, 50)
NOTHING: dict[str, Any] = {
    "to_earliest": False,
    "to_latest": False,
    "to_current": False,
    "to_offset": None,
    "shift_by": None,
    "by_duration": None,
    "to_datetime": None,
}


def chosen(**options: Any) -> Target:
    return parse_target(NOW_MS, **{**NOTHING, **options})


@pytest.mark.parametrize(
    ("options", "current", "at_time", "offset"),
    [
        ({"to_earliest": True}, 20, None, 10),
        ({"to_latest": True}, 20, None, 50),
        ({"to_current": True}, 20, None, 20),
        ({"to_current": True}, 5, None, 10),  # Its offset is deleted.
        ({"to_current": True}, None, None, 50),
        ({"to_offset": 30}, 20, None, 30),
        ({"to_offset": 9}, 20, None, 10),
        ({"to_offset": 99}, 20, None, 50),
        ({"shift_by": 3}, 20, None, 23),
        ({"shift_by": -3}, 20, None, 17),
        ({"shift_by": -30}, 20, None, 10),
        ({"shift_by": 31}, 20, None, 50),
        ({"by_duration": "PT1S"}, 20, 33, 33),
        ({"to_datetime": "1970-01-01T00:00:01"}, 20, 33, 33),
        ({"to_datetime": "2036-01-01T00:00:00"}, 20, None, 50),  # No record is that young.
    ],
)
def test_each_target_gives_its_offset(
    options: dict[str, Any], current: int | None, at_time: int | None, offset: int
) -> None:
    assert chosen(**options).offset(("foo", 0), LOG, current, at_time) == offset


def test_a_partition_without_an_offset_cannot_be_shifted() -> None:
    with pytest.raises(click.ClickException, match="foo-1"):
        chosen(shift_by=1).offset(("foo", 1), LOG, None, None)


@pytest.mark.parametrize(
    "options", [{}, {"to_earliest": True, "to_latest": True}, {"to_offset": 0, "shift_by": 0}]
)
def test_other_than_exactly_one_target_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError):
        chosen(**options)


def test_a_duration_counts_backwards_from_now() -> None:
    assert chosen(by_duration="PT10S").timestamp_ms == NOW_MS - 10_000
    assert chosen(to_earliest=True).timestamp_ms is None


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("P1D", 86_400_000), ("PT1H2M3.5S", 3_723_500), ("P2DT1M", 172_860_000), ("PT0S", 0)],
)
def test_durations_are_parsed(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1", "P1H", "-PT1S", "P1M"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        duration_ms(text)


def test_a_time_without_a_utc_offset_is_utc() -> None:
    assert datetime_ms("1970-01-02T00:00:00.250") == 86_400_250
    assert datetime_ms("1970-01-01T02:00:00.000+02:00") == 0
    with pytest.raises(click.BadParameter):
        datetime_ms("yesterday")


def test_topic_options_are_parsed_and_checked() -> None:
    assert Scope.of(("a", "b:1", "b:0,2"), False).topics == {"a": None, "b": frozenset({0, 1, 2})}
    assert Scope.of(("a:1", "a"), False).topics == {"a": None}
    for texts, all_topics in [((), False), (("a",), True), (("a:",), False), (("a:x",), False)]:
        with pytest.raises(click.UsageError):
            Scope.of(texts, all_topics)
