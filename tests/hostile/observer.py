"""What an attack does to the nodes and to a client that behaves."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from protocol.messages.api_versions import ApiVersionsRequest
from tests.hostile.good import Delivery
from tests.hostile.local_nodes import LocalNode
from tests.hostile.target import Target

_SAMPLED_EVERY_S = 0.02
_MEMORY_EVERY = 5


def percentile(values: list[float], share: float) -> float:
    """0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


@dataclass(slots=True)
class Latency:
    """Of the client that behaves, in milliseconds."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    failed: int
    count: int

    @classmethod
    def of(cls, noted: list[Delivery], since: float, until: float) -> Latency:
        window = [each for each in noted if since <= each.sent_at <= until]
        values = [each.latency_s * 1000 for each in window if each.error is None]
        return cls(
            percentile(values, 0.5),
            percentile(values, 0.99),
            max(values, default=0.0),
            len(window) - len(values),
            len(values),
        )


@dataclass(slots=True)
class Observed:
    """During a block: `with Observer(...) as observed:`."""

    since: float
    memory_mb: dict[int, int] = field(default_factory=dict)
    """Node id -> the most that was seen."""
    slowest_ping_ms: float = 0.0
    """The slowest answer of a node to the shortest question."""
    has_leader_changes: bool = False
    trouble: list[str] = field(default_factory=list)


class Observer:
    def __init__(self, target: Target, nodes: list[LocalNode], topic: str) -> None:
        self._target = target
        self._nodes = nodes
        self._topic = topic
        self._is_ending = threading.Event()

    def __enter__(self) -> Observed:
        self._leaders = self._leaders_now()
        self.observed = Observed(time.time())
        self._threads = [threading.Thread(target=self._watch_memory)]
        self._threads += [
            threading.Thread(target=self._ping, args=(node_id,)) for node_id in self._target.nodes
        ]
        for thread in self._threads:
            thread.start()
        return self.observed

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        for thread in self._threads:
            thread.join()
        seen = self.observed
        for node in self._nodes:
            seen.trouble += [f"node {node.node_id}: {line}" for line in node.new_trouble()]
            if not node.is_alive:
                seen.trouble.append(f"node {node.node_id} has ended")
        seen.has_leader_changes = self._leaders_now() != self._leaders

    def _leaders_now(self) -> tuple[int, dict[int, tuple[int, int]]]:
        """The controller, and the leader and epoch of each partition."""
        return self._target.metadata(self._topic).controller_id, self._target.leaders(self._topic)

    def _watch_memory(self) -> None:
        while not self._is_ending.wait(_SAMPLED_EVERY_S * _MEMORY_EVERY):
            for node in self._nodes:
                now_mb = node.memory_mb or 0
                self.observed.memory_mb[node.node_id] = max(
                    self.observed.memory_mb.get(node.node_id, 0), now_mb
                )

    def _ping(self, node_id: int) -> None:
        request = ApiVersionsRequest(client_software_name="hostile", client_software_version="1")
        wire = None
        while not self._is_ending.wait(_SAMPLED_EVERY_S):
            began = time.monotonic()
            try:
                wire = wire or self._target.connect(node_id)
                wire.call(request, 3)
            except OSError as error:
                self.observed.trouble.append(f"node {node_id} does not answer: {error}")
                wire = None
                continue
            took_ms = (time.monotonic() - began) * 1000
            self.observed.slowest_ping_ms = max(self.observed.slowest_ping_ms, took_ms)
        if wire is not None:
            wire.socket.close()
