"""A client with stale metadata: it reads from a deposed leader, and writes to it.

A deposed leader answers until it hears of its successor, or finds that it has no majority. Its answers must be true of
the partition, not only of its own log: they must cover whatever any leader had acknowledged before the request.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from broker.metadata.ids import OFFSETS_TOPIC_NAME
from protocol.errors import ErrorCode
from tests.simulator.client import Client, Leader
from tests.simulator.cluster import CLIENT_PORT, host_of
from tests.simulator.oracle import Oracle
from tests.simulator.workload.batches import acknowledged_by_all, make_records, plain_batch, produce
from tests.simulator.workload.fetching import fetch
from tests.simulator.workload.group_requests import COORDINATOR_RETRIABLE, commit
from tests.simulator.workload.group_requests import fetch as fetch_offsets
from tests.simulator.workload.offsets import EARLIEST, LATEST, ask_where
from tests.simulator.workload.plan import ProducerPlan, TopicPlan
from tests.simulator.workload.producer import Producer
from tests.simulator.workload.retry import READ_RETRIABLE, RETRIABLE

#: Virtual seconds between two looks whether there is a deposed leader.
LOOK_S = 0.05
#: How often a look that finds a deposed leader writes to it, and to its successor; how many batches there are in all.
DEPOSED_SHARE = 0.8
SUCCESSORS_SHARE = 0.4
BATCHES = 60
MAX_BYTES = 4096
#: How often such a look starts a producer that writes to the deposed leader; how many producers there are in all, and
#: how soon each of them retries.
PRODUCERS_SHARE = 0.15
PRODUCERS = 8
RETRIES_S = (0.1, 1.0)
#: Offsets are asked of one of so many latest commits.
LATEST_COMMITS = 4
COMMIT_REFUSALS = COORDINATOR_RETRIABLE | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


Question = Callable[[Leader], Awaitable[None]]


class DeposedLeader(NamedTuple):
    """A node that still serves as the leader, and its successor."""

    topic: str
    leader: Leader
    successor: Leader


class StaleClient:
    """Sends requests for ever, whenever there is a deposed leader, without waiting for earlier answers. It leaves out
    topics that are re-created: a request names a topic, and might reach the next one of that name."""

    def __init__(
        self,
        new_client: Callable[[], Client],
        oracle: Oracle,
        topics: Sequence[TopicPlan],
        deposed: Callable[[], Sequence[DeposedLeader]],
        name: str,
        seed: int,
    ) -> None:
        """`deposed`: the leaders that stale metadata might name now."""
        self._new_client = new_client
        self._client = new_client()
        self._oracle = oracle
        self._topics: Mapping[str, TopicPlan] = {t.name: t for t in topics if not t.is_recreated}
        self._deposed = deposed
        self._name = name
        self._rng = random.Random(seed)
        self._batches = 0
        self._groups = 0
        self._producers = 0
        #: Successors that were written to as soon as they were seen.
        self._written_to: dict[Leader, None] = {}
        #: Requests and producers at work. One that is done was answered correctly, or raises what it has found.
        self._open: dict[asyncio.Task[None], None] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            for task in [task for task in self._open if task.done()]:
                del self._open[task]
                task.result()
            if found := self._deposed():
                deposed = self._rng.choice(found)
                for leader, question in self._questions(deposed):
                    self._open[loop.create_task(self._ask(leader, question))] = None
                topic = self._topics.get(deposed.topic)
                if topic is not None and self._producers < PRODUCERS and self._rng.random() < PRODUCERS_SHARE:
                    self._open[loop.create_task(self._producer(topic, deposed.leader).run())] = None

    def _questions(self, deposed: DeposedLeader) -> Iterator[tuple[Leader, Question]]:
        """The requests of one look, and to whom. By writes, the successor knows what the deposed leader does not."""
        name, leader, successor = deposed
        topic = self._topics.get(name)
        if topic is not None:
            yield leader, partial(self._list, topic)
            yield leader, partial(self._fetch, topic)
            if self._rng.random() < DEPOSED_SHARE:
                yield leader, partial(self._write, topic, self._rng.choice((-1, 1)))
            if successor not in self._written_to or self._rng.random() < SUCCESSORS_SHARE:
                self._written_to[successor] = None
                yield successor, partial(self._write, topic, -1)
        elif name == OFFSETS_TOPIC_NAME:
            yield leader, self._fetch_offsets
            if self._topics and self._rng.random() < SUCCESSORS_SHARE:
                yield successor, self._commit

    async def _ask(self, leader: Leader, question: Question) -> None:
        self._client.learn_address(leader.node_id, (host_of(leader.node_id), CLIENT_PORT))
        try:
            await question(leader)
        except (OSError, TimeoutError):
            return

    async def _list(self, topic: TopicPlan, leader: Leader) -> None:
        """Where the partition ends, mostly."""
        timestamp = self._rng.choice((LATEST, LATEST, EARLIEST))
        await ask_where(self._client, self._oracle, topic.name, leader, timestamp)

    async def _fetch(self, topic: TopicPlan, leader: Leader) -> None:
        """At the offset of a reader that has read all that was acknowledged."""
        oracle, key = self._oracle, leader.key
        floor, promised = oracle.watermarks.floor(key, leader.epoch), oracle.latest.floor(key)
        data = await fetch(self._client, leader, promised, epoch=leader.epoch, max_bytes=MAX_BYTES)
        code = ErrorCode(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            assert topic.loses_records, f"{key}: {promised} is out of range, acknowledged was all below it"
        elif code is ErrorCode.NONE:
            oracle.latest.check_committed(key, data.high_watermark)
            oracle.watermarks.shown(
                key, leader.epoch, floor, log_start=data.log_start_offset, high_watermark=data.high_watermark
            )
        else:
            assert code in READ_RETRIABLE, code

    async def _write(self, topic: TopicPlan, acks: int, leader: Leader) -> None:
        """Send a batch once. It may get lost, unless it is acknowledged with acks=all."""
        if self._batches == BATCHES:
            return
        self._batches += 1
        batch = plain_batch(make_records(self._rng, topic, self._name, self._batches))
        connection, partition = await self._client.broker(leader.node_id), leader.key.partition
        answer = await produce(connection, self._oracle, topic.name, partition, acks, batch)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            self._oracle.once.told(batch.digest, answer.base_offset)
            if acks == -1:
                acknowledged_by_all(self._oracle, topic, partition, answer.base_offset, batch)
        else:
            assert code in RETRIABLE, code

    def _producer(self, topic: TopicPlan, leader: Leader) -> Producer:
        """An idempotent producer that sends to this leader first. It retries slowly, perhaps when the same node leads
        again."""
        self._producers += 1
        client, partition = self._new_client(), leader.key.partition
        client.learn_address(leader.node_id, (host_of(leader.node_id), CLIENT_PORT))
        client.learn_leader(topic.name, leader)
        plan = ProducerPlan(
            topic,
            partition,
            is_idempotent=True,
            acks=-1,
            batches=2,
            mean_pause_s=LOOK_S,
            retry_s=self._rng.uniform(*RETRIES_S),
            delivery_timeout_s=math.inf,
            seed=self._rng.getrandbits(64),
        )
        return Producer(client, self._oracle, f"{self._name}-{self._producers}", plan)

    async def _commit(self, leader: Leader) -> None:
        """Once, for a group of its own: the outcome does not matter. Another node may coordinate that group."""
        self._groups += 1
        group, place = f"{self._name}-{self._groups}", (next(iter(self._topics)), 0)
        code = await commit(await self._client.broker(leader.node_id), self._oracle, group, {place: 1})
        assert code is ErrorCode.NONE or code in COMMIT_REFUSALS, code

    async def _fetch_offsets(self, leader: Leader) -> None:
        """Of a group with a recent commit. A node that does not coordinate it answers so."""
        places = self._oracle.offsets.places[-LATEST_COMMITS:]
        if places:
            group, topic, partition = self._rng.choice(places)
            connection = await self._client.broker(leader.node_id)
            code, _ = await fetch_offsets(connection, self._oracle, group, [(topic, partition)])
            assert code is ErrorCode.NONE or code in COORDINATOR_RETRIABLE, code
