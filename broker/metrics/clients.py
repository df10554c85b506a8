"""Metrics of clients: their requests, connections and quotas."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from broker.metrics import catalogue as names
from broker.metrics.families import family, histogram, single
from broker.network.connection_registry import ConnectionRegistry
from broker.serving.quotas import ClientQuotas
from protocol.api_keys import ApiKey


class ClientMetrics(Collector):
    def __init__(self, connections: ConnectionRegistry, quotas: ClientQuotas) -> None:
        self._connections = connections
        self._quotas = quotas

    def collect(self) -> Iterator[Metric]:
        traffic = self._connections.traffic
        by_api = sorted((api_name(key), durations) for key, durations in traffic.by_api.items())
        yield from histogram(names.REQUESTS, [((api,), durations) for api, durations in by_api])
        counts = [((api,), sum(durations.counts)) for api, durations in by_api]
        yield from family(names.REQUEST_COUNT, counts)
        yield from single(names.RECEIVED, traffic.received_bytes)
        yield from single(names.SENT, traffic.sent_bytes)
        yield from single(names.CONNECTIONS, len(self._connections))
        yield from single(names.ACCEPTED, traffic.accepted_count)
        yield from single(names.REFUSED, traffic.refused_count)
        throttled = self._quotas.throttled
        yield from family(names.THROTTLES, [((key,), each.count) for key, each in throttled.items()])
        seconds = [((key,), each.total_ms / 1000) for key, each in throttled.items()]
        yield from family(names.THROTTLE_TIME, seconds)


def api_name(key: int) -> str:
    """As Kafka writes it: InitProducerId."""
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
