"""Which offsets a batch or a trigger reads, decided on the driver, and what is missing of what the query should see."""

from __future__ import annotations

import time
from collections.abc import Iterable

from pipeline.datasource.cluster_view import ClusterView, Partitions, logger
from pipeline.datasource.errors import ClusterUnavailable, DataLoss, InvalidOption
from pipeline.datasource.offsets import OffsetMap, Offsets, Place, Range, by_topic, described, limited
from pipeline.datasource.options import EARLIEST, LATEST, Bound, ReadOptions

# A broker that has just become the leader, or has not heard of a topic yet, may answer with less than is known.
_SECOND_LOOKS = 3
_SECOND_LOOK_WAIT_S = 1.0


class Planner:
    """Raises ClusterUnavailable, InvalidOption where the options do not fit the topics, and DataLoss."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self.view = ClusterView(options)
        self.seen: Offsets | None = None
        """The ends of all partitions when a trigger looked last."""

    def start(self, default: int) -> Offsets:
        """Where a new query begins, by the options; `default` is EARLIEST or LATEST."""
        current = self._existing()
        bound = self._options.start or Bound(everywhere=default)
        return Offsets(self._resolve(bound, current, is_start=True), current.topic_ids)

    def end(self) -> Offsets:
        """Where a batch ends, by the options."""
        current = self._existing()
        bound = self._options.end or Bound(everywhere=LATEST)
        return Offsets(self._resolve(bound, current, is_start=False), current.topic_ids)

    def everything(self) -> Offsets:
        """The ends of all partitions as they are now."""
        current = self.view.partitions()
        return Offsets(self.view.latest(current.places), current.topic_ids)

    def next_end(self, start: Offsets, max_offsets: int | None, target: Offsets | None) -> Offsets:
        """Where the next trigger ends: everything there is, or about `max_offsets` of it, and nothing past `target`."""
        current = self._without_surprises(start)
        self._report_recreated(start, current)
        kept = {
            place: offset
            for place, offset in start.next.items()
            if place in current.places and not _recreated(place[0], start.topic_ids, current.topic_ids)
        }
        ends = self._ends(current.places, kept)
        self.seen = Offsets(ends, current.topic_ids)
        if target is not None:
            ends = {
                place: min(end, target.next[place]) for place, end in ends.items() if place in target.next
            }
        if max_offsets is not None:
            begins = kept | self.view.earliest(ends.keys() - kept.keys())
            ends = limited(begins, ends, max_offsets)
        topics = {topic for topic, _ in ends}
        return Offsets(ends, {topic: id for topic, id in current.topic_ids.items() if topic in topics})

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """What lies between, per partition. One that `start` lacks is new, and begins at its earliest offset."""
        current = self.view.partitions()
        gone = {
            place
            for place in end.next
            if place not in current.places or _recreated(place[0], end.topic_ids, current.topic_ids)
        }
        earliest = self.view.earliest(end.next.keys() - gone)
        ranges, lost = [], []
        for (topic, partition), stop in sorted(end.next.items()):
            place = (topic, partition)
            is_new = place not in start.next or _recreated(topic, start.topic_ids, end.topic_ids)
            begin = 0 if is_new else start.next[place]
            first = stop if place in gone else min(earliest[place], stop)
            if begin < first:
                lost.append(Range(topic, partition, begin, first))
            ranges.append(Range(topic, partition, max(begin, first), stop))
        if lost:
            self._lost(f"records are gone that were not read: {described(lost)}")
        return ranges

    def _existing(self) -> Partitions:
        current = self.view.partitions()
        options = self._options
        asked: Iterable[str | Place]
        if options.places is not None:
            asked = set(options.places) - current.places
        else:
            asked = set(options.topics or ()) - {topic for topic, _ in current.places}
        if asked:
            names = ", ".join(
                sorted(name if isinstance(name, str) else f"{name[0]}-{name[1]}" for name in asked)
            )
            raise ClusterUnavailable(f"{options.client_config['bootstrap.servers']} does not have {names}")
        return current

    def _without_surprises(self, start: Offsets) -> Partitions:
        """The partitions now; those of `start` that stay missing are reported as lost."""
        for look in range(_SECOND_LOOKS + 1):
            current = self.view.partitions()
            gone = start.next.keys() - current.places
            if not gone:
                break
            if look < _SECOND_LOOKS:
                time.sleep(_SECOND_LOOK_WAIT_S)
        else:
            names = ", ".join(
                f"{topic}-{number} at offset {start.next[topic, number]}" for topic, number in sorted(gone)
            )
            self._lost(f"partitions are gone that were read up to here: {names}")
        return current

    def _report_recreated(self, start: Offsets, current: Partitions) -> None:
        for topic in sorted({topic for topic, _ in start.next}):
            if _recreated(topic, start.topic_ids, current.topic_ids):
                read = by_topic({place: offset for place, offset in start.next.items() if place[0] == topic})
                self._lost(
                    f"topic {topic} was deleted and created again (id {start.topic_ids[topic]}, now"
                    f" {current.topic_ids[topic]}); it had been read up to {read}"
                )

    def _ends(self, places: Iterable[Place], kept: OffsetMap) -> OffsetMap:
        ends = self.view.latest(places)
        for _ in range(_SECOND_LOOKS):
            if not any(ends[place] < offset for place, offset in kept.items()):
                return ends
            time.sleep(_SECOND_LOOK_WAIT_S)
            ends = self.view.latest(places)
        for (topic, partition), offset in sorted(kept.items()):
            end = ends[topic, partition]
            if end < offset:
                self._lost(f"{topic}-{partition} ends at offset {end}, but has been read up to {offset}")
        return ends

    def _resolve(self, bound: Bound, current: Partitions, *, is_start: bool) -> OffsetMap:
        if bound.timestamps_ms is not None:
            return self._at_timestamps(bound.timestamps_ms, current, is_start=is_start)
        offsets = bound.offsets
        if offsets is None:
            assert bound.everywhere is not None, "a bound says one of three"
            offsets = dict.fromkeys(current.places, bound.everywhere)
        self._check_named(offsets, current)
        earliest = self.view.earliest(place for place, offset in offsets.items() if offset == EARLIEST)
        latest = self.view.latest(place for place, offset in offsets.items() if offset == LATEST)
        return {**offsets, **earliest, **latest}

    def _at_timestamps(
        self, timestamps_ms: int | OffsetMap, current: Partitions, *, is_start: bool
    ) -> OffsetMap:
        wanted = (
            dict.fromkeys(current.places, timestamps_ms) if isinstance(timestamps_ms, int) else timestamps_ms
        )
        self._check_named(wanted, current)
        found = self.view.at_timestamps(wanted)
        nothing = sorted(place for place, offset in found.items() if offset < 0)
        if nothing and is_start and not self._options.latest_if_no_timestamp_matches:
            names = ", ".join(f"{topic}-{number} ({wanted[topic, number]})" for topic, number in nothing)
            raise InvalidOption(
                f"no record is as new as the timestamp to begin at: {names};"
                " startingOffsetsByTimestampStrategy=latest begins at the end there"
            )
        return {**found, **self.view.latest(nothing)}

    def _check_named(self, named: OffsetMap, current: Partitions) -> None:
        missing, unknown = current.places - named.keys(), named.keys() - current.places
        if missing or unknown:
            said = [
                f"{what} {', '.join(f'{topic}-{number}' for topic, number in sorted(places))}"
                for what, places in (
                    ("does not name", missing),
                    ("names, but the query does not read,", unknown),
                )
                if places
            ]
            raise InvalidOption(f"the JSON of starting or ending offsets {' and '.join(said)}")

    def _lost(self, what: str) -> None:
        if self._options.fails_on_data_loss:
            raise DataLoss(f"{what}. failOnDataLoss=false goes on with what there is")
        logger().warning("%s; going on, as failOnDataLoss=false says", what)


def _recreated(topic: str, before: dict[str, str], now: dict[str, str]) -> bool:
    """Whether both know the topic's id, and they differ."""
    return topic in before and topic in now and before[topic] != now[topic]
