"""Metrics of compaction: what passes have done, what is dirty, what is held, and which replica keeps it from going."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker.compaction.members import MemberStanding, member_standings
from broker.compaction.standing import Standing
from broker.metrics import catalogue as names
from broker.metrics.families import LONG, Row, family, histogram, single
from broker.metrics.partitions import place
from broker.replication.replica import Replica
from broker.serving.context import Context
from storage.compaction.counts import Held
from storage.errors import CorruptLogError
from storage.journal_records import UNSET

#: A look at a log, or at the members of a group, takes some 20 us.
PIECE_STEPS = 10


class _Member(NamedTuple):
    """Of a partition that is led here."""

    topic: str
    partition: str
    standing: MemberStanding

    @property
    def labels(self) -> tuple[str, str, str]:
        return self.topic, self.partition, str(self.standing.member.node_id)


class CompactionMetrics(Collector):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._worker = context.compaction

    def collect(self) -> Iterator[Metric]:
        totals = self._worker.totals
        yield from single(names.COMPACTIONS, sum(totals.durations.counts))
        yield from single(names.CLEANED, totals.removed_bytes)
        yield from single(names.COMPACTION_FAILURES, totals.failure_count)
        yield from histogram(names.COMPACTION_TIME, [((), totals.durations)], LONG)
        yield from self._collect_logs()
        yield from self._collect_members()

    def _replicas(self) -> Iterator[Replica | None]:
        """The compacted ones. None: a step that found none."""
        for replica in list(self._context.replicas.by_name.values()):
            yield replica if replica.is_open and replica.config.is_compacted else None

    # -- logs on this node -------------------------------------------------------------------------------

    def _collect_logs(self) -> Iterator[Metric]:
        logs: list[tuple[Replica, Standing]] = []
        yield from family(names.DIRTY_RATIO, self._dirty_ratios(logs), PIECE_STEPS)
        yield from family(names.LAST_COMPACTED, (_last_compacted(replica) for replica, _ in logs))
        failed = [(replica, standing) for replica, standing in logs if standing.memory.failure]
        yield from family(
            names.UNCLEANABLE, ((place(x), bool(standing.memory.failure)) for x, standing in logs)
        )
        yield from single(names.UNCLEANABLE_PARTITIONS, len(failed))
        yield from single(names.UNCLEANABLE_BYTES, sum(standing.size_bytes for _, standing in failed))
        retention_ms = {replica.topic: replica.config.delete_retention_ms for replica, _ in logs}
        yield from family(
            names.DELETE_RETENTION, (((topic,), ms / 1000) for topic, ms in retention_ms.items())
        )
        held = list(_held(logs))
        yield from family(names.HELD_RECORDS, ((labels, each.expired_count) for labels, each in held))
        yield from family(names.HELD_BYTES, ((labels, each.expired_bytes) for labels, each in held))
        yield from family(names.PENDING_RECORDS, ((labels, each.count) for labels, each in held))

    def _dirty_ratios(self, logs: list[tuple[Replica, Standing]]) -> Iterator[Row | None]:
        """Keeps what it finds in `logs`."""
        for replica in self._replicas():
            if replica is None:
                yield None
                continue
            try:
                standing = self._worker.standing(replica)
            except CorruptLogError:
                yield None  # the worker comes upon it, too, and the replica is rebuilt then
                continue
            logs.append((replica, standing))
            yield place(replica), standing.plan.dirty_ratio

    # -- members of groups that are led here -------------------------------------------------------------

    def _collect_members(self) -> Iterator[Metric]:
        led: list[Replica] = []
        members: list[_Member] = []
        yield from family(names.MCCO, self._mcco(led, members), PIECE_STEPS)
        yield from family(names.MXFO, (_bound(each.labels, each.standing.cleaned.mxro) for each in members))
        yield from family(names.MTRO, (_bound(place(replica), replica.bounds.mtro) for replica in led))
        yield from family(names.MXRO, (_bound(place(replica), replica.bounds.mxro) for replica in led))
        yield from family(names.PINNED, self._pins(members))

    def _mcco(self, led: list[Replica], members: list[_Member]) -> Iterator[Row | None]:
        """Keeps what it finds in `led` and `members`."""
        alive = self._context.view.alive_brokers()
        for replica in self._replicas():
            if replica is None or not replica.is_serving:
                yield None
                continue
            led.append(replica)
            for standing in member_standings(replica, alive):
                member = _Member(*place(replica), standing)
                members.append(member)
                yield _bound(member.labels, standing.cleaned.mtro)

    def _pins(self, members: list[_Member]) -> Iterator[Row | None]:
        now = self._context.now()
        for member in members:
            standing = member.standing
            reason = standing.blocked_by.name.lower()
            for bound, pin in (("tombstones", standing.tombstone_pin), ("markers", standing.marker_pin)):
                yield None if pin is None else ((*member.labels, bound, reason), now - pin.since)


def _bound(labels: tuple[str, ...], offset: int) -> Row | None:
    """None: it was never raised."""
    return None if offset == UNSET else (labels, offset)


def _last_compacted(replica: Replica) -> Row | None:
    passed_at_ms = replica.bounds.durable.passed_at_ms
    return None if passed_at_ms == UNSET else (place(replica), passed_at_ms / 1000)


def _held(logs: list[tuple[Replica, Standing]]) -> Iterator[tuple[tuple[str, str, str], Held]]:
    """By kind, of the logs over which there was a pass since the node was started."""
    for replica, standing in logs:
        counts = standing.memory.counts
        if counts is not None:
            for kind in ("tombstones", "markers", "remnants"):
                yield (*place(replica), kind), getattr(counts, kind)
