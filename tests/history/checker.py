"""The second pass: what was sent against what was read. Linear, but for sorting."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.history.evidence import Evidence, Gap
from tests.history.findings import Finding, Kind
from tests.history.operations import HistoryError, Operation, Place, Send
from tests.history.transactions import check_transactions


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a history shows."""

    findings: list[Finding]
    operations: int
    sends: dict[str, int]
    """By outcome."""
    transactions: dict[str, int]
    """By outcome."""
    records_read: int
    """Counting a record as often as somebody read it."""
    repeated_by_plain_producers: int
    """Values of producers without idempotence that are in the log more than once, as they may be."""

    @property
    def is_valid(self) -> bool:
        return not self.findings


def check(operations: Iterable[Operation]) -> Verdict:
    """Judge a history; a finding's proof are positions in `operations`.

    Raises HistoryError where nothing can be concluded: a value sent twice, nothing acknowledged, nobody who looked.
    """
    evidence = Evidence()
    for position, operation in enumerate(operations):
        evidence.add(position, operation)
    outcomes, ends = ({"ok": 0, "failed": 0, "unknown": 0} for _ in range(2))
    for sends in evidence.sends.values():
        for _, send in sends.values():
            outcomes[send.outcome] += 1
    for _, transaction in evidence.transactions.values():
        ends[transaction.outcome] += 1
    if not outcomes["ok"] or not evidence.has_looked:
        raise HistoryError("nothing was acknowledged, or nobody read: that proves nothing")
    places, repeated = _places(evidence), 0
    findings = [*evidence.findings]
    for finding in _repeated(evidence, places):
        if finding is None:
            repeated += 1
        else:
            findings.append(finding)
    findings += _wrongly_read(evidence)
    findings += _acknowledged_elsewhere(evidence)
    findings += _missing(evidence, places)
    findings += _skipped(evidence)
    findings += _out_of_order(evidence)
    findings += check_transactions(evidence)
    findings.sort(key=lambda finding: (finding.kind, finding.place or ("", -1), finding.offset or 0))
    return Verdict(findings, evidence.operations, outcomes, ends, evidence.records_read, repeated)


def _places(evidence: Evidence) -> dict[tuple[str, str], list[tuple[Place, int, int]]]:
    """Where each value of each topic was read, and by which operation."""
    places: dict[tuple[str, str], list[tuple[Place, int, int]]] = {}
    for place, partition in evidence.partitions.items():
        for offset, seen in partition.reads.items():
            places.setdefault((place[0], seen.value), []).append((place, offset, seen.position))
    return places


def _repeated(
    evidence: Evidence, places: dict[tuple[str, str], list[tuple[Place, int, int]]]
) -> Iterator[Finding | None]:
    """Values at two places; None for each that may be."""
    for (topic, value), found in places.items():
        position, send = evidence.sends.get(topic, {}).get(value, (None, None))
        claimed = list(found)
        if (
            send is not None
            and position is not None
            and send.offset is not None
            and send.partition is not None
        ):
            there = ((topic, send.partition), send.offset)
            if all(there != (place, offset) for place, offset, _ in found):
                claimed.append((*there, position))
        if len(claimed) < 2:
            continue
        if send is not None and not send.is_idempotent:
            yield None
            continue
        where = ", ".join(f"{place[1]}@{offset}" for place, offset, _ in claimed)
        first, second = claimed[0], claimed[1]
        yield Finding(Kind.DUPLICATE, second[0], second[1], f"{value!r} is at {where}", (first[2], second[2]))


def _wrongly_read(evidence: Evidence) -> Iterator[Finding]:
    """What should not have been there at all."""
    for place, partition in evidence.partitions.items():
        sends = evidence.sends.get(place[0], {})
        for offset, seen in partition.reads.items():
            position, send = sends.get(seen.value, (-1, None))
            if send is None:
                what = f"{seen.value!r} was read, and nobody sent it to this topic"
                yield Finding(Kind.PHANTOM_READ, place, offset, what, (seen.position,))
            elif send.outcome == "failed":
                what = f"{seen.value!r} was read, and its send had failed for certain"
                yield Finding(Kind.ABORTED_READ, place, offset, what, (position, seen.position))
            elif send.partition is not None and send.partition != place[1]:
                what = f"{seen.value!r} was read, and it was sent to partition {send.partition}"
                yield Finding(Kind.PHANTOM_READ, place, offset, what, (position, seen.position))


def _acknowledged_elsewhere(evidence: Evidence) -> Iterator[Finding]:
    """An acknowledgement names an offset for which a reader, or another acknowledgement, names another value."""
    acknowledged: dict[tuple[Place, int], tuple[str, int]] = {}
    for sends in evidence.sends.values():
        for position, send in sends.values():
            if send.offset is None or send.partition is None:
                continue
            place = (send.topic, send.partition)
            other = acknowledged.setdefault((place, send.offset), (send.value, position))
            if other[0] != send.value:
                what = f"acknowledged for {other[0]!r} and for {send.value!r}"
                yield Finding(Kind.INCONSISTENT_OFFSET, place, send.offset, what, (other[1], position))
            partition = evidence.partitions.get(place)
            seen = None if partition is None else partition.reads.get(send.offset)
            if seen is not None and seen.value != send.value:
                what = f"acknowledged for {send.value!r}, and {seen.value!r} was read there"
                yield Finding(Kind.INCONSISTENT_OFFSET, place, send.offset, what, (position, seen.position))


def _missing(
    evidence: Evidence, places: dict[tuple[str, str], list[tuple[Place, int, int]]]
) -> Iterator[Finding]:
    """Acknowledged and read by nobody."""
    latest = _latest_of_keys(evidence)
    for topic, sends in evidence.sends.items():
        for position, send in sends.values():
            if send.outcome != "ok" or (topic, send.value) in places:
                continue
            if send.partition is None or send.offset is None:
                what = f"{send.value!r} was acknowledged, at an offset not named, and nobody read it"
                place = None if send.partition is None else (topic, send.partition)
                yield Finding(Kind.UNSEEN_WRITE, place, None, what, (position,))
                continue
            place = (topic, send.partition)
            if latest.get((place, send.key or ""), -1) > send.offset:
                continue  # compacted away
            partition = evidence.partitions.get(place)
            if partition is not None and partition.last_reader is not None and send.offset < partition.end:
                what = f"{send.value!r} was acknowledged and nobody read it, though readers came to {partition.end}"
                yield Finding(Kind.LOST_WRITE, place, send.offset, what, (position, partition.last_reader))
            else:
                what = f"{send.value!r} was acknowledged and no reader came that far"
                yield Finding(Kind.UNSEEN_WRITE, place, send.offset, what, (position,))


def _latest_of_keys(evidence: Evidence) -> dict[tuple[Place, str], int]:
    """The highest offset known of each key of the compacted topics."""
    latest: dict[tuple[Place, str], int] = {}

    def note(place: Place, key: str | None, offset: int) -> None:
        if key is not None:
            latest[place, key] = max(offset, latest.get((place, key), -1))

    for topic, sends in evidence.sends.items():
        if evidence.is_compacted(topic):
            for _, send in sends.values():
                if send.offset is not None and send.partition is not None:
                    note((topic, send.partition), send.key, send.offset)
    for place, partition in evidence.partitions.items():
        if evidence.is_compacted(place[0]):
            sends = evidence.sends.get(place[0], {})
            for offset, seen in partition.reads.items():
                if seen.value in sends:
                    note(place, sends[seen.value][1].key, offset)
    return latest


def _skipped(evidence: Evidence) -> Iterator[Finding]:
    """Gaps in what a reader was given.

    In a topic without transactions and compaction every offset has a record. In one with gaps, only a record that
    somebody else read there proves that this reader should have had it; in a compacted one, not even that.
    """
    known: dict[Place, list[int]] = {}
    for gap in evidence.gaps:
        topic = gap.place[0]
        if evidence.is_compacted(topic):
            continue
        if not evidence.has_gaps(topic):
            yield _skip(gap, gap.start, gap.proof)
            continue
        partition = evidence.partitions[gap.place]
        if gap.place not in known:
            known[gap.place] = sorted(partition.reads)
        index = bisect_left(known[gap.place], gap.start)
        if index < len(known[gap.place]) and known[gap.place][index] < gap.end:
            offset = known[gap.place][index]
            yield _skip(gap, offset, (*gap.proof, partition.reads[offset].position))


def _skip(gap: Gap, offset: int, proof: tuple[int, ...]) -> Finding:
    what = f"offsets {gap.start} to {gap.end - 1} were left out {gap.where}"
    return Finding(Kind.SKIPPING_POLL, gap.place, offset, what, proof)


def _out_of_order(evidence: Evidence) -> Iterator[Finding]:
    """Acknowledged sends of one idempotent producer to one partition, in the order of sending."""
    by_producer: dict[tuple[str, Place], list[tuple[int, int, Send]]] = {}
    for sends in evidence.sends.values():
        for position, send in sends.values():
            if send.offset is not None and send.partition is not None and send.is_idempotent:
                producer = (send.process, (send.topic, send.partition))
                by_producer.setdefault(producer, []).append((send.begin_ns, position, send))
    for (_, place), sent in by_producer.items():
        sent.sort(key=lambda item: item[:2])
        for (_, first_position, first), (_, second_position, second) in pairwise(sent):
            assert first.offset is not None and second.offset is not None
            if second.offset < first.offset:
                what = f"{second.value!r} was sent after {first.value!r}, which is at {first.offset}"
                yield Finding(
                    Kind.NONMONOTONIC_SEND, place, second.offset, what, (first_position, second_position)
                )
