"""Producers without sequences, with any acks: retries may double a batch, and acks below all may lose it."""

from __future__ import annotations

import asyncio
import random

from protocol.errors import ErrorCode
from protocol.records.builder import NewRecord
from tests.simulator.client import Client
from tests.simulator.oracle import Oracle
from tests.simulator.workload.batches import (
    Batch,
    acknowledged_by_all,
    make_records,
    pause_s,
    plain_batch,
    produce,
    produce_unanswered,
    unreadable_batch,
)
from tests.simulator.workload.plan import MAX_MESSAGE_BYTES, ProducerPlan
from tests.simulator.workload.retry import RETRIABLE

#: How often a batch is one that must be refused, whatever happens.
SPOILED_SHARE = 0.1
#: A batch that can only be refused is not worth more time than this.
SPOILED_TIMEOUT_S = 1.0
_EXPECTED_REFUSALS = frozenset(
    {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE}
)


class PlainProducer:
    """acks=-1: retried until acknowledged or given up. 1: the same, and what is acknowledged may be lost with the
    leader (not where there is, at all times, one replica). 0: sent once, never answered."""

    def __init__(
        self, client: Client, oracle: Oracle, name: str, plan: ProducerPlan, *, is_kept: bool
    ) -> None:
        """`is_kept`: what is acknowledged is never lost. With acks=1 that is so where the leader's flush is all that a
        commit takes: one replica, and at no time another one beside it."""
        self._client = client
        self._oracle = oracle
        self._name = name
        self._plan = plan
        self._is_kept = is_kept
        self._rng = random.Random(plan.seed)
        self.last_error = "none yet"

    def describe(self) -> str:
        return f"{self._name}, acks {self._plan.acks}: {self.last_error}"

    async def run(self) -> None:
        made = 0
        while made < self._plan.batches:
            count = min(self._rng.randint(1, 3), self._plan.batches - made)
            batches = [self._make(made + number) for number in range(count)]
            made += count
            await asyncio.gather(*(self._deliver(batch, is_spoiled) for batch, is_spoiled in batches))
            await asyncio.sleep(pause_s(self._rng, self._plan.mean_pause_s))

    def _make(self, number: int) -> tuple[Batch, bool]:
        """A batch, and whether it is one that has to be refused."""
        records = make_records(self._rng, self._plan.topic, self._name, number)
        if self._rng.random() >= SPOILED_SHARE:
            return plain_batch(records), False
        kinds = ["too large", "unreadable", "damaged"]
        if self._plan.topic.is_compacted:
            kinds.append("without a key")
        kind = self._rng.choice(kinds)
        if kind == "too large":
            return plain_batch(
                [*records, NewRecord(None, self._rng.randbytes(MAX_MESSAGE_BYTES), records[0].timestamp_ms)]
            ), True
        if kind == "without a key":
            return plain_batch([*records, records[0]._replace(key=None)]), True
        if kind == "unreadable":
            return unreadable_batch(self._rng, records), True
        data = bytearray(plain_batch(records).data)
        data[-1] ^= 1
        return Batch(records, bytes(data)), True

    async def _deliver(self, batch: Batch, is_spoiled: bool) -> None:
        """Until it is acknowledged, refused or given up."""
        loop = asyncio.get_running_loop()
        timeout_s = SPOILED_TIMEOUT_S if is_spoiled else self._plan.delivery_timeout_s
        while loop.time() - batch.made_s <= timeout_s:
            try:
                if await self._try(batch, is_spoiled):
                    return
            except (OSError, TimeoutError) as error:
                self._failed(repr(error))
            await asyncio.sleep(self._plan.retry_s)

    def _failed(self, error: str) -> None:
        self.last_error = error
        self._client.forget(self._plan.topic.name, self._plan.partition)

    async def _try(self, batch: Batch, is_spoiled: bool) -> bool:
        """Whether that is the end of it."""
        topic, partition = self._plan.topic.name, self._plan.partition
        leader = await self._client.leader(topic, partition)
        if leader is None:
            self._failed("metadata: no leader")
            return False
        connection = await self._client.broker(leader.node_id)
        if self._plan.acks == 0:
            produce_unanswered(connection, self._oracle, topic, partition, batch)
            return True
        answer = await produce(connection, self._oracle, topic, partition, self._plan.acks, batch)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            assert not is_spoiled, f"{self._name}: a batch was taken that must be refused"
            self._acknowledged(batch, answer.base_offset)
            return True
        if is_spoiled and code in _EXPECTED_REFUSALS:
            return True
        assert code in RETRIABLE, code
        self._failed(code.name)
        return False

    def _acknowledged(self, batch: Batch, base_offset: int) -> None:
        if batch.requests == 1:
            self._oracle.once.told(batch.digest, base_offset)
        if self._plan.acks == -1:
            acknowledged_by_all(self._oracle, self._plan.topic, self._plan.partition, base_offset, batch)
        elif self._is_kept:
            self._oracle.acknowledged.told(self._plan.partition, base_offset, batch.digest)
