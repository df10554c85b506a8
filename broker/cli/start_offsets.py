"""`varve consume --offset`: where reading begins in each partition."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from broker.cli.root import TIMEOUT_S, CommandError
from broker.cli.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import ClusterMetadata

_OFFSET = re.compile(r"start|end|[+-]?\d+")


class Time(click.ParamType[int]):
    """A number of milliseconds since 1970, or a time such as 2026-11-27T10:00."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(value) if isinstance(value, int) or value.isdecimal() else parse_time(value)
        except ValueError:
            self.fail(
                f"{value!r} is neither a number of milliseconds since 1970 nor a time such as 2026-11-27T10:00",
                param,
                ctx,
            )


class StartOffset(click.ParamType[str]):
    """start, end, N, +N, -N, or @TIME."""

    name = "offset"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.startswith("@"):
            return f"@{Time().convert(value[1:], param, ctx)}"
        if not _OFFSET.fullmatch(value):
            self.fail(
                "expected start, end, N, +N (after the start), -N (before the end) or @TIME", param, ctx
            )
        return value


def select_topics(consumer: Consumer, names: Sequence[str], *, are_patterns: bool) -> ClusterMetadata:
    """The metadata of the cluster, with the topics of these names alone. Patterns match anywhere in a name, and no
    internal topics. Raises CommandError if there is none."""
    from broker.metadata.ids import INTERNAL_TOPICS

    # All topics are asked for, because a request that names a topic could create it.
    found: ClusterMetadata = consumer.list_topics(timeout=TIMEOUT_S)
    if are_patterns:
        patterns = [re.compile(name) for name in names]
        chosen = [
            name
            for name in sorted(found.topics)
            if name not in INTERNAL_TOPICS and any(pattern.search(name) for pattern in patterns)
        ]
        if not chosen:
            raise CommandError(f"no topic matches {' or '.join(names)}")
    else:
        chosen = list(dict.fromkeys(names))
        for name in chosen:
            if name not in found.topics:
                raise CommandError(f"Topic '{name}' does not exist")
    found.topics = {name: found.topics[name] for name in chosen}
    return found


def start_positions(
    consumer: Consumer, chosen: ClusterMetadata, partitions: Sequence[int], offset: str
) -> list[TopicPartition]:
    """The absolute offset at which each partition begins to be read."""
    from confluent_kafka import TopicPartition

    places = []
    for topic, found in chosen.topics.items():
        wanted = sorted(set(partitions)) or sorted(found.partitions)
        missing = [number for number in wanted if number not in found.partitions]
        if missing:
            raise CommandError(
                f"Topic '{topic}' has no partition {missing[0]}; it has {len(found.partitions)}"
            )
        places += [TopicPartition(topic, number) for number in wanted]
    if offset.startswith("@"):
        at_time_ms = int(offset[1:])
        asked = [TopicPartition(place.topic, place.partition, at_time_ms) for place in places]
        # A partition without a record at or after the time has OFFSET_END there.
        return consumer.offsets_for_times(asked, timeout=TIMEOUT_S)
    for place in places:
        start, end = consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)
        if offset in ("start", "end"):
            at = start if offset == "start" else end
        elif offset[0] in "+-":
            at = start + int(offset) if offset[0] == "+" else end + int(offset)
        else:
            at = int(offset)
        place.offset = min(max(at, start), end)
    return places
