"""ListOffsets: the start and end of a partition, and the offset for a timestamp.

Behaviour
- Every answer waits for a liveness round that began after the request came; all groups of the node share it
  (replication.md section 6). So a leader that is cut off cannot answer with a stale end.
- timestamp -1: high watermark (read_committed: last stable offset); -2 and -4 (local log start, no tiering): log
  start; -3: the record with the largest timestamp; -5 (tiered) and -6 (to be tiered): -1; else the first record at or
  after the time. Deleted records are not found.
- A leader whose first row is not committed answers OFFSET_NOT_AVAILABLE to -1 (replication.md section 6).
- If no record is found, the answer is offset -1 and timestamp -1, without an error. A partition that is named twice is
  INVALID_REQUEST.

Versions: 2 isolation level; 4 leader epochs; 6 flexible; 7 timestamp -3; 8 -4; 9 -5; 10 timeout_ms; 11 -6 (KIP-1023).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.errors import CorruptLogError

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.replication.replica import Replica
    from broker.serving.context import Context
    from storage.log_reader import Lookup, TimestampedOffset
    from storage.log_types import GroupKey

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
#: The first version that has each special timestamp.
_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1


def handle(context: Context, request: Request, body: ListOffsetsRequest) -> Steps:
    times_asked = Counter[tuple[str, int]]()
    led: dict[Replica, None] = {}
    for topic in body.topics:
        for wanted in topic.partitions:
            times_asked[topic.name, wanted.partition_index] += 1
            replica = context.view.led_replica(topic.name, wanted.partition_index)
            if replica is not None:
                led[replica] = None
            yield
        yield

    def answer(confirmed: set[GroupKey]) -> None:
        context.long_requests.resume(request, _answer(context, request, body, times_asked, confirmed))

    context.reads.confirm(list(led), answer)


def _answer(
    context: Context,
    request: Request,
    body: ListOffsetsRequest,
    times_asked: Counter[tuple[str, int]],
    confirmed: set[GroupKey],
) -> Steps:
    response = ListOffsetsResponse(topics=[])
    for topic in body.topics:
        yield
        answers: list[ListOffsetsPartitionResponse] = []
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        for wanted in topic.partitions:
            yield
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            answers.append(answer)
            try:
                if times_asked[topic.name, wanted.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
                replica = context.view.replica_named(topic.name, wanted.partition_index)
                if wanted.timestamp == LATEST and replica.is_leader and not replica.is_serving:
                    raise KafkaError(_end_is_not_known(request.api_version))
                replica.check_leader_epoch(wanted.current_leader_epoch)
                if replica.key not in confirmed:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                yield from _look_up(
                    replica, wanted, body.isolation_level == _READ_COMMITTED, request.api_version, answer
                )
            except KafkaError as error:
                answer.error_code = error.code
            except CorruptLogError as error:
                context.replicas.log_corrupt(replica, error)
                answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    yield from steps.reply(request, response)


def _end_is_not_known(version: int) -> ErrorCode:
    """The error of a leader whose first row is not committed yet. On both codes the client asks this broker again;
    versions before 5 know only the older one."""
    return ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE


def _look_up(
    replica: Replica,
    wanted: ListOffsetsPartition,
    committed: bool,
    version: int,
    answer: ListOffsetsPartitionResponse,
) -> Steps:
    timestamp = wanted.timestamp
    bound = replica.last_stable_offset if committed else replica.high_watermark
    lineage = replica.log.lineage
    if timestamp < 0 and version < _SINCE_VERSION.get(timestamp, 1 << 15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp == LATEST:
        answer.offset = bound
        answer.leader_epoch = replica.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = replica.log_start_offset
        answer.leader_epoch = lineage.term_at_offset(answer.offset)
    elif timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        if timestamp == MAX_TIMESTAMP:
            lookup = replica.log.max_timestamp_offset(below_offset=bound)
        else:
            lookup = replica.log.offset_for_timestamp(timestamp, below_offset=bound)
        found = yield from _while_open(replica, lookup)
        if found is not None:
            answer.offset, answer.timestamp, answer.leader_epoch = found


def _while_open(replica: Replica, lookup: Lookup) -> Lookup:
    """Run the steps of a look-up. Raises KafkaError if the replica is closed or gets another log meanwhile."""
    log = replica.log
    while True:
        try:
            next(lookup)
        except StopIteration as end:
            found: TimestampedOffset | None = end.value
            return found
        yield
        if not replica.is_open or replica.log is not log:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


API = Api(ApiKey.LIST_OFFSETS, 1, 11, ListOffsetsRequest, handle)
