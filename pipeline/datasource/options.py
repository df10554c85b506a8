"""The options of the source and the sink, by the official connector's names, checked before anything starts."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.datasource.errors import InvalidOption
from pipeline.datasource.offsets import OffsetMap, Place, from_topics

EARLIEST, LATEST = -2, -1
DEFAULT_PURGE_INTERVAL_MS = 30_000

_SERVERS = ("kafka.bootstrap.servers", "bootstrap.servers")
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_STARTS = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_ENDS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STRATEGY = "startingOffsetsByTimestampStrategy"
_PURGE, _PURGE_INTERVAL = "purgeConsumedRecords", "repartition.purge.interval.ms"
_STREAM_ONLY = ("maxOffsetsPerTrigger", _PURGE, _PURGE_INTERVAL)
_READ = (
    *_SERVERS, *_SUBSCRIPTIONS, *_STARTS, *_ENDS, *_STREAM_ONLY, _STRATEGY,
    "failOnDataLoss", "minPartitions", "includeHeaders",
)  # fmt: skip
_WRITE = (*_SERVERS, "topic", "deliverySemantics", "includeHeaders")
# Spark gives a sink what it has been told itself.
_OF_SPARK = ("checkpointLocation", "queryName", "outputMode")
# What the reader and the writers set themselves, and would be wrong with another value.
_RESERVED_READ = (
    "auto.offset.reset",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
)
_RESERVED_WRITE = ("transactional.id", "delivery.report.only.error")


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins or ends: exactly one of the three is set."""

    everywhere: int | None = None
    """EARLIEST or LATEST, for all partitions."""
    offsets: OffsetMap | None = None
    """Per partition; EARLIEST and LATEST are allowed."""
    timestamps_ms: int | OffsetMap | None = None
    """The first record that is not older; for all partitions, or per partition."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    client_config: dict[str, str]
    """What librdkafka gets: the servers, and every option kafka.* without its prefix."""
    topics: tuple[str, ...] | None
    pattern: str | None
    places: tuple[Place, ...] | None
    start: Bound | None
    """None: earliest for a batch, latest for a stream."""
    end: Bound | None
    latest_if_no_timestamp_matches: bool
    fails_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    includes_headers: bool
    purge_interval_ms: int | None
    """None: nothing is purged."""
    stream_only: tuple[str, ...]
    """The options given that have a meaning only for a stream."""

    @property
    def reads_committed(self) -> bool:
        return self.client_config["isolation.level"] == "read_committed"

    def for_batch(self) -> ReadOptions:
        """Raises InvalidOption where an option says something that a batch cannot do."""
        if self.stream_only:
            raise InvalidOption(f"{', '.join(self.stream_only)}: only for readStream")
        if self.start and _mentions(self.start, LATEST):
            raise InvalidOption(
                "startingOffsets: a batch cannot begin at latest (-1), for there is nothing after it"
            )
        if self.end and _mentions(self.end, EARLIEST):
            raise InvalidOption(
                "endingOffsets: a batch cannot end at earliest (-2), for there is nothing before it"
            )
        return self

    def for_stream(self) -> ReadOptions:
        """Raises InvalidOption where an option says something that a stream cannot do."""
        if self.end is not None:
            raise InvalidOption(f"{', '.join(_ENDS)}: only for read; a stream has no end")
        return self

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Raises InvalidOption."""
        options = _Options(given, _READ, _RESERVED_READ)
        chosen = options.at_most_one(_SUBSCRIPTIONS)
        if chosen is None:
            raise InvalidOption(f"one of {', '.join(_SUBSCRIPTIONS)} has to say which topics to read")
        topics = pattern = places = None
        if chosen == "subscribe":
            topics = tuple(sorted({name.strip() for name in options.text(chosen).split(",")} - {""}))
            if not topics:
                raise InvalidOption("subscribe: names no topic")
        elif chosen == "subscribePattern":
            pattern = options.pattern(chosen)
        else:
            places = options.assignment(chosen)
        config = options.client_config()
        config.setdefault("isolation.level", "read_uncommitted")
        if config["isolation.level"] not in ("read_committed", "read_uncommitted"):
            raise InvalidOption("kafka.isolation.level: read_committed or read_uncommitted")
        strategy = options.one_of(_STRATEGY, ("error", "latest"))
        if strategy and not options.has(*_STARTS[1:]):
            raise InvalidOption(f"{_STRATEGY}: only together with {_STARTS[1]} or {_STARTS[2]}")
        return cls(
            client_config=config,
            topics=topics,
            pattern=pattern,
            places=places,
            start=options.bound(_STARTS),
            end=options.bound(_ENDS),
            latest_if_no_timestamp_matches=strategy == "latest",
            fails_on_data_loss=options.flag("failOnDataLoss", True),
            max_offsets_per_trigger=options.number("maxOffsetsPerTrigger", 1),
            min_partitions=options.number("minPartitions", 1),
            includes_headers=options.flag("includeHeaders", False),
            purge_interval_ms=options.purge_interval_ms(),
            stream_only=tuple(name for name in _STREAM_ONLY if options.has(name)),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    client_config: dict[str, str]
    topic: str | None
    """None: the column `topic` decides."""
    exactly_once: bool

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Raises InvalidOption."""
        options = _Options(given, (*_WRITE, *_OF_SPARK), _RESERVED_WRITE)
        semantics = options.one_of("deliverySemantics", ("at-least-once", "exactly-once"))
        topic = options.text("topic") if options.has("topic") else None
        if semantics == "exactly-once" and not topic:
            raise InvalidOption(
                "deliverySemantics=exactly-once needs the option topic: progress is committed under it"
            )
        # The official sink has it, too: headers are written whenever there is such a column.
        options.flag("includeHeaders", False)
        config = options.client_config()
        if semantics == "exactly-once" and config.get("enable.idempotence", "true").lower() == "false":
            raise InvalidOption("kafka.enable.idempotence=false contradicts deliverySemantics=exactly-once")
        return cls(config, topic, semantics == "exactly-once")


class _Options:
    """The options as given, with lookups that name the option in their errors. Names are not case-sensitive."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str], reserved: Iterable[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known}
        for name in self._given:
            if name.removeprefix("kafka.") in reserved:
                raise InvalidOption(f"{name}: is set by the data source itself")
            if name not in names and not name.startswith("kafka."):
                close = difflib.get_close_matches(name, names, n=1)
                hint = f"; is {names[close[0]]} meant?" if close else ""
                raise InvalidOption(f"{name}: no such option{hint}")

    def has(self, *names: str) -> bool:
        return any(name.lower() in self._given for name in names)

    def text(self, name: str) -> str:
        text = self._given[name.lower()].strip()
        if not text:
            raise InvalidOption(f"{name}: is empty")
        return text

    def at_most_one(self, names: Iterable[str]) -> str | None:
        present = [name for name in names if self.has(name)]
        if len(present) > 1:
            raise InvalidOption(f"{' and '.join(present)} contradict each other: give one")
        return present[0] if present else None

    def one_of(self, name: str, values: tuple[str, ...]) -> str | None:
        if not self.has(name):
            return None
        value = self.text(name).lower()
        if value not in values:
            raise InvalidOption(f"{name}: {' or '.join(values)}, not {value!r}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.one_of(name, ("true", "false"))
        return default if value is None else value == "true"

    def number(self, name: str, at_least: int) -> int | None:
        if not self.has(name):
            return None
        text = self.text(name)
        if not re.fullmatch(r"\d+", text) or int(text) < at_least:
            raise InvalidOption(f"{name}: a whole number of at least {at_least}, not {text!r}")
        return int(text)

    def pattern(self, name: str) -> str:
        try:
            re.compile(self.text(name))
        except re.error as error:
            raise InvalidOption(f"{name}: no regular expression: {error}") from error
        return self.text(name)

    def assignment(self, name: str) -> tuple[Place, ...]:
        value = self._json(name)
        usable = isinstance(value, dict) and all(
            isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)
            for numbers in value.values()
        )
        places = sorted({(topic, number) for topic in value for number in value[topic]}) if usable else []
        if not places:
            raise InvalidOption(f'{name}: JSON such as {{"topic": [0, 1]}}, not {self.text(name)!r}')
        return tuple(places)

    def bound(self, names: tuple[str, str, str]) -> Bound | None:
        by_offset, by_timestamp, by_timestamps = names
        chosen = self.at_most_one(names)
        if chosen is None:
            return None
        if chosen == by_timestamp:
            return Bound(timestamps_ms=self.number(by_timestamp, 0))
        if chosen == by_timestamps:
            return Bound(timestamps_ms=self._offsets(chosen, 0))
        word = self.text(by_offset).lower()
        if word in ("earliest", "latest"):
            return Bound(everywhere=EARLIEST if word == "earliest" else LATEST)
        return Bound(offsets=self._offsets(chosen, EARLIEST))

    def purge_interval_ms(self) -> int | None:
        interval_ms = self.number(_PURGE_INTERVAL, 0)
        if self.has(_PURGE) and not self.flag(_PURGE, False):
            if interval_ms is not None:
                raise InvalidOption(f"{_PURGE}=false and {_PURGE_INTERVAL} contradict each other")
            return None
        if interval_ms is None and self.has(_PURGE):
            return DEFAULT_PURGE_INTERVAL_MS
        return interval_ms

    def client_config(self) -> dict[str, str]:
        """Raises InvalidOption where no servers are named, or two different lists of them."""
        servers = {self.text(name) for name in _SERVERS if self.has(name)}
        if len(servers) != 1:
            said = (
                "contradict each other: give one"
                if servers
                else "one of them has to say where the cluster is"
            )
            raise InvalidOption(f"{', '.join(_SERVERS)}: {said}")
        passed_on = {
            name.removeprefix("kafka."): value
            for name, value in self._given.items()
            if name.startswith("kafka.")
        }
        return {**passed_on, "bootstrap.servers": servers.pop()}

    def _offsets(self, name: str, at_least: int) -> OffsetMap:
        value = self._json(name)
        usable = isinstance(value, dict) and all(
            isinstance(partitions, dict)
            and all(
                partition.isdigit() and type(number) is int and number >= at_least
                for partition, number in partitions.items()
            )
            for partitions in value.values()
        )
        if not usable:
            words = '"earliest", "latest" or ' if at_least < 0 else ""
            raise InvalidOption(
                f'{name}: {words}JSON such as {{"topic": {{"0": 23}}}}, not {self.text(name)!r}'
            )
        return from_topics(value)

    def _json(self, name: str) -> Any:
        try:
            return json.loads(self.text(name))
        except ValueError:
            return None


def _mentions(bound: Bound, special: int) -> bool:
    return bound.everywhere == special or special in (bound.offsets or {}).values()
