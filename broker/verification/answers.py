"""Digests for the leaders that ask for them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from broker.replication.digest_state import DigestState
from broker.replication.replica import Replica
from broker.scheduling.ticks import Ticks
from broker.verification.own_digest import DigestMaker, raise_failure
from broker.verification.results import Answer, Question
from protocol import peer
from raft.types import ReplicaId
from storage.compaction.view_digest import OffsetRange, RangeDigest
from storage.log_types import GroupKey

TICK_S = 1.0
#: A leader repeats its question more often than this. Who does not has given it up.
ABANDONED_S = 30.0


@dataclass
class _Asked:
    key: GroupKey
    leader: ReplicaId
    term: int
    number: int
    asked_at: float
    answer: Answer = DigestState.MAKING
    task: asyncio.Task[None] | None = None

    def is_about(self, replica: Replica, leader: ReplicaId, message: peer.DigestRequest) -> bool:
        return (self.key, self.leader, self.term, self.number) == (
            replica.key,
            leader,
            message.term,
            message.number,
        )


class DigestAnswers:
    """Of one node. For each leader it makes one digest in the background and one for users at a time, because a leader
    does not ask for more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, maker: DigestMaker, ticks: Ticks) -> None:
        self._loop = loop
        self._maker = maker
        #: By the leader's node and whether it is in the background. What was answered stays: the answer may be lost.
        self._asked: dict[tuple[int, bool], _Asked] = {}
        ticks.every(TICK_S, self._tick)

    def requested(self, replica: Replica, leader: ReplicaId, message: peer.DigestRequest) -> None:
        """By whoever leads this replica's group, or did."""
        group = replica.group
        if message.term != group.term or leader != group.leader:
            return
        place = leader.node_id, message.is_background
        asked = self._asked.get(place)
        if asked is not None and asked.is_about(replica, leader, message):
            asked.asked_at = self._loop.time()
            if asked.answer is DigestState.MAKING or isinstance(asked.answer, RangeDigest):
                self._reply(replica, asked)
                return
        if asked is not None:
            self._discard(place)
        asked = _Asked(replica.key, leader, message.term, message.number, self._loop.time())
        question = Question(
            OffsetRange(message.start_offset, message.end_offset),
            OffsetRange(message.focus_start, message.focus_end),
            message.is_by_key,
            message.is_background,
        )
        obstacle = self._maker.obstacle(replica, question)
        if obstacle is not None:
            asked.answer = obstacle
            self._reply(replica, asked)
            return
        self._asked[place] = asked
        asked.task = self._loop.create_task(self._make(replica, question, asked))
        asked.task.add_done_callback(raise_failure)

    async def stop(self) -> None:
        tasks = [asked.task for asked in self._asked.values() if asked.task is not None]
        for place in list(self._asked):
            self._discard(place)
        if tasks:
            await asyncio.wait(tasks)

    async def _make(self, replica: Replica, question: Question, asked: _Asked) -> None:
        asked.answer = await self._maker.make(replica, question)
        self._reply(replica, asked)

    def _reply(self, replica: Replica, asked: _Asked) -> None:
        if not replica.is_open or replica.group.term != asked.term:
            return  # this leader's term is over
        answer = asked.answer
        self._maker.replicas.send(
            asked.leader,
            peer.DigestReply(
                topic_id=replica.key.topic_id,
                partition=replica.key.partition,
                incarnation=replica.group.self_id.incarnation,
                term=asked.term,
                number=asked.number,
                state=DigestState.READY if isinstance(answer, RangeDigest) else answer,
                log_start=replica.log.start_offset,
                digest=answer.encode() if isinstance(answer, RangeDigest) else b"",
            ),
        )

    def _tick(self, now: float) -> None:
        for place, asked in list(self._asked.items()):
            if now >= asked.asked_at + ABANDONED_S:
                self._discard(place)

    def _discard(self, place: tuple[int, bool]) -> None:
        task = self._asked.pop(place).task
        if task is not None:
            task.cancel()
