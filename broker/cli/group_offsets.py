"""Where `varve group reset-offsets` puts a group: what the options mean, and the offsets that result. As Kafka's
kafka-consumer-groups --reset-offsets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import click

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SECONDS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}

Partition = tuple[str, int]


class Bounds(NamedTuple):
    """Of a partition's log: the offset of its first record, and of the next one to come."""

    start: int
    end: int


@dataclass(frozen=True)
class Scope:
    """What is to be reset: whole topics, partitions of some, or all of which the group has offsets."""

    topics: Mapping[str, frozenset[int] | None]
    """None: all partitions of it."""
    all_topics: bool

    @classmethod
    def of(cls, texts: tuple[str, ...], all_topics: bool) -> Scope:
        """From `--topic t` and `--topic t:0,1`. Raises click.UsageError."""
        if bool(texts) == all_topics:
            raise click.UsageError("name either topics by --topic, or --all-topics")
        topics: dict[str, frozenset[int] | None] = {}
        for text in texts:
            name, colon, numbers = text.partition(":")
            if colon and not re.fullmatch(r"\d+(,\d+)*", numbers):
                raise click.BadParameter(f"{text}: expected TOPIC or TOPIC:0,1,...", param_hint="--topic")
            chosen = frozenset(int(number) for number in numbers.split(",")) if colon else None
            known = topics.get(name, frozenset())
            topics[name] = None if chosen is None or known is None else known | chosen
        return cls(topics, all_topics)


#: Of a partition: its bounds, where the group is (None: nowhere), and the offset at the target's time (None: behind the
#: newest record). Returns the wanted offset, perhaps out of bounds. Raises click.ClickException.
Choose = Callable[[Partition, Bounds, int | None, int | None], int]


@dataclass(frozen=True)
class Target:
    """One of the options --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --by-duration,
    --to-datetime."""

    choose: Choose
    timestamp_ms: int | None = None
    """The time that is asked for, if it is one."""

    def offset(self, partition: Partition, bounds: Bounds, current: int | None, at_time: int | None) -> int:
        """Where the group begins in a partition; within its bounds, as Kafka's tool puts it."""
        return min(max(self.choose(partition, bounds, current, at_time), bounds.start), bounds.end)


def target(
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
    """The one that was chosen. Raises click.UsageError where it is not exactly one."""
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


def _shifted(by: int) -> Choose:
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
        raise click.BadParameter(f"{text}: expected PnDTnHnMnS, as P1DT12H", param_hint="--by-duration")
    parts = ((name, value) for name, value in found.groupdict().items() if value is not None)
    return round(sum(float(value) * _SECONDS[name] * 1000 for name, value in parts))


def datetime_ms(text: str) -> int:
    """YYYY-MM-DDTHH:mm:SS.sss, in UTC where it names no offset, as milliseconds since 1970. Raises
    click.BadParameter."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text}: expected YYYY-MM-DDTHH:mm:SS.sss", param_hint="--to-datetime"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
