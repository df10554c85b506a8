"""Transactional producers (KIP-98, KIP-890), some of which read, transform and write (KIP-447).

Several may have one transactional id: each takes it over from the one before, which goes on until it is fenced. They
write to several partitions in a transaction, commit or abort it, or vanish in it, so that it has to time out. Some of
their requests come twice, and some again later, by a connection that they have left.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from tests.simulator.client import GROUP, TRANSACTIONAL_ID, Client, Connection
from tests.simulator.invariants.exactly_once import Work
from tests.simulator.invariants.fenced_never_writes import NOBODY, Owner
from tests.simulator.invariants.offsets_never_back import Committed
from tests.simulator.invariants.transactions_are_atomic import Transaction
from tests.simulator.oracle import Oracle
from tests.simulator.workload import transaction_requests as requests
from tests.simulator.workload.plan import TransactionalPlan
from tests.simulator.workload.retry import RETRY_S
from tests.simulator.workload.transaction_requests import AbortableError, FencedError
from tests.simulator.workload.transactional_writer import GIVE_UP_S, LATE_SHARE, TransactionalWriter

#: How often a transaction is to be committed; how often its producer vanishes in it.
COMMIT_SHARE = 0.75
VANISH_SHARE = 0.08
LAST_VANISH_SHARE = 0.25
#: How often an end is asked for twice.
TWICE_SHARE = 0.1
#: How often a transaction takes about as long as it may.
SLOW_SHARE = 0.08
#: Virtual seconds, on average, until somebody begins anew who is fenced or has vanished.
MEAN_ABSENCE_S = 0.5


@dataclass
class Job:
    """What the producers of one transactional id do together."""

    plan: TransactionalPlan
    #: Transactions to be begun.
    left: int
    begun: int = 0


class TransactionalProducer(TransactionalWriter):
    """One life after the other under one transactional id, until the job is done."""

    def __init__(
        self, client: Client, oracle: Oracle, job: Job, name: str, version: int, start_s: float, seed: int
    ) -> None:
        """`version`: transaction.version. `start_s`: virtual seconds until it takes the id."""
        super().__init__(client, oracle, job.plan, version, seed)
        self._job = job
        self._name = name
        self._adds_partitions = version == 1
        self._start_s = start_s
        #: Where its group goes on.
        self._offset = 0
        self._place = (
            None if job.plan.group is None else Committed(job.plan.group, job.plan.places[0][0].name, 0)
        )

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
            if self._vanishes():
                if self._rng.random() < 0.5:
                    await self._end_unheard(transaction, is_commit=is_commit)
                return
            if not await self._end(transaction, work, is_commit=is_commit):
                return
            if self._is_in_doubt:
                await self._init(self._owner)
            await asyncio.sleep(self._rng.expovariate(1 / self._plan.mean_pause_s))

    def _vanishes(self) -> bool:
        """Nobody comes after who does so in the last transaction: that has to time out."""
        return self._rng.random() < (VANISH_SHARE if self._job.left else LAST_VANISH_SHARE)

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
        for _ in range(self._rng.randint(1, 2)):
            await self._write_somewhere(transaction)
            if self._rng.random() < SLOW_SHARE:
                await asyncio.sleep(self._plan.timeout_ms / 1000 * self._rng.uniform(0.5, 1.5))
        return None if self._place is None else await self._commit_offset(transaction, self._place)

    async def _write_somewhere(self, transaction: Transaction) -> None:
        """To some partitions at the same time."""
        places = self._rng.sample(self._plan.places, self._rng.randint(1, min(2, len(self._plan.places))))
        if self._adds_partitions:
            owner, named = self._owner, [(topic.name, partition) for topic, partition in places]
            await self._ask(
                TRANSACTIONAL_ID,
                lambda connection: requests.add_partitions(
                    connection, self._plan.transactional_id, owner, named
                ),
            )
        writes = [self._write(transaction, topic, partition) for topic, partition in places]
        errors = [
            error for error in await asyncio.gather(*writes, return_exceptions=True) if error is not None
        ]
        # The most serious one counts. What is none of these says more than they do.
        ranks = (AbortableError, FencedError)
        for error in sorted(errors, key=lambda each: ranks.index(type(each)) if type(each) in ranks else 2)[
            -1:
        ]:
            raise error

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

    # -- ending --------------------------------------------------------------------------------------------

    async def _end_unheard(self, transaction: Transaction, *, is_commit: bool) -> None:
        """Ask for the end, and vanish before the answer."""
        body = requests.end_request(self._plan.transactional_id, self._owner, is_commit=is_commit)
        transaction.may_commit = is_commit
        with suppress(OSError, TimeoutError):
            connection = await self._coordinator(TRANSACTIONAL_ID)
            if connection is not None:
                connection.tell(ApiKey.END_TXN, self._versions.end_txn, body)

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
                    self._send_later(connection, ApiKey.END_TXN, version, body)
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
