"""What `varve txn` asks of a cluster: transactions of coordinators, producers of partitions, and markers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from broker.cli.root import CommandError
from broker.cli.wire_client import WireClient, check_error, error_text
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.schema import NIL_UUID

_TRANSACTION_KEY = 1
_METADATA_VERSION = 12
#: What a coordinator answers while it takes over. It is asked again, for so long and so often.
_FOR_NOW = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_PATIENCE_S = 15.0
_PAUSE_S = 0.2

Transaction = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """Of a producer in a partition, as the partition's leader knows it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


class TransactionAdmin:
    def __init__(self, bootstrap_server: str) -> None:
        self._wire = WireClient(bootstrap_server)

    # -- coordinators ------------------------------------------------------------------------------------

    def list_transactions(
        self, states: list[str], producer_ids: list[int], duration_ms: int, pattern: str | None
    ) -> list[Transaction]:
        """Those of all coordinators. `duration_ms`: open for longer than that; -1: all."""
        version = 2 if pattern else 1 if duration_ms >= 0 else 0
        request = ListTransactionsRequest(
            state_filters=states,
            producer_id_filters=producer_ids,
            duration_filter=duration_ms,
            transactional_id_pattern=pattern,
        )
        found: list[Transaction] = []
        for broker in self._metadata().brokers:
            answer = self._patiently(
                lambda node_id=broker.node_id: self._wire.ask_broker(  # type: ignore[misc]
                    node_id, request, version, ListTransactionsResponse
                ),
                lambda answer: answer.error_code,
            )
            check_error(answer.error_code, None)
            if answer.unknown_state_filters:
                raise CommandError(f"no transaction state: {', '.join(answer.unknown_state_filters)}")
            found += [
                {
                    "transactional_id": each.transactional_id,
                    "coordinator": broker.node_id,
                    "producer_id": each.producer_id,
                    "state": each.transaction_state,
                }
                for each in answer.transaction_states
            ]
        return sorted(found, key=lambda each: str(each["transactional_id"]))

    def describe(self, transactional_id: str) -> Transaction:
        question = FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=[transactional_id])
        found = self._patiently(
            lambda: self._wire.ask(question, 4, FindCoordinatorResponse).coordinators[0],
            lambda answer: answer.error_code,
        )
        check_error(found.error_code, found.error_message)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = self._patiently(
            lambda: self._wire.ask_broker(
                found.node_id, request, 0, DescribeTransactionsResponse
            ).transaction_states[0],
            lambda answer: answer.error_code,
        )
        if answer.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise CommandError(f"there is no transactional id '{transactional_id}'")
        check_error(answer.error_code, None)
        return {
            "transactional_id": transactional_id,
            "coordinator": found.node_id,
            "producer_id": answer.producer_id,
            "producer_epoch": answer.producer_epoch,
            "state": answer.transaction_state,
            "timeout_ms": answer.transaction_timeout_ms,
            "start_time_ms": None
            if answer.transaction_start_time_ms < 0
            else answer.transaction_start_time_ms,
            "partitions": [
                {"topic": topic.topic, "partition": number}
                for topic in answer.topics
                for number in topic.partitions
            ],
        }

    @staticmethod
    def _patiently(ask: Callable[[], Any], error_of: Callable[[Any], int]) -> Any:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = ask()
            if error_of(answer) not in _FOR_NOW or time.monotonic() > deadline:
                return answer
            time.sleep(_PAUSE_S)

    # -- partitions --------------------------------------------------------------------------------------

    def _metadata(self, *topics: str) -> MetadataResponse:
        wanted = [MetadataRequestTopic(topic_id=NIL_UUID, name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self._wire.ask(request, _METADATA_VERSION, MetadataResponse)

    def _leaders(self, topic: str | None) -> Iterator[tuple[str, int, int]]:
        """(topic, partition, node id) of one topic, or of all."""
        if topic is None:
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            found = self._wire.ask(request, _METADATA_VERSION, MetadataResponse)
        else:
            found = self._metadata(topic)
        for each in found.topics:
            check_error(each.error_code, each.name)
            for partition in each.partitions:
                yield each.name or "", partition.partition_index, partition.leader_id

    def producers(self, topic: str, partition: int) -> list[ProducerState]:
        """The producers that have written to a partition lately."""
        leader = self._leader(topic, partition)
        ((_, _, found),) = self._producers_at(leader, {topic: [partition]})
        return found

    def _leader(self, topic: str, partition: int) -> int:
        for _, number, leader in self._leaders(topic):
            if number == partition:
                if leader < 0:
                    raise CommandError(f"{topic}-{partition} has no leader")
                return leader
        raise CommandError(f"there is no partition {topic}-{partition}")

    def _producers_at(
        self, node_id: int, partitions: dict[str, list[int]]
    ) -> Iterator[tuple[str, int, list[ProducerState]]]:
        topics = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in partitions.items()]
        question = DescribeProducersRequest(topics=topics)
        answer = self._wire.ask_broker(node_id, question, 0, DescribeProducersResponse)
        for topic in answer.topics:
            for partition in topic.partitions:
                check_error(partition.error_code, partition.error_message)
                yield topic.name, partition.partition_index, partition.active_producers

    def open_transactions(
        self, broker: int | None, topic: str | None, partition: int | None
    ) -> Iterator[OpenTransaction]:
        """In the partitions that a broker leads, or in those of a topic."""
        wanted: dict[int, dict[str, list[int]]] = {}
        for name, number, leader in self._leaders(topic):
            if leader >= 0 and broker in (None, leader) and partition in (None, number):
                wanted.setdefault(leader, {}).setdefault(name, []).append(number)
        for leader, partitions in wanted.items():
            for name, number, states in self._producers_at(leader, partitions):
                for state in states:
                    if state.current_txn_start_offset >= 0:
                        yield _open(name, number, state)

    def hanging(self, candidates: Iterable[OpenTransaction]) -> list[OpenTransaction]:
        """Those that no coordinator knows to be open: nobody will end them."""
        listed = list(candidates)
        if not listed:
            return []
        ids = sorted({each.producer_id for each in listed})
        described = {
            found["producer_id"]: self.describe(found["transactional_id"])
            for found in self.list_transactions([], ids, -1, None)
        }
        return [each for each in listed if not _is_known(each, described.get(each.producer_id))]

    def abort(self, found: OpenTransaction) -> None:
        """Write an ABORT marker."""
        topics = [WritableTxnMarkerTopic(name=found.topic, partition_indexes=[found.partition])]
        marker = WritableTxnMarker(
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            transaction_result=False,
            topics=topics,
            coordinator_epoch=found.coordinator_epoch,
        )
        leader = self._leader(found.topic, found.partition)
        request = WriteTxnMarkersRequest(markers=[marker])
        answer = self._wire.ask_broker(leader, request, 1, WriteTxnMarkersResponse)
        error = answer.markers[0].topics[0].partitions[0].error_code
        if error != ErrorCode.NONE:
            raise CommandError(f"the transaction is not aborted: {error_text(error, None)}")


def _open(topic: str, partition: int, state: ProducerState) -> OpenTransaction:
    return OpenTransaction(
        topic,
        partition,
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.current_txn_start_offset,
        state.last_timestamp,
    )


def _is_known(found: OpenTransaction, described: Transaction | None) -> bool:
    return (
        described is not None
        and described["producer_epoch"] >= found.producer_epoch
        and {"topic": found.topic, "partition": found.partition} in described["partitions"]
    )
