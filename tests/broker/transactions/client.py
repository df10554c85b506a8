"""Requests of a transactional producer, of any version, to the nodes of a `World`."""

from __future__ import annotations

from typing import TypeVar

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.records.builder import NewRecord, build_batch
from protocol.schema import Message
from tests.broker.asking import connect
from tests.broker.groups.world import coordinator, pass_time
from tests.broker.world import World
from tests.simulator.client import Connection

M = TypeVar("M", bound=Message)
#: A cluster with few partitions of the internal topics starts sooner.
FEW = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
_LOADED = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
#: (producer id, epoch)
Producer = tuple[int, int]


class Client:
    """Keeps a connection to each node, as a real one does."""

    def __init__(self, world: World, transactional_id: str = "t", *, version: int = 1) -> None:
        """`version`: `transaction.version`."""
        self.world = world
        self.transactional_id = transactional_id
        self.is_second_version = version >= 2
        self._connections: dict[int, Connection] = {}
        self._sequences: dict[tuple[Producer, str, int], int] = {}

    def ask(self, node_id: int, key: ApiKey, version: int, body: Message, response: type[M]) -> M:
        async def question() -> M:
            if node_id not in self._connections:
                self._connections[node_id] = await connect(self.world, node_id)
            return await self._connections[node_id].request(key, version, body, response)

        task = self.world.loop.create_task(question())
        self.world.wait(task.done)
        return task.result()

    def coordinator(self) -> int:
        """Wait for one that has loaded the transactional id."""
        body = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])
        for _ in range(200):
            asked = next(iter(self.world.nodes))
            found = self.ask(asked, ApiKey.FIND_COORDINATOR, 4, body, FindCoordinatorResponse).coordinators[0]
            if found.node_id in self.world.nodes and self.described(found.node_id).error_code in _LOADED:
                return found.node_id
            pass_time(self.world, 0.05)
        raise AssertionError(f"nobody coordinates {self.transactional_id}")

    def described(self, node_id: int) -> TransactionState:
        body = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        answer = self.ask(node_id, ApiKey.DESCRIBE_TRANSACTIONS, 0, body, DescribeTransactionsResponse)
        return answer.transaction_states[0]

    @property
    def state(self) -> str:
        return self.described(self.coordinator()).transaction_state

    def init(
        self, before: Producer = (-1, -1), *, timeout_ms: int = 60_000, version: int = 5
    ) -> InitProducerIdResponse:
        body = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=before[0],
            producer_epoch=before[1],
        )
        return self.ask(self.coordinator(), ApiKey.INIT_PRODUCER_ID, version, body, InitProducerIdResponse)

    def new_producer(self, before: Producer = (-1, -1), *, timeout_ms: int = 60_000) -> Producer:
        answer = self.init(before, timeout_ms=timeout_ms)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
        return answer.producer_id, answer.producer_epoch

    def add(self, producer: Producer, topic: str, *partitions: int, version: int = 3) -> list[int]:
        body = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        answer = self.ask(
            self.coordinator(), ApiKey.ADD_PARTITIONS_TO_TXN, version, body, AddPartitionsToTxnResponse
        )
        (found,) = answer.results_by_topic_v3_and_below
        return [each.partition_error_code for each in found.results_by_partition]

    def add_offsets(self, producer: Producer, group_id: str, *, version: int = 3) -> int:
        body = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=group_id,
        )
        coordinator(self.world, group_id)
        return self.ask(
            self.coordinator(), ApiKey.ADD_OFFSETS_TO_TXN, version, body, AddOffsetsToTxnResponse
        ).error_code

    def commit_offset(
        self,
        producer: Producer,
        group_id: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        version: int | None = None,
        generation_id: int = -1,
        member_id: str = "",
    ) -> int:
        """The error code."""
        body = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
                    ],
                )
            ],
            generation_id=generation_id,
            member_id=member_id,
        )
        if version is None:
            version = 5 if self.is_second_version else 3
        answer = self.ask(
            coordinator(self.world, group_id),
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            body,
            TxnOffsetCommitResponse,
        )
        return answer.topics[0].partitions[0].error_code

    def produce(
        self,
        producer: Producer,
        topic: str,
        partition: int = 0,
        *,
        value: bytes = b"x",
        version: int | None = None,
        transactional_id: str | None = "",
        is_transactional: bool = True,
    ) -> int:
        """The error code. `transactional_id`: "" stands for the client's own."""
        place = (producer, topic, partition)
        sequence = self._sequences.get(place, 0)
        batch = build_batch(
            [NewRecord(None, value, 0)],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        body = ProduceRequest(
            transactional_id=self.transactional_id if transactional_id == "" else transactional_id,
            acks=-1,
            timeout_ms=3000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        if version is None:
            version = 12 if self.is_second_version else 11
        answer = self.ask(self.world.leader(topic, partition), ApiKey.PRODUCE, version, body, ProduceResponse)
        error = answer.responses[0].partition_responses[0].error_code
        if error == ErrorCode.NONE:
            self._sequences[place] = sequence + 1
        return error

    def end(
        self, producer: Producer, *, is_commit: bool = True, version: int | None = None
    ) -> EndTxnResponse:
        body = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=is_commit,
        )
        if version is None:
            version = 5 if self.is_second_version else 4
        return self.ask(self.coordinator(), ApiKey.END_TXN, version, body, EndTxnResponse)
