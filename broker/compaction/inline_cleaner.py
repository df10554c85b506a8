"""A pass of compaction, or a digest, on the event loop in small steps: for the simulation, which has no processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from storage.batch_scan import BytesMoved
from storage.compaction.view_digest import RangeDigest
from storage.disk import Disk
from storage.log_cleaning import CleaningEvent, CleaningTask, clean
from storage.log_digest import DigestReady, DigestTask, digest_log


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

    async def digest(self, task: DigestTask, max_bytes_per_second: float) -> RangeDigest:
        await asyncio.sleep(0)
        for event in digest_log(self._disk, task):
            if isinstance(event, DigestReady):
                return event.digest
            await asyncio.sleep(event.byte_count / max_bytes_per_second)
        raise AssertionError("a digest ends with one")
