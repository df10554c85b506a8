"""The options of `varve group reset-offsets`, and the offsets that result (as with kafka-consumer-groups)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import click

from broker.cli.times import parse_time

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}

Partition = tuple[str, int]


class Bounds(NamedTuple):
    """The first offset of a partition, and the offset of its next record."""

    start: int
    end: int


@dataclass(frozen=True)
class Scope:
    """The partitions to reset: those of some topics, or all that the group has offsets for."""

    topics: Mapping[str, frozenset[int] | None]
    """Topic -> partitions. None: all partitions of the topic."""
    all_topics: bool

    @classmethod
    def of(cls, texts: tuple[str, ...], all_topics: bool) -> Scope:
        """Parses `--topic t` and `--topic t:0,1`. Raises click.UsageError."""
        if bool(texts) == all_topics:
            raise click.UsageError("use --topic or --all-topics, but not both")
        topics: dict[str, frozenset[int] | None] = {}
        for text in texts:
            name, colon, numbers = text.partition(":")
            if colon and not re.fullmatch(r"\d+(,\d+)*", numbers):
                raise click.BadParameter(f"{text}: expected TOPIC or TOPIC:0,1,...", param_hint="--topic")
            chosen = frozenset(int(number) for number in numbers.split(",")) if colon else None
            known = topics.get(name, frozenset())
            topics[name] = None if chosen is None or known is None else known | chosen
        return cls(topics, all_topics)


#: (partition, its bounds, the group's committed offset or None, the offset at the target's time or None) -> the wanted
#: offset, which may be out of bounds. There is no offset at a time after the last record. Raises click.ClickException.
ChooseOffset = Callable[[Partition, Bounds, int | None, int | None], int]


@dataclass(frozen=True)
class Target:
    """One of the options --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --by-duration,
    --to-datetime, or what `varve group seek --to` says."""

    choose: ChooseOffset
    timestamp_ms: int | None = None
    """The time that the offset is looked up for. None: the target is not a time."""

    def offset(self, partition: Partition, bounds: Bounds, current: int | None, at_time: int | None) -> int:
        """The new offset of a partition. Limited to the partition's bounds, as in Kafka's tool."""
        return min(max(self.choose(partition, bounds, current, at_time), bounds.start), bounds.end)


def seek_target(to: str | int) -> Target:
    """Of start, end, or milliseconds since 1970."""
    if isinstance(to, int):
        return Target(_at_time, to)
    return Target(lambda _, bounds, __, ___: bounds.start if to == "start" else bounds.end)


def parse_target(
    now_ms: int,
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    by_duration: str | None,
    to_datetime: str | None,
) -> Target:
    """The chosen target. Raises click.UsageError unless exactly one is chosen."""
    chosen: list[Target] = []
    if to_earliest:
        chosen.append(Target(lambda _, bounds, __, ___: bounds.start))
    if to_latest:
        chosen.append(Target(lambda _, bounds, __, ___: bounds.end))
    if to_current:
        chosen.append(Target(lambda _, bounds, current, __: bounds.end if current is None else current))
    if to_offset is not None:
        chosen.append(Target(lambda _, __, ___, ____: to_offset))
    if shift_by is not None:
        chosen.append(Target(_shifted(shift_by)))
    if by_duration is not None:
        chosen.append(Target(_at_time, now_ms - duration_ms(by_duration)))
    if to_datetime is not None:
        chosen.append(Target(_at_time, datetime_ms(to_datetime)))
    if len(chosen) != 1:
        raise click.UsageError(
            "choose exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
            "--by-duration and --to-datetime"
        )
    return chosen[0]


def _shifted(by: int) -> ChooseOffset:
    def choose(partition: Partition, _: Bounds, current: int | None, __: int | None) -> int:
        if current is None:
            raise click.ClickException(
                f"the group has no offset in {partition[0]}-{partition[1]} that could be shifted"
            )
        return current + by

    return choose


def _at_time(_: Partition, bounds: Bounds, __: int | None, at_time: int | None) -> int:
    return bounds.end if at_time is None else at_time


def duration_ms(text: str) -> int:
    """PnDTnHnMnS in milliseconds. Raises click.BadParameter."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        raise click.BadParameter(f"{text}: expected PnDTnHnMnS, as in P1DT12H", param_hint="--by-duration")
    parts = ((name, value) for name, value in found.groupdict().items() if value is not None)
    return round(sum(float(value) * _SECONDS[name] * 1000 for name, value in parts))


def datetime_ms(text: str) -> int:
    """YYYY-MM-DDTHH:mm:SS.sss in milliseconds since 1970. A time without a UTC offset is in UTC. Raises
    click.BadParameter."""
    try:
        return parse_time(text)
    except ValueError:
        raise click.BadParameter(
            f"{text}: expected YYYY-MM-DDTHH:mm:SS.sss", param_hint="--to-datetime"
        ) from None
