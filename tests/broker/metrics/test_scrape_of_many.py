"""A scrape of a node with a thousand partitions: how much work it is, and that no step of it is long."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Self

from broker.metrics.exposition import in_pieces
from tests.broker.admin_http.http_client import SETTINGS
from tests.broker.metrics.scrape import Scrape
from tests.broker.world import running

PARTITIONS = 1000
#: Function calls, which unlike seconds are the same on every machine. A step makes 3,300 of them at most, half a
#: millisecond here; the loop is to be kept for a few at most.
MAX_STEP_CALLS = 10_000
#: All steps together make a million, 0.05 to 0.08 s of the processor; a scrape is to be answered within 0.2 s.
MAX_CALLS = 2_000_000


class Calls:
    """Counts calls of Python's and of C's functions while it is on."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _seen(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.count += event in ("call", "c_call")


def test_a_thousand_compacted_partitions_are_shown_in_short_steps() -> None:
    with running(1, settings=SETTINGS) as world:
        for number in range(PARTITIONS // 100):
            world.create_topic(f"t{number}", 100, 1, configs={"cleanup.policy": "compact"})
        node = world.nodes[1]
        led = [replica for replica in node.replicas.by_name.values() if replica.topic.startswith("t")]
        world.wait(lambda: all(replica.is_serving for replica in led))
        exposition = node.admin.exposition
        assert exposition is not None
        pieces, calls = [], []
        metrics = in_pieces(exposition.collect())
        while True:
            with Calls() as made:
                piece = next(metrics, None)
            calls.append(made.count)
            if piece is None:
                break
            pieces.append(piece)
        seen = Scrape(b"".join(pieces).decode())
        assert len(seen.all("varve_partition_high_watermark")) == PARTITIONS
        assert len(seen.all("varve_log_cleaner_dirty_ratio")) == PARTITIONS
        assert max(calls) < MAX_STEP_CALLS
        assert sum(calls) < MAX_CALLS
