"""WriteTxnMarkers: an administrator aborts a hanging transaction in some partitions (kafka-transactions.sh abort).

Behaviour
- An open transaction of the producer is aborted. Where none is open, nothing is written, and the answer is NONE.
- Commits are refused (INVALID_REQUEST): nobody has decided that the records of a hanging transaction count. The
  coordinators of this cluster send their markers by messages between nodes.
- An older epoch than the producer's is INVALID_PRODUCER_EPOCH, an older coordinator TRANSACTION_COORDINATOR_FENCED.

Versions: 1 flexible; 2 names the transaction version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from broker.serving.pending import PendingAnswer
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.control import Marker

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

_TIMEOUT_MS = 30_000


class _Pending(PendingAnswer[WritableTxnMarkerPartitionResult]):
    __slots__ = ()

    def _completed(self, answer: WritableTxnMarkerPartitionResult, slot: int) -> None:
        """There is nothing beside the error code."""


def handle(context: Context, request: Request, body: WriteTxnMarkersRequest) -> Steps:
    response = WriteTxnMarkersResponse(markers=[])
    pending = _Pending(context, request, response, _TIMEOUT_MS)
    for marker in body.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[])
        response.markers.append(result)
        for topic in marker.topics:
            answers: list[WritableTxnMarkerPartitionResult] = []
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=answers))
            for partition in topic.partition_indexes:
                answer = WritableTxnMarkerPartitionResult(partition_index=partition)
                answers.append(answer)
                try:
                    _write(context, pending, marker, topic.name, answer)
                except KafkaError as refused:
                    answer.error_code = refused.code
                yield
            yield
        yield
    pending.wait_or_reply()


def _write(
    context: Context,
    pending: _Pending,
    wanted: WritableTxnMarker,
    topic: str,
    answer: WritableTxnMarkerPartitionResult,
) -> None:
    """Raises KafkaError."""
    if wanted.transaction_result:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "only aborts come from outside")
    replica = context.view.replica_named(topic, answer.partition_index)
    if not replica.is_serving:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    entry = replica.producers.entries.get(wanted.producer_id)
    replica.producers.check_marker(wanted.producer_id, wanted.producer_epoch, wanted.coordinator_epoch)
    if entry is not None and entry.transaction_first_offset >= 0:
        # Not the epoch of the request: no number from outside may keep a coordinator's markers out later.
        marker = Marker(is_commit=False, coordinator_epoch=entry.coordinator_epoch)
        slot = pending.add(answer)
        context.marker_writer.append(
            replica, wanted.producer_id, wanted.producer_epoch, marker, pending, slot
        )


API = Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, WriteTxnMarkersRequest, handle)
