"""Metrics of the node as a whole: its loop, its disk, the other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker.metadata.leaders import LeaderTable
from broker.metrics import catalogue as names
from broker.metrics.families import family, histogram, single
from broker.scheduling.loop_watch import LoopWatch
from broker.serving.context import Context
from storage.group_commit import FlushRounds


class NodeMetrics(Collector):
    def __init__(
        self,
        node_id: int,
        context: Context,
        leaders: LeaderTable,
        rounds: FlushRounds,
        watch: LoopWatch,
        is_ready: Callable[[], bool],
    ) -> None:
        self._node_id = node_id
        self._context = context
        self._leaders = leaders
        self._rounds = rounds
        self._watch = watch
        self._is_ready = is_ready
        self._version = _version()

    def collect(self) -> Iterator[Metric]:
        context = self._context
        yield from family(names.NODE_INFO, [((str(self._node_id), self._version), 1)])
        yield from single(names.NODE_READY, self._is_ready())
        connected = len(context.view.alive_brokers())
        away = len(context.image.brokers) - connected
        yield from family(names.BROKERS, [(("connected",), connected), (("away",), away)])
        yield from single(names.CONTROLLER_ACTIVE, self._leaders.controller_id() == self._node_id)
        yield from histogram(names.LOOP_STALL, [((), self._watch.durations)])
        yield from single(names.LOOP_STALL_LONGEST, self._watch.longest_s)
        yield from histogram(names.FLUSH, [((), self._rounds.durations)])
        yield from single(names.DISK_FREE, context.volume.free_bytes())
        yield from single(names.DISK_SIZE, context.volume.total_bytes())
        yield from single(names.DISK_LOW, context.replicas.space.is_low)


def _version() -> str:
    try:
        return version("varve")
    except PackageNotFoundError:
        return "unknown"  # a checkout that is not installed
