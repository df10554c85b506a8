"""Liveness: what a cluster owes as soon as everything is healed, and by when (style.md section 3.2, rule 6).

A death is noticed at once, silence within two election timeouts, and what was dialled into silence is dialled again
after a second (replication.md section 5, broker.network.peers). The limits leave one election more than that. The
longest times of some 1,500 seeds were 2.3 s and 2.5 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from broker.metadata.ids import INTERNAL_TOPICS
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import AlterClientQuotasResponse
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.builder import NewRecord, build_batch
from tests.simulator.client import Client
from tests.simulator.clock import EPOCH_MS
from tests.simulator.cluster import CLIENT_PORT, SimulatedCluster, host_of
from tests.simulator.faults.quotas import no_quotas
from tests.simulator.workload.retry import RETRIABLE, RETRY_S

#: Virtual seconds from healing until every partition has a leader that serves.
LEADERS_LIMIT_S = 4.0
#: ... until a topic was created, and every partition that there is was written to.
WRITES_LIMIT_S = 5.0
#: How often it is looked whether a stage is reached.
LOOK_S = 0.1

NEW_TOPIC = "after-healing"
ALTER_QUOTAS_VERSION = 1
CREATE_TOPICS_VERSION = 5
PRODUCE_VERSION = 11


class NoProgressError(AssertionError):
    """A healed cluster did not do in time what it owes."""


class ProgressDemand:
    """The way of a healed cluster through its stages; `reached_s` says how long after healing it reached each."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.reached_s: dict[str, float] = {}
        self._cluster = cluster
        self._writer = Writer(cluster)

    def run(self, run_until: Callable[[float], None]) -> None:
        """`run_until`: have the world go on until then, and look at it. Raises NoProgressError."""
        start_s = self._cluster.loop.time()
        for what, limit_s, is_reached in self._stages():
            while not is_reached():
                if (now_s := self._cluster.loop.time()) > start_s + limit_s:
                    raise NoProgressError(self._report(what, limit_s))
                run_until(now_s + LOOK_S)
            self.reached_s[what] = round(self._cluster.loop.time() - start_s, 3)

    def _stages(self) -> Iterator[tuple[str, float, Callable[[], bool]]]:
        yield "a leader of every partition", LEADERS_LIMIT_S, self._is_led
        self._writer.start()
        yield "a write to every partition", WRITES_LIMIT_S, self._writer.is_done

    def _is_led(self) -> bool:
        hosted = self._cluster.hosted()
        return bool(hosted) and all(
            any(replica.is_serving for replica in self._cluster.holders(key).values()) for key in hosted
        )

    def _report(self, what: str, limit_s: float) -> str:
        lines = [f"no progress: {limit_s} s after healing there is not {what}; until then {self.reached_s}"]
        return "\n".join([*lines, *self._writer.describe(), *self._cluster.describe()])


class Writer:
    """Creates a topic, and writes one batch into every partition that there is then, acks=all. Quotas are taken back
    before: under one, a client may have to go on for longer than it is waited for (seed 1071564784523)."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        #: What is still to be written to, and why it is not yet.
        self._left: dict[tuple[str, int], str] = {}
        self._work: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._work = self._cluster.loop.start_process("writer").create_task(self._run())

    def is_done(self) -> bool:
        if self._work is None or not self._work.done():
            return False
        self._work.result()
        return True

    def describe(self) -> list[str]:
        return [f"not written to {topic}-{number}: {why}" for (topic, number), why in self._left.items()]

    async def _run(self) -> None:
        self._left[NEW_TOPIC, 0] = "not tried"
        await self._repeat(NEW_TOPIC, 0, self._create)
        await self._repeat(NEW_TOPIC, 0, self._lift_quotas)
        images = [node.metadata.image for node in self._cluster.nodes.values() if node.ready.is_set()]
        newest = max(images, key=lambda image: image.end_offset)
        for topic in newest.topics.values():
            if topic.name in INTERNAL_TOPICS:
                continue  # nobody may write there; groups do, and have to get done
            for number in range(len(topic.partitions)):
                self._left[topic.name, number] = "not tried"
        await asyncio.gather(*(self._repeat(*partition, self._write) for partition in list(self._left)))
        self._left.clear()

    async def _repeat(
        self, topic: str, partition: int, attempt: Callable[[Client, str, int], Coroutine[Any, Any, int]]
    ) -> None:
        """Until the answer is no error, as a client of its own."""
        nodes = [(host_of(node_id), CLIENT_PORT) for node_id in self._cluster.node_ids]
        client = Client(self._cluster.network.of("writer"), nodes)
        while True:
            try:
                code = ErrorCode(await attempt(client, topic, partition))
                if code is ErrorCode.NONE:
                    return
                assert code in RETRIABLE, code
                why = code.name
            except (OSError, TimeoutError) as error:
                why = repr(error)
            self._left[topic, partition] = why
            await asyncio.sleep(RETRY_S)

    async def _create(self, client: Client, name: str, _: int) -> int:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
        body = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
        connection = await client.any_broker()
        answer = await connection.request(
            ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, body, CreateTopicsResponse
        )
        code = answer.topics[0].error_code
        # The answer to an earlier attempt may be lost.
        return ErrorCode.NONE if code == ErrorCode.TOPIC_ALREADY_EXISTS else code

    async def _lift_quotas(self, client: Client, _: str, __: int) -> int:
        connection = await client.any_broker()
        answer = await connection.request(
            ApiKey.ALTER_CLIENT_QUOTAS, ALTER_QUOTAS_VERSION, no_quotas(), AlterClientQuotasResponse
        )
        return max(entry.error_code for entry in answer.entries)

    async def _write(self, client: Client, topic: str, partition: int) -> int:
        described = await client.metadata(topic)
        leaders = [x.leader_id for x in described.partitions if x.partition_index == partition]
        if not leaders or leaders[0] < 0:
            return described.error_code or ErrorCode.LEADER_NOT_AVAILABLE
        now_ms = EPOCH_MS + int(self._cluster.loop.time() * 1000)
        # With a key: topics that are compacted take no other records.
        batch = build_batch([NewRecord(b"probe", f"written to {topic}-{partition}".encode(), now_ms)])
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        body = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        connection = await client.broker(leaders[0])
        answer = await connection.request(ApiKey.PRODUCE, PRODUCE_VERSION, body, ProduceResponse)
        return answer.responses[0].partition_responses[0].error_code
