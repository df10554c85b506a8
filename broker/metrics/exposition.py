"""The text of all metrics, made in the background, in steps.

One text is made at a time. Who asks while it is being made gets the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from broker.admin_http.request import Answer, text
from broker.scheduling.background import Background, Steps

logger = structlog.get_logger()

Reply = Callable[[Answer], None]


class Exposition:
    """Of one node. Everything may change between two metrics that a collector gives."""

    def __init__(self, background: Background, collectors: Iterable[Collector]) -> None:
        self._background = background
        self._registry = CollectorRegistry(auto_describe=False)
        for collector in collectors:
            self._registry.register(collector)
        self._waiting: list[Reply] = []

    def ask(self, reply: Reply) -> None:
        """A handler of `broker.admin_http`."""
        self._waiting.append(reply)
        if len(self._waiting) == 1:
            self._background.run(self._make())

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()

    def _make(self) -> Steps:
        parts: list[bytes] = []
        try:
            for part in in_pieces(self.collect()):
                parts.append(part)
                yield
            answer = Answer(HTTPStatus.OK, parts, CONTENT_TYPE_PLAIN_0_0_4)
        except Exception as error:
            # A mistake of ours, but nothing was changed: it does not end the node, which serves others.
            logger.exception("the metrics could not be made")
            answer = text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: see the node's log")
        waiting, self._waiting = self._waiting, []
        for reply in waiting:
            reply(answer)


def in_pieces(metrics: Iterable[Metric]) -> Iterator[bytes]:
    """The text of each metric. Pieces of the same family follow one another, and only the first has the header."""
    name = ""
    for metric in metrics:
        lines = generate_latest(_One(metric))
        if metric.name == name:
            lines = lines.split(b"\n", 2)[2]
        name = metric.name
        yield lines


class _One(Collector):
    """What prometheus-client prints at a time."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> list[Metric]:
        return [self._metric]
