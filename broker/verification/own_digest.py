"""A digest of this node's own replica."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import structlog

from broker.compaction.child_cleaner import CleanerDiedError
from broker.compaction.facts import aborted_below, segment_facts
from broker.compaction.worker import CompactionWorker
from broker.config.layers import LiveSettings
from broker.environment import Cleaner
from broker.replication.digest_state import DigestState
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.verification.results import Answer, Question
from storage.aborted_index import AbortedTransaction
from storage.batch_scan import UncleanableError, has_its_segments
from storage.compaction.view_digest import RangeDigest
from storage.disk import MissingPathError
from storage.errors import CorruptLogError
from storage.log import Log
from storage.log_digest import DigestTask

logger = structlog.get_logger()

_SALT_BYTES = 16


class DigestMaker:
    """Of one node. The parts that it uses are there for those that use it."""

    def __init__(
        self,
        replicas: Replicas,
        compaction: CompactionWorker,
        settings: LiveSettings,
        cleaner: Cleaner,
        rng: random.Random,
    ) -> None:
        self.replicas = replicas
        self.compaction = compaction
        self.settings = settings
        self.rng = rng
        self._cleaner = cleaner

    def obstacle(self, replica: Replica, question: Question) -> DigestState | None:
        """Why there cannot be a digest now. None: there can."""
        log, (start, end) = replica.log, question.view
        if log.start_offset > start:
            return DigestState.STARTS_LATER
        if log.rewritten_end > end:
            return DigestState.COMPACTED_FURTHER
        known_end = min(log.end_offset, replica.high_watermark, replica.last_stable_offset)
        if not replica.is_open or replica.group.is_installing or known_end < end:
            return DigestState.BEHIND
        return None

    async def make(self, replica: Replica, question: Question) -> Answer:
        """No pass begins meanwhile. Raises MissingPathError if somebody took the log's files away."""
        if (obstacle := self.obstacle(replica, question)) is not None:
            return obstacle
        if not self.compaction.hold(replica):
            return DigestState.BUSY
        try:
            return await self._read(replica, replica.log, question)
        finally:
            self.compaction.release(replica)

    async def _read(self, replica: Replica, log: Log, question: Question) -> Answer:
        try:
            aborted = await aborted_below(replica, log, question.view.end) if question.is_by_key else ()
            digest = None if aborted is None else await self._digest(log, aborted, question)
        except CorruptLogError as error:
            if replica.is_open and replica.log is log:
                self.replicas.log_corrupt(replica, error)
            return DigestState.FAILED
        except MissingPathError:
            # Retention, a snapshot install or the deletion of the log takes files away. Nobody else may.
            if replica.is_open and not has_its_segments(replica.log):
                raise
            return DigestState.FAILED
        except (UncleanableError, CleanerDiedError) as error:
            logger.warning("no digest", topic=replica.topic, partition=replica.partition, error=str(error))
            return DigestState.FAILED
        if digest is None or not replica.is_open or replica.log is not log:
            return DigestState.FAILED
        return DigestState.REWRITTEN if digest.is_rewritten and not question.is_by_key else digest

    async def _digest(
        self, log: Log, aborted: Sequence[AbortedTransaction], question: Question
    ) -> RangeDigest:
        config = self.settings.config
        task = DigestTask(
            log.directory,
            segment_facts(log, log.end_offset, with_ages=False),
            [(row.offset, row.term) for row in log.lineage.rows],
            question.view,
            question.focus,
            question.is_by_key,
            aborted,
            config.cleaner_dedupe_buffer_bytes // config.cleaner_threads,
            self.rng.randbytes(_SALT_BYTES),
        )
        is_slow = question.is_background
        rate = config.verify_io_max_bytes_per_second if is_slow else float("inf")
        return await self._cleaner.digest(task, rate)


def raise_failure(task: asyncio.Task[Any]) -> None:
    """A failed disk, or a mistake of ours, ends the node."""
    if not task.cancelled():
        task.result()
