"""How transactional producers ask coordinators, and write to partitions. What follows from an error is up to them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceResponse
from protocol.records.builder import NewRecord, build_batch
from protocol.schema import Message
from tests.simulator.client import TRANSACTIONAL_ID, Client, Connection
from tests.simulator.clock import EPOCH_MS
from tests.simulator.invariants.fenced_never_writes import NOBODY, Owner
from tests.simulator.invariants.transactions_are_atomic import Transaction
from tests.simulator.oracle import Oracle
from tests.simulator.workload import transaction_requests as requests
from tests.simulator.workload.batches import Batch, acknowledged_by_all, produce, produce_request
from tests.simulator.workload.keyed import keyed_records
from tests.simulator.workload.plan import TopicPlan, TransactionalPlan
from tests.simulator.workload.retry import RETRY_S
from tests.simulator.workload.transaction_requests import VERSIONS, AbortableError

#: How often a batch comes again later, and how often one comes when its producer has given it up.
LATE_SHARE = 0.15
GIVEN_UP_SHARE = 0.04
#: Virtual seconds until something late is sent, at most.
LATE_S = 0.8
#: Virtual seconds after which a producer gives up what it cannot write.
GIVE_UP_S = 1.5


class TransactionalWriter:
    """What a producer has under the epoch that it has now."""

    def __init__(
        self, client: Client, oracle: Oracle, plan: TransactionalPlan, version: int, seed: int
    ) -> None:
        """`version`: transaction.version."""
        self._client = client
        self._oracle = oracle
        self._plan = plan
        self._versions = VERSIONS[version]
        self._rng = random.Random(seed)
        self._owner = NOBODY
        self._sequences: dict[tuple[TopicPlan, int], int] = {}
        #: (producer id, topic, partition) that have acknowledged something. An unknown id may begin with any sequence,
        #: so one batch is in flight before that.
        self._known: set[tuple[int, TopicPlan, int]] = set()
        #: Something was given up that may still be written: the epoch has to rise.
        self._is_in_doubt = False
        self._late: list[asyncio.Task[None]] = []
        self.last_error = "none yet"

    def _begin(self, owner: Owner) -> None:
        if owner != self._owner:
            self._owner = owner
            self._sequences.clear()

    # -- asking --------------------------------------------------------------------------------------------

    async def _coordinator(self, key_type: int) -> Connection | None:
        """None: nobody knows it now."""
        return await self._client.coordinator(self._key(key_type), key_type)

    def _key(self, key_type: int) -> str:
        if key_type == TRANSACTIONAL_ID:
            return self._plan.transactional_id
        assert self._plan.group is not None
        return self._plan.group

    async def _ask(
        self, key_type: int, question: Callable[[Connection], Awaitable[int]], limit_s: float = GIVE_UP_S
    ) -> None:
        """Ask a coordinator until it has done it. Raises FencedError, AbortableError, the latter also when it takes too
        long."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + limit_s
        while True:
            try:
                connection = await self._coordinator(key_type)
                if connection is not None:
                    code = await question(connection)
                    if not requests.must_ask_again(code):
                        return
                    self.last_error = ErrorCode(code).name
                    if code != ErrorCode.CONCURRENT_TRANSACTIONS:
                        self._client.forget_coordinator(self._key(key_type), key_type)
            except (OSError, TimeoutError) as error:
                self.last_error = repr(error)
                self._client.forget_coordinator(self._key(key_type), key_type)
            if loop.time() > end_s:
                self._is_in_doubt = True
                raise AbortableError("given up")
            await asyncio.sleep(RETRY_S)

    def _send_later(self, connection: Connection, key: ApiKey, version: int, body: Message) -> None:
        """A request comes late by this connection, while the producer goes on by another one."""
        self._client.leave(connection)

        async def send() -> None:
            await asyncio.sleep(self._rng.uniform(0, LATE_S))
            if not connection.is_lost:
                connection.tell(key, version, body)

        self._late.append(asyncio.get_running_loop().create_task(send()))

    # -- writing -------------------------------------------------------------------------------------------

    def _batch(self, transaction: Transaction, topic: TopicPlan, partition: int, number: int) -> Batch:
        now_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
        where = f"{transaction.name} {topic.name}-{partition}/{number}"
        records = (
            keyed_records(self._rng, where)
            if topic.is_compacted
            else [
                NewRecord(None, b"%s/%d " % (where.encode(), position) + self._rng.randbytes(30), now_ms)
                for position in range(self._rng.randint(1, 3))
            ]
        )
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + len(records)
        data = build_batch(
            records,
            producer_id=self._owner.producer_id,
            producer_epoch=self._owner.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return Batch(records, bytes(data), sequence)

    async def _write(self, transaction: Transaction, topic: TopicPlan, partition: int) -> None:
        """All batches of a transaction for one partition, in order. Raises FencedError, AbortableError."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVE_UP_S
        pending = [
            self._batch(transaction, topic, partition, number) for number in range(self._rng.randint(1, 3))
        ]
        at = self._owner.producer_id, topic, partition
        if self._rng.random() < GIVEN_UP_SHARE:
            await self._give_up(transaction, topic, partition, pending[0])
        while pending:
            sent = pending if at in self._known else pending[:1]
            try:
                acknowledged = await self._send(transaction, topic, partition, sent)
            except (OSError, TimeoutError) as error:
                self.last_error = repr(error)
                acknowledged = 0
            pending = pending[acknowledged:]
            if acknowledged < len(sent):
                if loop.time() > end_s:
                    self._is_in_doubt = True
                    raise AbortableError(f"given up: {self.last_error}")
                self._client.forget(topic.name, partition)
                await asyncio.sleep(RETRY_S)

    async def _give_up(
        self, transaction: Transaction, topic: TopicPlan, partition: int, batch: Batch
    ) -> None:
        """As if there were no answer: the batch may come when the transaction has ended (KIP-890). Raises
        AbortableError."""
        try:
            leader = await self._client.leader(topic.name, partition)
            if leader is None:
                return
            connection = await self._client.broker(leader.node_id)
        except (OSError, TimeoutError):
            return
        self._oracle.transactions.sent(transaction, batch.digest)
        self._oracle.failed.sent(batch.digest)
        body = produce_request(topic.name, partition, -1, batch, self._plan.transactional_id)
        self._send_later(connection, ApiKey.PRODUCE, self._versions.produce, body)
        self._is_in_doubt = True
        raise AbortableError("no answer")

    async def _send(
        self, transaction: Transaction, topic: TopicPlan, partition: int, batches: list[Batch]
    ) -> int:
        """How many of them are acknowledged, from the first on. Raises OSError, TimeoutError, FencedError,
        AbortableError."""
        leader = await self._client.leader(topic.name, partition)
        if leader is None:
            self.last_error = "metadata: no leader"
            return 0
        connection = await self._client.broker(leader.node_id)
        owner, before = self._owner, self._oracle.fencing.owner(self._plan.transactional_id)
        for batch in batches:
            self._oracle.transactions.sent(transaction, batch.digest)
        requests_sent = [
            produce(
                connection,
                self._oracle,
                topic.name,
                partition,
                -1,
                batch,
                transactional_id=self._plan.transactional_id,
                version=self._versions.produce,
            )
            for batch in batches
        ]
        count = 0
        for batch, answer in zip(
            batches, await asyncio.gather(*requests_sent, return_exceptions=True), strict=True
        ):
            if isinstance(answer, BaseException):
                raise answer
            if not self._is_acknowledged(answer, is_first=count == 0):
                return count
            self._oracle.fencing.acknowledged(before, owner)
            self._known.add((owner.producer_id, topic, partition))
            acknowledged_by_all(self._oracle, topic, partition, answer.base_offset, batch)
            self._oracle.once.told(batch.digest, answer.base_offset)
            count += 1
        if self._rng.random() < LATE_SHARE:
            batch = self._rng.choice(batches)
            self._oracle.failed.sent(batch.digest)
            body = produce_request(topic.name, partition, -1, batch, self._plan.transactional_id)
            self._send_later(connection, ApiKey.PRODUCE, self._versions.produce, body)
        return count

    def _is_acknowledged(self, answer: PartitionProduceResponse, *, is_first: bool) -> bool:
        """Raises FencedError, AbortableError."""
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_first:
            return False
        if not requests.must_ask_again(code):
            return True
        self.last_error = code.name
        return False
