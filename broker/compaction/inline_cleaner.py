"""A pass of compaction on the event loop, in small steps: for the simulation, which has no processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from storage.disk import Disk
from storage.log_cleaning import BytesMoved, CleaningEvent, CleaningTask, clean


class InlineCleaner:
    """Implements `broker.environment.Cleaner`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def clean(self, task: CleaningTask, max_bytes_per_second: float) -> AsyncGenerator[CleaningEvent]:
        for event in clean(self._disk, task):
            if isinstance(event, BytesMoved):
                await asyncio.sleep(event.byte_count / max_bytes_per_second)
            else:
                # Whatever happens in a node may happen between two segments.
                await asyncio.sleep(0)
                yield event
