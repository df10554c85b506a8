"""The compaction worker: which log is compacted when, and what a pass changes of it.

Every replica compacts its own log, whoever leads. What is heavy is done by a `Cleaner`, beside the loop. The worker
makes plans, puts built segments in place, and raises the bounds when a pass is over (coordinated-compaction.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from functools import partial

import structlog

from broker.compaction.asked import PATIENCE_S, Answer, AskedPass, PassResult
from broker.compaction.child_cleaner import CleanerDiedError
from broker.compaction.facts import (
    aborted_below,
    cleanable_end,
    cleaning_task,
    find_held_back,
    known_at_snapshot,
    log_facts,
    removal_bounds,
    settings_of,
)
from broker.compaction.standing import LogCompaction, Standing, blocked_by, standing_of, why_not
from broker.compaction.totals import CompactionTotals
from broker.config.layers import LiveSettings
from broker.environment import Cleaner
from broker.metadata.ids import INTERNAL_TOPICS
from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.replication.watermarks.blocked_by import BlockedBy
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from protocol.errors import ErrorCode, KafkaError
from raft.types import RemovalBounds
from storage.batch_scan import UncleanableError, has_its_segments
from storage.compaction.counts import PassCounts
from storage.compaction.held_back import HeldBack
from storage.compaction.key_map import KeyMapTooSmallError
from storage.compaction.plan import Obstacle, Plan, make_plan
from storage.disk import DiskFullError, MissingPathError
from storage.errors import CorruptLogError
from storage.log_cleaning import MapReady, PassOver, SegmentReady
from storage.log_types import GroupKey
from storage.producer_snapshot import has_durable_snapshot, remove_needless_snapshots

logger = structlog.get_logger()

MAX_BACKOFF_S = 3600.0
#: Plans are made of so many logs at a time.
_PLANS_PER_STEP = 20


class CompactionWorker:
    """Of one node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        replicas: Replicas,
        settings: LiveSettings,
        cleaner: Cleaner,
        ticks: Ticks,
    ) -> None:
        self._loop = loop
        self._replicas = replicas
        self._settings = settings
        self._cleaner = cleaner
        self._logs: dict[GroupKey, LogCompaction] = {}
        self.totals = CompactionTotals()
        #: Passes that were asked for: those that have yet to begin, and those that are due or under way.
        self._asked: dict[GroupKey, AskedPass] = {}
        self._begun: dict[GroupKey, AskedPass] = {}
        #: A round looks at all logs for those that are due. The next one begins when they are done.
        self._round: asyncio.Task[None] | None = None
        #: Replicas to be compacted, the most urgent one last.
        self._due: list[Replica] = []
        #: As many as log.cleaner.threads at most. Each compacts one of `_due` after the other.
        self._threads: set[asyncio.Task[None]] = set()
        #: The folders of passes under way. A pass outlives its replica for a while; another topic may have its name.
        self._folders: set[str] = set()
        #: Logs that are being read as they are, and by how many. No pass over them begins.
        self._held: Counter[GroupKey] = Counter()
        self._next_round_at = loop.time() + settings.config.compaction_initial_delay_ms / 1000
        ticks.every(SLOW_TICK_S, self._tick)

    async def stop(self) -> None:
        """What is being built is given up. The next pass begins anew."""
        self._next_round_at = float("inf")
        self._due = []
        tasks = [*self._threads, *([] if self._round is None else [self._round])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def ask(self, replica: Replica) -> AskedPass:
        """Have a pass over the log made soon, its active segment included. Raises KafkaError."""
        if not self._settings.config.cleaner_enable:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "log.cleaner.enable is false on this node")
        if not replica.config.is_compacted:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "the cleanup.policy of the topic is not compact")
        try:
            replica.log.roll()
        except DiskFullError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return self._wait_for_pass(replica, [])

    def hold(self, replica: Replica) -> bool:
        """Have no pass over the log begin before as many calls of `release`. False: one is under way, and nothing is
        held."""
        if self._is_running(replica):
            return False
        self._held[replica.key] += 1
        return True

    def release(self, replica: Replica) -> None:
        self._held[replica.key] -= 1
        if not self._held[replica.key]:
            del self._held[replica.key]

    def standing(self, replica: Replica) -> Standing:
        """Raises CorruptLogError."""
        return standing_of(
            replica,
            self._replicas.recorded_end(replica),
            self._removable(replica),
            self._logs.get(replica.key),
            is_running=self._is_running(replica),
            is_cleaner_on=self._settings.config.cleaner_enable,
            now=self._loop.time(),
            now_ms=self._replicas.now_ms(),
        )

    def _wait_for_pass(self, replica: Replica, answers: list[Answer]) -> AskedPass:
        """The next one, with others who wait for it."""
        end_offset = replica.log.end_offset
        new = AskedPass(end_offset, self._loop.time() + PATIENCE_S)
        asked = self._asked.setdefault(replica.key, new)
        asked.end_offset = end_offset
        asked.answers += answers
        return asked

    def _answer(self, replica: Replica, result: PassResult | KafkaError) -> None:
        """Of a pass that began after it was asked for."""
        if (asked := self._begun.pop(replica.key, None)) is not None:
            asked.answer(result)

    # -- rounds

    def _tick(self, now: float) -> None:
        if not self._settings.config.cleaner_enable:
            self._tell_cleaner_is_off(now)
            return
        self._due += self._take_asked(now)
        self._start_threads()
        if self._round is None and not self._threads and now >= self._next_round_at:
            self._next_round_at = now + self._settings.config.compaction_interval_ms / 1000
            self._round = self._loop.create_task(self._find_due())
            self._round.add_done_callback(self._round_over)

    def _tell_cleaner_is_off(self, now: float) -> None:
        if now >= self._next_round_at:
            self._next_round_at = now + self._settings.config.compaction_interval_ms / 1000
            for replica in self._replicas.by_key.values():
                replica.bounds.blocked(BlockedBy.CLEANER_OFF, 0)

    def _take_asked(self, now: float) -> list[Replica]:
        """Logs of asked passes that may begin: what was there is committed, and recorded here."""
        ready = []
        for key, asked in list(self._asked.items()):
            replica = self._replicas.by_key.get(key)
            if replica is None:
                del self._asked[key]
                asked.answer(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif key not in self._begun and not self._is_busy(replica) and why_not(replica) is None:
                end_offset = min(replica.high_watermark, self._replicas.recorded_end(replica))
                if end_offset >= asked.end_offset or now >= asked.begins_by:
                    self._begun[key] = self._asked.pop(key)
                    ready.append(replica)
        return ready

    def _start_threads(self) -> None:
        free = self._settings.config.cleaner_threads - len(self._threads)
        for _ in range(min(free, len(self._due))):
            thread = self._loop.create_task(self._clean_due())
            self._threads.add(thread)
            thread.add_done_callback(self._thread_over)

    def _thread_over(self, thread: asyncio.Task[None]) -> None:
        self._threads.discard(thread)
        if not thread.cancelled():
            thread.result()  # a failed disk, or a mistake of ours, ends the node

    def _round_over(self, task: asyncio.Task[None]) -> None:
        self._round = None
        if not task.cancelled():
            task.result()
            self._start_threads()

    async def _find_due(self) -> None:
        by_key = self._replicas.by_key
        self._logs = {key: state for key, state in self._logs.items() if key in by_key}
        found = []
        for count, replica in enumerate(list(by_key.values())):
            state = await self._look_at(replica)
            plan = None if state is None else self._due_plan(replica, state)
            if plan is not None:
                found.append((plan.urgency(is_internal=_is_internal(replica)), replica))
            if count % _PLANS_PER_STEP == 0:
                await asyncio.sleep(0)
        found.sort(key=lambda each: each[0])
        self._due = [replica for _, replica in found] + self._due

    def _is_running(self, replica: Replica) -> bool:
        return replica.log.directory in self._folders

    def _is_busy(self, replica: Replica) -> bool:
        return self._is_running(replica) or replica.key in self._held

    async def _clean_due(self) -> None:
        while self._due:
            replica = self._due.pop()
            state = await self._look_at(replica)
            if self._is_running(replica):
                continue
            if state is not None and replica.key not in self._held:
                folder = replica.log.directory
                self._folders.add(folder)
                await self._clean(replica, state)
                self._folders.discard(folder)
            if (asked := self._begun.pop(replica.key, None)) is not None:
                self._wait_for_pass(replica, asked.answers)  # the log has changed meanwhile: once more

    async def _clean(self, replica: Replica, state: LogCompaction) -> None:
        log = replica.log
        try:
            plan = self._due_plan(replica, state)
            if plan is not None:
                await self._run_pass(replica, plan, state)
                state.failure_count, state.failure = 0, ""
                self._due_plan(replica, state)
        except CorruptLogError as error:
            if replica.is_open and replica.log is log:
                self._replicas.log_corrupt(replica, error)
        except MissingPathError:
            # Retention, a snapshot install or the deletion of the log takes files away. Nobody else may.
            if replica.is_open and not has_its_segments(replica.log):
                raise
        except (DiskFullError, UncleanableError, KeyMapTooSmallError, CleanerDiedError) as error:
            self._failed(replica, state, error)

    def _failed(self, replica: Replica, state: LogCompaction, error: Exception) -> None:
        """It is tried again later, and others go on."""
        wait_s = self._settings.config.cleaner_backoff_ms / 1000 * 2**state.failure_count
        state.failure_count = min(state.failure_count + 1, 32)
        state.retry_at = self._loop.time() + min(wait_s, MAX_BACKOFF_S)
        state.failure = str(error)
        replica.bounds.blocked(BlockedBy.FAILED, replica.bounds.report().dirty_bytes)
        self.totals.failure_count += 1
        logger.error("not compacted", topic=replica.topic, partition=replica.partition, error=str(error))
        self._answer(replica, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    # -- one log

    async def _look_at(self, replica: Replica) -> LogCompaction | None:
        """None: it is not to be compacted. The first time, what is held back is looked for in the log."""
        if (reason := why_not(replica)) is not None:
            replica.bounds.blocked(reason, 0)
            return None
        try:
            search = None if replica.key in self._logs else find_held_back(replica)
            while search is not None:
                next(search)
                await asyncio.sleep(0)
        except StopIteration as found:
            self._logs[replica.key] = LogCompaction(found.value)
        except CorruptLogError as error:
            self._replicas.log_corrupt(replica, error)
        return self._logs.get(replica.key)

    def _due_plan(self, replica: Replica, state: LogCompaction) -> Plan | None:
        """None: no pass is due. What is in its way is told to the leader."""
        is_asked = replica.key in self._begun
        if why_not(replica) is not None or (self._loop.time() < state.retry_at and not is_asked):
            return None
        try:
            replica.prepare_compaction(is_internal=_is_internal(replica))
            facts = log_facts(
                replica,
                cleanable_end(replica, self._replicas.recorded_end(replica)),
                self._removable(replica),
                state.held,
            )
        except DiskFullError as error:
            self._failed(replica, state, error)
            return None
        except CorruptLogError as error:
            self._replicas.log_corrupt(replica, error)
            return None
        plan = make_plan(facts, settings_of(replica.config), self._replicas.now_ms())
        replica.bounds.blocked(blocked_by(plan.obstacle), plan.dirty_bytes)
        if is_asked and plan.first_uncleanable_offset == facts.log_start_offset:
            self._answer(replica, PassResult(0, 0, facts.log_start_offset, 0.0, plan.range_limit.value))
            return None
        return plan if plan.is_due or is_asked else None

    async def _run_pass(self, replica: Replica, plan: Plan, state: LogCompaction) -> None:
        log, config, began_at = replica.log, self._settings.config, self._loop.time()
        aborted = await aborted_below(replica, log, plan.first_uncleanable_offset)
        if aborted is None or replica.log is not log:
            return
        snapshot_offset = log.newest_snapshot_offset(below=self._replicas.recorded_end(replica))
        if snapshot_offset < plan.first_uncleanable_offset:
            return  # an append has removed it meanwhile
        task = cleaning_task(
            replica,
            plan,
            self._removable(replica),
            known_at_snapshot(replica, snapshot_offset),
            aborted,
            now_ms=self._replicas.now_ms(),
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            map_bytes=config.cleaner_dedupe_buffer_bytes // config.cleaner_threads,
        )
        async with aclosing(self._cleaner.clean(task, config.cleaner_io_max_bytes_per_second)) as events:
            async for event in events:
                if not replica.is_open or replica.log is not log:
                    return
                match event:
                    case MapReady(end_offset):
                        state.is_map_full = end_offset < plan.first_uncleanable_offset
                        # What is about to go cannot be replayed, whatever becomes of this pass.
                        if not has_durable_snapshot(log, end_offset, self._replicas.recorded_end(replica)):
                            return  # an append has removed it meanwhile
                        await self._record_rewriting(replica, end_offset)
                    case SegmentReady(bases, aborted_in_segment):
                        if not set(bases) <= {segment.base_offset for segment in log.segments()}:
                            return  # retention has deleted some
                        log.swap(bases, aborted_in_segment)
                    case PassOver(end_offset, free_end, counts):
                        elapsed_s, limit = self._loop.time() - began_at, _limit(plan, state)
                        result = PassResult(counts.bytes_in, counts.bytes_out, end_offset, elapsed_s, limit)
                        replica.bounds.passed(end_offset, free_end, self._replicas.now_ms())
                        self._pass_over(replica, state, counts, result)

    def _removable(self, replica: Replica) -> RemovalBounds:
        return removal_bounds(replica, is_coordinated=not self._settings.config.uncoordinated_compaction)

    async def _record_rewriting(self, replica: Replica, end_offset: int) -> None:
        durable: asyncio.Future[None] = self._loop.create_future()
        # At once: the snapshot that makes up for what goes must not be removed from now on.
        replica.log.rewritten_end = max(replica.log.rewritten_end, end_offset)
        replica.bounds.rewriting_begins(end_offset)
        self._replicas.after_flush(partial(_set_done, durable))
        await durable

    def _pass_over(
        self, replica: Replica, state: LogCompaction, counts: PassCounts, result: PassResult
    ) -> None:
        state.held, state.counts = HeldBack.by(counts), counts
        self.totals.pass_over(result.elapsed_s, result.bytes_before - result.bytes_after)
        remove_needless_snapshots(replica.log)
        logger.info(
            "compacted",
            topic=replica.topic,
            partition=replica.partition,
            cleaned_end=result.cleaned_end,
            bytes_before=result.bytes_before,
            bytes_after=result.bytes_after,
            records_before=counts.records_in,
            records_after=counts.records_out,
            elapsed_s=round(result.elapsed_s, 3),
        )
        self._answer(replica, result)


def _limit(plan: Plan, state: LogCompaction) -> str:
    """Why a pass went no further, where somebody can do something about it."""
    if state.is_map_full:
        return "the key map was full; the next pass goes on"
    return (
        ""
        if plan.range_limit in (Obstacle.NOTHING_DIRTY, Obstacle.ACTIVE_SEGMENT)
        else plan.range_limit.value
    )


def _is_internal(replica: Replica) -> bool:
    return replica.is_metadata or replica.topic in INTERNAL_TOPICS


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():  # the pass was given up meanwhile
        future.set_result(None)
