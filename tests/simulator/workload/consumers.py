"""Members of a group whose partitions the broker assigns (the consumer protocol, KIP-848), and who commit in it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from typing import TypeVar
from uuid import UUID

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedTopicPartitions,
)
from tests.simulator.client import Client, Connection
from tests.simulator.oracle import Oracle
from tests.simulator.workload.group_requests import COORDINATOR_RETRIABLE, Place, commit, fetch
from tests.simulator.workload.members import MEAN_ABSENCE_S, MEAN_LIFE_S, MEAN_PAUSE_S, Group
from tests.simulator.workload.retry import RETRY_S

R = TypeVar("R")

HEARTBEAT_VERSION = 1
#: The nodes' group.consumer.session.timeout.ms (tests.simulator.cluster).
SESSION_S = 1.0
#: Above the time after which a client gives up on an answer: what was to be given up is given up by then.
REBALANCE_TIMEOUT_MS = 5000
#: What ends a membership, and everything that was owned with it.
PUT_OUT = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
)
#: A commit that has to wait until the member knows its epoch, or its topic is known.
COMMIT_LATER = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class Consumer:
    """One life after the other, each under an id of its own, until its group has done its work.

    What it owns it works on until it is told to give it up, is put out, or may have been: its session counts from the
    moment at which it sent the last heartbeat that was answered, that by which it joins included. An answer that was
    so long under way gives it nothing: its partitions may be somebody else's by now.
    """

    def __init__(self, client: Client, oracle: Oracle, group: Group, name: str, seed: int) -> None:
        self._client = client
        self._oracle = oracle
        self._group = group
        self._name = name
        self._rng = random.Random(seed)
        self._lives = 0
        self._met = ""
        self._epoch = 0
        self._session_ends_s: float | None = None
        """None: it is no member, and has not asked to be one."""
        #: Where it goes on, for everything that it owns.
        self._offsets: dict[Place, int] = {}
        #: What it owns is not what it said last.
        self._has_news = False
        self._topics: dict[UUID, str] = {}

    @property
    def _member_id(self) -> str:
        return f"{self._name}-{self._lives}"

    @property
    def _group_id(self) -> str:
        return self._group.plan.name

    def describe(self) -> str:
        owned = sorted(self._offsets)
        return f"{self._member_id} in {self._epoch} with {owned}: {self._met}, {self._group.acknowledged}"

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._group.is_done:
            self._lives += 1
            try:
                await self._live(loop.time() + self._rng.expovariate(1 / MEAN_LIFE_S))
                if self._rng.random() < 0.5:
                    self._give_up(set(self._offsets))
                    await self._heartbeat(leaves=True)
            except (OSError, TimeoutError) as error:
                # What was on its way may arrive late, behind what this member would send next. So it is not heard of
                # any more, and somebody else joins.
                self._met = repr(error)
                self._client.forget_coordinator(self._group_id)
            self._is_no_member()
            await asyncio.sleep(self._rng.expovariate(1 / MEAN_ABSENCE_S))

    async def _live(self, ends_s: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < ends_s and not self._group.is_done:
            if self._epoch == 0 or not self._offsets or self._rng.random() < 0.5:
                await self._heartbeat()
            else:
                await self._commit()
            pause_s = RETRY_S if self._epoch == 0 else self._rng.expovariate(1 / MEAN_PAUSE_S)
            await self._in_session(asyncio.sleep(pause_s))

    async def _in_session(self, work: Awaitable[R]) -> R:
        """Raises TimeoutError when the session may be over."""
        async with asyncio.timeout_at(self._session_ends_s):
            return await work

    # -- heartbeats ----------------------------------------------------------------------------------------

    async def _heartbeat(self, *, leaves: bool = False) -> None:
        sent_s = asyncio.get_running_loop().time()
        joins = self._epoch == 0
        if joins:
            self._session_ends_s = sent_s + SESSION_S
        body = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=-1 if leaves else self._epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=sorted({topic for topic, _ in self._group.places}) if joins else None,
            topic_partitions=self._owned() if joins or self._has_news else None,
        )
        connection = await self._in_session(self._coordinator())
        if connection is None:
            return
        answer = await self._in_session(
            connection.request(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, HEARTBEAT_VERSION, body, ConsumerGroupHeartbeatResponse
            )
        )
        code = ErrorCode(answer.error_code)
        self._met = code.name
        if code in COORDINATOR_RETRIABLE:
            self._client.forget_coordinator(self._group_id)
        elif code in PUT_OUT:
            self._is_no_member()
        else:
            assert code is ErrorCode.NONE, code
            if not leaves:
                await self._take(answer, sent_s)

    def _owned(self) -> list[OwnedTopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._topics.items()}
        numbers: dict[str, list[int]] = {}
        for topic, number in sorted(self._offsets):
            numbers.setdefault(topic, []).append(number)
        return [OwnedTopicPartitions(topic_id=ids[name], partitions=found) for name, found in numbers.items()]

    async def _take(self, answer: ConsumerGroupHeartbeatResponse, sent_s: float) -> None:
        assert answer.member_epoch >= self._epoch, "member epochs only rise"
        self._epoch = answer.member_epoch
        self._session_ends_s = sent_s + SESSION_S
        self._has_news = False
        if answer.assignment is None:
            return
        wanted = [(x.topic_id, number) for x in answer.assignment.topic_partitions for number in x.partitions]
        places = {(await self._name_of(topic_id), number) for topic_id, number in wanted}
        lost, new = self._offsets.keys() - places, places - self._offsets.keys()
        self._has_news = bool(lost or new)
        self._give_up(lost)
        for place in sorted(new):
            self._oracle.workers.takes((self._group_id, *place), self._member_id)
            self._offsets[place] = -1
        for place in sorted(new):
            await self._find_out(place)

    def _is_no_member(self) -> None:
        self._give_up(set(self._offsets))
        self._epoch = 0
        self._session_ends_s = None

    def _give_up(self, places: set[Place]) -> None:
        for place in sorted(places):
            self._oracle.workers.gives_up((self._group_id, *place), self._member_id)
            del self._offsets[place]

    async def _name_of(self, topic_id: UUID) -> str:
        while topic_id not in self._topics:
            for name in sorted({topic for topic, _ in self._group.places}):
                topic = await self._in_session(self._client.metadata(name))
                self._topics[topic.topic_id] = name
        return self._topics[topic_id]

    # -- offsets -------------------------------------------------------------------------------------------

    async def _find_out(self, place: Place) -> None:
        """Where the one before has stopped. Not known: this one asks again when it commits."""
        connection = await self._in_session(self._coordinator())
        if connection is None:
            return
        code, found = await self._in_session(fetch(connection, self._oracle, self._group_id, [place]))
        if code is ErrorCode.NONE:
            self._offsets[place] = max(found[place], 0)
        else:
            assert code in COORDINATOR_RETRIABLE, code
            self._client.forget_coordinator(self._group_id)

    async def _commit(self) -> None:
        place = self._rng.choice(self._group.due(self._offsets))
        if self._offsets[place] < 0:
            await self._find_out(place)
            return
        following = self._offsets[place] + self._rng.randint(1, 3)
        connection = await self._in_session(self._coordinator())
        if connection is None:
            return
        code = await self._in_session(
            commit(
                connection,
                self._oracle,
                self._group_id,
                {place: following},
                member_id=self._member_id,
                generation=self._epoch,
            )
        )
        self._met = code.name
        if code is ErrorCode.NONE:
            self._offsets[place] = following
            acknowledged = self._group.acknowledged
            acknowledged[place] = max(acknowledged.get(place, -1), following)
        elif code in COORDINATOR_RETRIABLE:
            self._client.forget_coordinator(self._group_id)
            self._offsets[place] = -1  # it may have taken effect
        elif code in PUT_OUT:
            self._is_no_member()
        else:
            assert code in COMMIT_LATER, code

    async def _coordinator(self) -> Connection | None:
        return await self._client.coordinator(self._group_id)
