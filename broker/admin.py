"""The HTTP endpoint of a node, assembled: its metrics and its health."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from prometheus_client.process_collector import ProcessCollector

from broker.admin_http.endpoint import Endpoint, Handler, Reply
from broker.admin_http.request import text
from broker.membership.listeners import Listeners
from broker.metadata.ids import NodeIdentity
from broker.metadata.leaders import LeaderTable
from broker.metrics.clients import ClientMetrics
from broker.metrics.compaction import CompactionMetrics
from broker.metrics.coordinators import GroupMetrics, TransactionMetrics
from broker.metrics.exposition import Exposition
from broker.metrics.node import NodeMetrics
from broker.metrics.partitions import LeaderChanges, PartitionMetrics
from broker.replication.events import ReplicaEvents
from broker.scheduling.background import Background
from broker.scheduling.loop_watch import LoopWatch
from broker.scheduling.ticks import Ticks
from broker.serving.context import Context
from storage.group_commit import FlushRounds


class Admin:
    """Of one node. Without varve.metrics.port nothing of it exists."""

    def __init__(
        self,
        me: NodeIdentity,
        context: Context,
        leaders: LeaderTable,
        rounds: FlushRounds,
        events: ReplicaEvents,
        ticks: Ticks,
        ready: asyncio.Event,
    ) -> None:
        """`ready`: set while clients are served."""
        self._config = context.config
        self._endpoint: Endpoint | None = None
        self.exposition: Exposition | None = None
        if not self._config.metrics_port:
            return
        watch = LoopWatch(context.now(), ticks)
        parts = [
            NodeMetrics(me.node_id, context, leaders, rounds, watch, ready.is_set),
            ProcessCollector(registry=None),
            ClientMetrics(context.connections, context.quotas),
            PartitionMetrics(me.node_id, context, leaders, LeaderChanges(events)),
            GroupMetrics(context.groups, context.replicas.by_name),
            TransactionMetrics(context.transactions, context.clock),
            CompactionMetrics(context),
        ]

        def answer_ready(reply: Reply) -> None:
            if ready.is_set():
                reply(text(HTTPStatus.OK, "ready"))
            else:
                reply(text(HTTPStatus.SERVICE_UNAVAILABLE, "starting or stopping: clients are not served"))

        # Its own time in each loop iteration: a scrape and the node's other work do not wait for each other.
        background = Background(context.loop, context.clock.steady_s)
        self.exposition = Exposition(background, parts)
        handlers: dict[str, Handler] = {
            "/metrics": self.exposition.ask,
            "/livez": lambda reply: reply(text(HTTPStatus.OK, "alive")),
            "/readyz": answer_ready,
        }
        self._endpoint = Endpoint(context.loop, handlers)

    async def listen(self, listeners: Listeners) -> None:
        """Raises StartError if the port cannot be had."""
        if self._endpoint is not None:
            host, port = self._config.metrics_host, self._config.metrics_port
            await listeners.listen(host, port, self._endpoint.accept)

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()
