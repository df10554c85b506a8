"""Telling in the node's log that a coordinator refuses requests, because its memory is used up."""

from __future__ import annotations

import structlog

from broker.coordinator.memory import CoordinatorMemory
from broker.scheduling.ticks import Ticks

logger = structlog.get_logger()

#: How often the log says so.
EACH_S = 10.0


def log_refusals(memory: CoordinatorMemory, setting: str, ticks: Ticks) -> None:
    """From now on. `setting`: the name of the bound."""

    def look(now: float) -> None:
        refused, memory.refused = memory.refused, 0
        if refused:
            logger.warning(
                f"requests are refused: {setting} is used up",
                count=refused,
                used_bytes=memory.used_bytes(),
                max_bytes=memory.max_bytes,
                cause=setting,
            )

    ticks.every(EACH_S, look)
