"""Transactional producers (KIP-98, KIP-890), some of which read, transform and write (KIP-447).

Several may have one transactional id: each takes it over from the one before, which goes on until it is fenced. They
write to several partitions in a transaction, commit or abort it, or vanish in it, so that it has to time out. Some of
their requests come twice, and some again later, by a connection that they have left.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceResponse
from protocol.records.builder import NewRecord, build_batch
from protocol.schema import Message
from tests.simulator.client import GROUP, TRANSACTIONAL_ID, Client, Connection
from tests.simulator.clock import EPOCH_MS
from tests.simulator.invariants.exactly_once import Work
from tests.simulator.invariants.fenced_never_writes import NOBODY, Owner
from tests.simulator.invariants.offsets_never_back import Committed
from tests.simulator.invariants.transactions_are_atomic import Transaction
from tests.simulator.oracle import Oracle
from tests.simulator.workload import transaction_requests as requests
from tests.simulator.workload.batches import Batch, acknowledged_by_all, produce, produce_request
from tests.simulator.workload.plan import TopicPlan, TransactionalPlan
from tests.simulator.workload.retry import RETRY_S
from tests.simulator.workload.transaction_requests import VERSIONS, AbortableError, FencedError

#: How often a transaction is to be committed; how often its producer vanishes in it.
COMMIT_SHARE = 0.75
VANISH_SHARE = 0.08
#: How often a request comes twice, or again later.
TWICE_SHARE = 0.1
LATE_SHARE = 0.15
#: Virtual seconds until a late copy is sent, at most.
LATE_S = 0.8
#: Virtual seconds after which a producer gives up what it cannot write.
GIVE_UP_S = 1.5
#: Virtual seconds, on average, until somebody begins anew who is fenced or has vanished.
MEAN_ABSENCE_S = 0.5


@dataclass
class Job:
    """What the producers of one transactional id do together."""

    plan: TransactionalPlan
    #: Transactions to be begun.
    left: int
    begun: int = 0


class TransactionalProducer:
    """One life after the other under one transactional id, until the job is done."""

    def __init__(
        self, client: Client, oracle: Oracle, job: Job, name: str, version: int, start_s: float, seed: int
    ) -> None:
        """`version`: transaction.version. `start_s`: virtual seconds until it takes the id."""
        self._client = client
        self._oracle = oracle
        self._job = job
        self._plan = job.plan
        self._name = name
        self._versions = VERSIONS[version]
        self._adds_partitions = version == 1
        self._start_s = start_s
        self._rng = random.Random(seed)
        self._owner = NOBODY
        self._sequences: dict[tuple[TopicPlan, int], int] = {}
        #: (producer id, topic, partition) that have acknowledged something. An unknown id may begin with any sequence,
        #: so one batch is in flight before that.
        self._known: set[tuple[int, TopicPlan, int]] = set()
        #: Something was given up that may still be written: the epoch has to rise.
        self._is_in_doubt = False
        #: Where its group goes on.
        self._offset = 0
        self._place = (
            None if job.plan.group is None else Committed(job.plan.group, job.plan.places[0][0].name, 0)
        )
        self._late: list[asyncio.Task[None]] = []
        self.last_error = "none yet"

    def describe(self) -> str:
        return f"{self._name} as {self._owner}, {self._job.left} left: {self.last_error}"

    async def run(self) -> None:
        await asyncio.sleep(self._start_s)
        while self._job.left > 0:
            await self._init(NOBODY)
            await self._find_offset()
            try:
                await self._live()
            except FencedError as error:
                self.last_error = f"fenced: {error}"
            await asyncio.sleep(self._rng.expovariate(1 / MEAN_ABSENCE_S))

    async def _live(self) -> None:
        """Returns when the job is done, or the producer vanishes. Raises FencedError."""
        while self._job.left > 0:
            self._job.left -= 1
            self._job.begun += 1
            name = f"{self._plan.transactional_id}/{self._job.begun}"
            transaction = self._oracle.transactions.begin(name)
            is_commit = self._rng.random() < COMMIT_SHARE
            try:
                work = await self._work(transaction)
            except AbortableError as error:
                self.last_error = f"abortable: {error}"
                is_commit, work = False, None
            if self._rng.random() < VANISH_SHARE:
                return
            if not await self._end(transaction, work, is_commit=is_commit):
                return
            if self._is_in_doubt:
                await self._init(self._owner)
            await asyncio.sleep(self._rng.expovariate(1 / self._plan.mean_pause_s))

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

    def _again_later(self, connection: Connection, key: ApiKey, version: int, body: Message) -> None:
        """What was sent by this connection comes once more, while the producer goes on by another one."""
        self._client.leave(connection)

        async def send() -> None:
            await asyncio.sleep(self._rng.uniform(0, LATE_S))
            if not connection.is_lost:
                connection.tell(key, version, body)

        self._late.append(asyncio.get_running_loop().create_task(send()))

    # -- beginning -----------------------------------------------------------------------------------------

    async def _init(self, expected: Owner) -> None:
        """Take the id over; or go on with the next epoch, if nobody else has it. Raises FencedError for the latter."""
        while True:
            oracle, before = self._oracle.fencing, self._oracle.fencing.owner(self._plan.transactional_id)
            try:
                connection = await self._coordinator(TRANSACTIONAL_ID)
                if connection is not None:
                    answer = await requests.init_producer(
                        connection, self._plan.transactional_id, self._plan.timeout_ms, expected
                    )
                    self.last_error = f"init: {ErrorCode(answer.error_code).name}"
                    if not requests.must_ask_again(answer.error_code):
                        owner = Owner(answer.producer_id, answer.producer_epoch)
                        if expected == NOBODY:
                            oracle.got(self._plan.transactional_id, before, owner)
                        self._begin(owner)
                        self._is_in_doubt = False
                        return
                    if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                        self._client.forget_coordinator(self._plan.transactional_id, TRANSACTIONAL_ID)
            except (OSError, TimeoutError) as error:
                self.last_error = f"init: {error!r}"
                self._client.forget_coordinator(self._plan.transactional_id, TRANSACTIONAL_ID)
            await asyncio.sleep(RETRY_S)

    def _begin(self, owner: Owner) -> None:
        if owner != self._owner:
            self._owner = owner
            self._sequences.clear()

    async def _find_offset(self) -> None:
        """Where the one before has stopped."""
        if self._place is not None:
            self._offset = max(await self.fetch_offset(), 0)

    async def fetch_offset(self) -> int:
        """The committed offset of its group, once it is stable."""
        place = self._place
        assert place is not None
        while True:
            floor = self._oracle.exactly_once.floor(place)
            try:
                connection = await self._coordinator(GROUP)
                if connection is not None:
                    code, offset, metadata = await requests.fetch_stable(connection, place)
                    self.last_error = f"offset: {code.name}"
                    if code is ErrorCode.NONE:
                        self._oracle.exactly_once.fetched(place, floor, offset, metadata)
                        return offset
                    if code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                        assert code in requests.AGAIN, code
                        self._client.forget_coordinator(place.group)
            except (OSError, TimeoutError) as error:
                self.last_error = f"offset: {error!r}"
                self._client.forget_coordinator(place.group)
            await asyncio.sleep(RETRY_S)

    # -- writing -------------------------------------------------------------------------------------------

    async def _work(self, transaction: Transaction) -> tuple[Work, int] | None:
        """Everything but the end. Returns what was worked on, and the floor of the group's offset when its commit was
        sent. Raises FencedError, AbortableError."""
        places = self._rng.sample(self._plan.places, self._rng.randint(1, min(3, len(self._plan.places))))
        if self._adds_partitions:
            owner, named = self._owner, [(topic.name, partition) for topic, partition in places]
            await self._ask(
                TRANSACTIONAL_ID,
                lambda connection: requests.add_partitions(
                    connection, self._plan.transactional_id, owner, named
                ),
            )
        writes = [self._write(transaction, topic, partition) for topic, partition in places]
        found = await asyncio.gather(*writes, return_exceptions=True)
        errors = [error for error in found if error is not None]
        for kind in (FencedError, AbortableError):
            for error in errors:
                if isinstance(error, kind):
                    raise error
        for error in errors:
            raise error
        return None if self._place is None else await self._commit_offset(transaction, self._place)

    async def _commit_offset(self, transaction: Transaction, place: Committed) -> tuple[Work, int]:
        owner = self._owner
        if self._adds_partitions:
            await self._ask(
                TRANSACTIONAL_ID,
                lambda connection: requests.add_offsets(
                    connection, self._plan.transactional_id, owner, place.group
                ),
            )
        work = Work(self._offset, self._offset + self._rng.randint(1, 3), transaction)
        floor = self._oracle.exactly_once.floor(place)
        self._oracle.exactly_once.sent(place, work)
        await self._ask(
            GROUP,
            lambda connection: requests.commit_offset(
                connection,
                self._plan.transactional_id,
                owner,
                place,
                work.end,
                transaction.name,
                self._versions.txn_offset_commit,
            ),
        )
        return work, floor

    def _batch(self, transaction: Transaction, topic: TopicPlan, partition: int, number: int) -> Batch:
        now_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
        where = f"{transaction.name} {topic.name}-{partition}/{number}"
        records = [
            NewRecord(None, b"%s/%d " % (where.encode(), position) + self._rng.randbytes(30), now_ms)
            for position in range(self._rng.randint(1, 3))
        ]
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
            self._again_later(connection, ApiKey.PRODUCE, self._versions.produce, body)
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

    # -- ending --------------------------------------------------------------------------------------------

    async def _end(self, transaction: Transaction, work: tuple[Work, int] | None, *, is_commit: bool) -> bool:
        """False: its outcome is not known, and somebody has to begin anew. Raises FencedError."""
        owner = self._owner
        body = requests.end_request(self._plan.transactional_id, owner, is_commit=is_commit)
        transaction.may_commit = is_commit
        version = self._versions.end_txn

        async def end(connection: Connection) -> int:
            before = self._oracle.fencing.owner(self._plan.transactional_id)
            if self._rng.random() < TWICE_SHARE:
                connection.tell(ApiKey.END_TXN, version, body)
            answer = await requests.end_transaction(connection, body, version)
            if answer.error_code == ErrorCode.NONE:
                self._oracle.fencing.acknowledged(before, owner)
                if version >= requests.VERSIONS[2].end_txn:
                    now = Owner(answer.producer_id, answer.producer_epoch)
                    assert now.producer_id != owner.producer_id or now.epoch > owner.epoch, (
                        "an end raises the epoch"
                    )
                    self._begin(now)
                    self._is_in_doubt = False
                if self._rng.random() < LATE_SHARE:
                    self._again_later(connection, ApiKey.END_TXN, version, body)
            return answer.error_code

        try:
            await self._ask(TRANSACTIONAL_ID, end, 2 * GIVE_UP_S)
        except AbortableError as error:
            self.last_error = f"end: {error}"
            return False
        self._oracle.transactions.told(transaction, is_commit=is_commit)
        if work is not None and is_commit:
            assert self._place is not None
            self._oracle.exactly_once.committed(self._place, work[1], work[0].end)
            self._offset = work[0].end
        return True


async def run_job(job: Job, producers: list[TransactionalProducer], oracle: Oracle) -> None:
    """All that is done under one transactional id."""
    await asyncio.gather(*(producer.run() for producer in producers))
    plan = job.plan
    if plan.group is not None:
        place = Committed(plan.group, plan.places[0][0].name, 0)
        oracle.exactly_once.ended(place, await producers[0].fetch_offset())
