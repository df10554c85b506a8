"""Where a node shows its metrics and its health."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import integer, setting, text


@dataclass(frozen=True, kw_only=True)
class MetricsKeys:
    metrics_port: int = setting(
        "varve.metrics.port",
        integer(0, 65535),
        "0",
        """The port of the node's HTTP endpoint: /metrics for Prometheus, /livez and /readyz. 0: there is none, so that
        several nodes with Kafka's own settings can run on one machine. `varve cluster up` and the compose file choose a
        port for each node.""",
    )
    metrics_host: str = setting(
        "varve.metrics.host",
        text,
        "localhost",
        """The address on which the HTTP endpoint listens. localhost is both loopback addresses, empty is every address
        of the machine. Whoever reaches it can read the names of topics and groups, and can change nothing.""",
    )
