"""When which partition is compared, for whom, and what is said of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from itertools import count
from typing import NamedTuple

import structlog

from broker.replication.events import ReplicaEvents
from broker.replication.messages import GroupMessages
from broker.replication.replica import Replica
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from broker.verification.answers import DigestAnswers
from broker.verification.comparison import PATIENCE_S, Asking, Comparison
from broker.verification.own_digest import DigestMaker, raise_failure
from broker.verification.results import Compared, NotComparedError, Outcome, Question
from protocol import peer
from protocol.errors import ErrorCode, KafkaError
from raft.types import ReplicaId
from storage.log_types import GroupKey

logger = structlog.get_logger()

#: In the background, a node begins no more than one comparison in this time, unless the interval is shorter. Each
#: takes a process on each node.
MIN_PAUSE_S = 10.0
#: When the first one begins after a start.
FIRST_S = 60.0
#: How often is looked whether a pass of compaction is over.
HOLD_RETRY_S = 0.1

#: Questions of users that may wait for the comparison of one partition.
MAX_WAITING = 100


class _Asker(NamedTuple):
    answered: Callable[[Compared | NotComparedError], None]
    """Called once: what was found, or why nothing was compared."""
    is_gone: Callable[[], bool]


class ReplicaVerifier:
    """Of one node: compares the partitions that it leads, and answers other leaders."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        messages: GroupMessages,
        events: ReplicaEvents,
        maker: DigestMaker,
        alive: Callable[[], Collection[int]],
        ticks: Ticks,
    ) -> None:
        """`alive`: the nodes that are there."""
        self._loop = loop
        self._events = events
        self._maker = maker
        self._alive = alive
        self._answers = DigestAnswers(loop, maker, ticks)
        messages.on_digest_request.append(self._answers.requested)
        messages.on_digest_reply.append(self._replied)
        #: Comparisons since this node was started, ...
        self.outcomes: Counter[Outcome] = Counter()
        #: ... and how often a replica was found to differ from this one.
        self.mismatches: Counter[GroupKey] = Counter()
        self._numbers = count(1)
        self._asking: dict[int, Asking] = {}
        #: Those that users wait for, in order, and who does: MAX_WAITING at most for each.
        self._asked: dict[Replica, list[_Asker]] = {}
        self._for_users: asyncio.Task[object] | None = None
        #: Partitions that this round has yet to compare.
        self._round: list[Replica] = []
        self._in_background: asyncio.Task[object] | None = None
        #: How many partitions it had. 0: there was none yet.
        self._round_size = 0
        self._last_at = loop.time()
        ticks.every(SLOW_TICK_S, self._tick)

    @property
    def _pause_s(self) -> float | None:
        """Between two in the background. None: nothing is compared there."""
        interval_s = self._maker.settings.config.verify_interval_ms / 1000
        if not interval_s:
            return None
        if not self._round_size:
            return min(FIRST_S, interval_s)
        return max(interval_s / self._round_size, min(MIN_PAUSE_S, interval_s))

    def ask(
        self,
        replica: Replica,
        answered: Callable[[Compared | NotComparedError], None],
        is_gone: Callable[[], bool],
    ) -> None:
        """Compare this partition soon: once for all who have asked by then, and not if they are gone. The node has to
        lead it. Raises POLICY_VIOLATION if too many wait for it."""
        askers = self._asked.setdefault(replica, [])
        if len(askers) >= MAX_WAITING:
            askers[:] = [asker for asker in askers if not asker.is_gone()]
        if len(askers) >= MAX_WAITING:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{MAX_WAITING} questions wait for it already")
        askers.append(_Asker(answered, is_gone))

    async def stop(self) -> None:
        tasks = [task for task in (self._for_users, self._in_background) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._answers.stop()

    # -- when

    def _tick(self, now: float) -> None:
        if self._asked and _is_over(self._for_users):
            self._for_users = self._start(self._compare_asked())
        pause_s = self._pause_s
        if pause_s is not None and _is_over(self._in_background) and now >= self._last_at + pause_s:
            self._last_at = now
            replica = self._next_in_background()
            if replica is not None:
                self._in_background = self._start(self._compare(replica, is_background=True))

    def _start(self, work: Coroutine[None, None, object]) -> asyncio.Task[object]:
        task = self._loop.create_task(work)
        task.add_done_callback(raise_failure)
        return task

    def _next_in_background(self) -> Replica | None:
        if not self._round:
            self._round = [
                replica
                for replica in self._maker.replicas.by_key.values()
                if replica.is_serving and len(replica.group.configuration.voters) > 1
            ]
            self._round_size = len(self._round)
            # A node that is started again and again does not always begin with the same ones.
            self._maker.rng.shuffle(self._round)
        while self._round:
            replica = self._round.pop()
            if replica.is_open and replica.is_serving:
                return replica
        return None

    async def _compare_asked(self) -> None:
        while self._asked:
            replica = next(iter(self._asked))
            askers = self._asked.pop(replica)
            if all(asker.is_gone() for asker in askers):
                continue
            result = await self._compare(replica, is_background=False)
            for asker in askers:
                asker.answered(result)

    # -- one comparison

    async def _compare(self, replica: Replica, *, is_background: bool) -> Compared | NotComparedError:
        try:
            await self._hold(replica)
            try:
                comparison = Comparison(
                    self._loop,
                    replica,
                    self._maker,
                    self._alive,
                    self._begin,
                    self._end,
                    is_background=is_background,
                )
                compared = await comparison.run()
            finally:
                self._maker.compaction.release(replica)
        except NotComparedError as error:
            self.outcomes[Outcome.FAILED] += 1
            return error
        self._report(replica, compared)
        return compared

    async def _hold(self, replica: Replica) -> None:
        """Have no pass of compaction begin. Raises NotComparedError."""
        ends_at = self._loop.time() + PATIENCE_S
        while not self._maker.compaction.hold(replica):
            if self._loop.time() >= ends_at:
                raise NotComparedError("a pass of compaction is under way")
            await asyncio.sleep(HOLD_RETRY_S)

    def _begin(self, replica: Replica, question: Question, members: Sequence[ReplicaId]) -> Asking:
        number = next(self._numbers)
        asking = self._asking[number] = Asking(replica, number, question, members)
        return asking

    def _end(self, asking: Asking) -> None:
        del self._asking[asking.number]

    def _replied(self, replica: Replica, member: ReplicaId, message: peer.DigestReply) -> None:
        """Raises ProtocolError."""
        asking = self._asking.get(message.number)
        if asking is not None and asking.replica is replica:
            asking.replied(member, message)

    def _report(self, replica: Replica, compared: Compared) -> None:
        """A difference is told, and nothing is done about it: nobody here knows which of the replicas is right."""
        self.outcomes[compared.outcome] += 1
        for node_id, difference in compared.differing:
            self.mismatches[replica.key] += 1
            logger.error(
                "replicas differ",
                topic=replica.topic,
                partition=replica.partition,
                leader=replica.group.self_id.node_id,
                broker=node_id,
                first_offset=difference.offsets.start,
                end_offset=difference.offsets.end,
                records_of_leader=difference.records_here,
                records_of_broker=difference.records_there,
                alike={member.node_id: member.like for member in compared.members if member.like >= 0},
                compared_from=compared.view.start,
                compared_below=compared.view.end,
            )
            for differ in self._events.differ:
                differ(replica, node_id, difference.offsets)


def _is_over(task: asyncio.Task[object] | None) -> bool:
    return task is None or task.done()
