"""One transactional id in a story: each request goes to the node that answers for it, over a client's connection, and
is sent again until it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from broker.coordinator.internal_topic import partition_of
from broker.metadata.ids import TRANSACTION_TOPIC_NAME
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.records.builder import NewRecord, build_batch
from tests.simulator.client import FIND_COORDINATOR_VERSION, TRANSACTIONAL_ID, Client, Connection
from tests.simulator.cluster import CLIENT_PORT, host_of
from tests.simulator.invariants.fenced_never_writes import NOBODY, Owner
from tests.simulator.invariants.transactions_are_atomic import Transaction
from tests.simulator.mutations.stage import Stage
from tests.simulator.workload import transaction_requests as requests
from tests.simulator.workload.batches import Batch, produce
from tests.simulator.workload.fetching import READ_COMMITTED
from tests.simulator.workload.plan import TopicPlan
from tests.simulator.workload.reader import Follower

RETRY_S = 0.05


class TransactionalId:
    """Its producer, whose requests have the versions of one transaction.version."""

    def __init__(self, stage: Stage, *, version: int = 1, timeout_ms: int = 60_000) -> None:
        self.name = "x"
        self.stage = stage
        self.owner = NOBODY
        self.versions = requests.VERSIONS[version]
        self._adds_partitions = version == 1
        self._timeout_ms = timeout_ms
        #: Of its records: a compacted topic takes none without.
        self.key: bytes | None = None
        self._sequences: dict[str, int] = {}
        self._begun = 0

    # -- where ---------------------------------------------------------------------------------------------

    @property
    def place(self) -> tuple[str, int]:
        """The partition of `__transaction_state` that has it."""
        config = self.stage.cluster.config_of(self.stage.cluster.node_ids[0])
        return TRANSACTION_TOPIC_NAME, partition_of(self.name, config.transaction_topic_num_partitions)

    def coordinator(self) -> int:
        """The node; wait until there is one."""
        cluster = self.stage.cluster
        self.stage.wait(lambda: cluster.leader(*self.place) is not None)
        found = cluster.leader(*self.place)
        assert found is not None
        return found

    def coordinators(self) -> list[int]:
        """All nodes that may coordinate it."""
        cluster = self.stage.cluster
        return [node_id for node_id in cluster.alive() if cluster.replica(node_id, *self.place) is not None]

    def coordinate(self, node_id: int) -> None:
        """Have this node coordinate it."""

        def transfer_leadership() -> bool:
            leader = self.stage.cluster.leader(*self.place)
            if leader is None:
                return False
            replica = self.stage.cluster.replica(leader, *self.place)
            target = self.stage.cluster.replica(node_id, *self.place)
            assert replica is not None and target is not None
            if leader != node_id and target.group.self_id in replica.group.in_sync(
                self.stage.loop.time(), 1.0
            ):
                self.stage.call(leader, replica.driver.transfer_leadership, target.group.self_id)
            return leader == node_id

        self.stage.wait(transfer_leadership)

    async def connection(self) -> Connection:
        """To its coordinator. Raises OSError, TimeoutError."""
        node_id = self.stage.cluster.leader(*self.place)
        if node_id is None:
            raise OSError("no coordinator")
        return await self.stage.connection(node_id)

    # -- what its producer does ----------------------------------------------------------------------------

    def until_done(self, question: Callable[[], Awaitable[int]]) -> None:
        """Raises FencedError, AbortableError."""
        while True:
            with suppress(OSError, TimeoutError):
                if not requests.must_ask_again(self.stage.run(_coroutine(question))):
                    return
            self.stage.run_for(RETRY_S)

    def init(self) -> Owner:
        """Take it over."""

        async def ask() -> int:
            # Who is asked first has the topic created.
            connection = await self.stage.connection(self.stage.cluster.alive()[0])
            body = FindCoordinatorRequest(key_type=TRANSACTIONAL_ID, coordinator_keys=[self.name])
            await connection.request(
                ApiKey.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body, FindCoordinatorResponse
            )
            answer = await requests.init_producer(
                await self.connection(), self.name, self._timeout_ms, NOBODY
            )
            if answer.error_code == ErrorCode.NONE:
                self._begin(Owner(answer.producer_id, answer.producer_epoch))
            return answer.error_code

        self.until_done(ask)
        return self.owner

    def _begin(self, owner: Owner) -> None:
        if owner != self.owner:
            self.owner = owner
            self._sequences.clear()

    def begin(self) -> Transaction:
        self._begun += 1
        return self.stage.cluster.oracle.transactions.begin(f"{self.name}/{self._begun}")

    def add(self, topic: str) -> None:
        """AddPartitionsToTxn."""

        async def ask() -> int:
            return await requests.add_partitions(await self.connection(), self.name, self.owner, [(topic, 0)])

        self.until_done(ask)

    def batch(self, transaction: Transaction, topic: str) -> Batch:
        """The next one for partition 0, known to the oracle."""
        sequence = self._sequences.get(topic, 0)
        self._sequences[topic] = sequence + 1
        record = NewRecord(self.key, f"{transaction.name} {topic} {sequence} {self.owner}".encode(), 1)
        data = build_batch(
            [record],
            producer_id=self.owner.producer_id,
            producer_epoch=self.owner.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        batch = Batch([record], bytes(data), sequence, self.stage.loop.time())
        self.stage.cluster.oracle.transactions.sent(transaction, batch.digest)
        return batch

    async def producing(self, connection: Connection, topic: str, batch: Batch) -> ErrorCode:
        """Raises OSError, TimeoutError."""
        oracle = self.stage.cluster.oracle
        answer = await produce(
            connection,
            oracle,
            topic,
            0,
            -1,
            batch,
            transactional_id=self.name,
            version=self.versions.produce,
        )
        if answer.error_code == ErrorCode.NONE:
            oracle.acknowledged.told(0, answer.base_offset, batch.digest)
        return ErrorCode(answer.error_code)

    def write(self, transaction: Transaction, topic: str) -> None:
        """A record to partition 0, until it is acknowledged. Raises FencedError, AbortableError."""
        if self._adds_partitions:
            self.add(topic)
        batch = self.batch(transaction, topic)

        async def ask() -> int:
            leader = self.stage.cluster.leader(topic)
            if leader is None:
                return ErrorCode.LEADER_NOT_AVAILABLE
            return await self.producing(await self.stage.connection(leader), topic, batch)

        self.until_done(ask)

    def ending(self, connection: Connection, *, is_commit: bool) -> Coroutine[Any, Any, ErrorCode]:
        """EndTxn as of now, to be sent when it is awaited. Raises OSError, TimeoutError."""
        body = requests.end_request(self.name, self.owner, is_commit=is_commit)
        owner = self.owner

        async def end() -> ErrorCode:
            answer = await requests.end_transaction(connection, body, self.versions.end_txn)
            if answer.error_code == ErrorCode.NONE and not self._adds_partitions and self.owner == owner:
                self._begin(Owner(answer.producer_id, answer.producer_epoch))
            return ErrorCode(answer.error_code)

        return end()

    def end(self, transaction: Transaction, *, is_commit: bool) -> None:
        """Until it is acknowledged. Raises FencedError, AbortableError."""
        transaction.may_commit = is_commit

        async def ask() -> int:
            return await self.ending(await self.connection(), is_commit=is_commit)

        self.until_done(ask)
        self.stage.cluster.oracle.transactions.told(transaction, is_commit=is_commit)


async def _coroutine(question: Callable[[], Awaitable[int]]) -> int:
    return await question()


def read_all(stage: Stage, topic: str) -> int:
    """Read partition 0 up to its high watermark, as a consumer of committed data that checks everything. Returns how
    many batches and markers there were."""
    plan = TopicPlan(topic, 1, 1, 3, (), 0, is_purged=False, times_altered=0)
    nodes = [(host_of(node_id), CLIENT_PORT) for node_id in stage.cluster.node_ids]
    client = Client(stage.cluster.network.of("storyteller"), nodes)
    reader = Follower(
        client,
        stage.cluster.oracle,
        plan,
        0,
        sends_last_epoch=True,
        has_session=False,
        isolation=READ_COMMITTED,
    )
    task = stage.begin(reader.run())

    def has_read_all() -> bool:
        leader = stage.cluster.leader(topic)
        replica = None if leader is None else stage.cluster.replica(leader, topic)
        if task.done():
            task.result()
        return replica is not None and reader.has_read_to(replica.key, replica.high_watermark)

    stage.wait(has_read_all)
    task.cancel()
    return reader.batches_read
