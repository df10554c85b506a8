"""Produce: append batches, and answer when they are as durable as `acks` asks for.

Behaviour
- One batch per partition, validated as Apache Kafka does it (protocol.records.validate): what is acknowledged can be
  read by all clients. `varve.produce.validate.records` says whether records are looked at in every batch.
- acks=-1 is answered when the batch is committed and durable on max(majority, min.insync.replicas) replicas, acks=1
  after the leader's own flush. acks=0 is not answered, and an error closes the connection.
- A batch that an idempotent producer sends again is answered with its first offset, when that is committed. One with a
  gap before it is NOT_ENOUGH_REPLICAS once, then as in Apache Kafka (broker.replication.sequence_gaps).
- Of the errors only UNKNOWN_PRODUCER_ID names the log start. A Java producer begins a new epoch then; without the log
  start it sends the same batch again until it gives up.
- Before a batch that begins its producer's transaction in a partition is appended, the transaction's coordinator is
  asked (KIP-890); no other request of this client is served until it has answered. A partition that is not in the
  transaction is INVALID_TXN_STATE, from version 11 on TRANSACTION_ABORTABLE.
- A transactional batch without a transactional id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as is its whole request.

Versions: 3 and 4 equal; 5 log_start_offset; 7 zstd; 8 record_errors; 9 flexible; 10 current_leader and node_endpoints
(KIP-951); in 11 the client understands TRANSACTION_ABORTABLE; from 12 on the partitions are added to the transaction,
and the client need not do it; 13 topics by id. 0 is advertised and not served (librdkafka up to 2.11.0 turns
compression off otherwise).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from broker.metadata.ids import INTERNAL_TOPICS
from broker.serving.api import Api
from broker.serving.pending import PENDING, PendingAnswer
from broker.serving.steps import Steps
from broker.transactions.metadata import ProducerIdAndEpoch
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, InvalidRecordError, KafkaError
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.records.batch import BatchHeader, TimestampType, is_transactional, parse_header
from protocol.records.validate import (
    check_records,
    check_records_in_steps,
    fits_one_step,
    set_log_append_time,
    set_max_timestamp,
    validate_produce,
)
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.replication.replica import Replica
    from broker.serving.context import Context
    from broker.transactions.verification import Verification

FIRST_VERSION_THAT_ADDS = 12
FIRST_VERSION_WITH_TOPIC_IDS = 13
#: Partitions that are looked at in one step.
_FEW = 20
#: These end a producer.
_SAID_BY_CONFIRMED_LEADERS = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_TXN_STATE)


class PendingProduce(PendingAnswer[PartitionProduceResponse]):
    __slots__ = ()

    def _completed(self, answer: PartitionProduceResponse, slot: int) -> None:
        if self._request.throttle_ms:
            assert isinstance(self._response, ProduceResponse)
            self._response.throttle_time_ms = self._request.throttle_ms
        if answer.error_code != ErrorCode.NONE:
            answer.base_offset = -1
            if answer.error_code != ErrorCode.UNKNOWN_PRODUCER_ID:
                answer.log_start_offset = -1
            answer.log_append_time_ms = -1


def handle(context: Context, request: Request, body: ProduceRequest) -> Steps:
    refusal = _refusal(body)
    if body.transactional_id is not None and refusal == ErrorCode.NONE:
        return _verify_and_append(context, request, body, body.transactional_id)
    return _append_all(context, request, body, refusal, None)


def _verify_and_append(
    context: Context, request: Request, body: ProduceRequest, transactional_id: str
) -> Steps:
    is_asked = yield from _begin_verification(context, request, body, transactional_id)
    if not is_asked:
        yield from _append_all(context, request, body, ErrorCode.NONE, None)


def _refusal(body: ProduceRequest) -> ErrorCode:
    """Why the whole request is refused."""
    if body.acks not in (-1, 0, 1):
        return ErrorCode.INVALID_REQUIRED_ACKS
    if body.transactional_id is None:
        for topic in body.topic_data:
            for data in topic.partition_data:
                if data.records is not None and is_transactional(data.records):
                    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _begin_verification(
    context: Context, request: Request, body: ProduceRequest, transactional_id: str
) -> Generator[None, None, bool]:
    """Ask the coordinator, if a batch begins the transaction in its partition. Returns whether it was asked: then the
    request goes on when it has answered."""
    producer: ProducerIdAndEpoch | None = None
    replicas: dict[GroupKey, Replica] = {}
    for topic in body.topic_data:
        for data in topic.partition_data:
            replica = _find_replica(context, request.api_version, topic, data.index)
            if replica is None or not replica.is_serving or data.records is None:
                continue
            try:
                header = parse_header(data.records)
            except KafkaError:
                continue
            sender = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
            if header.is_transactional and replica.producers.begins_transaction(*sender):
                producer = sender
                replicas[replica.key] = replica
        if len(replicas) % _FEW == 0:
            _copy_records(request, body)
            yield
    if producer is None:
        return False
    _copy_records(request, body)
    request.connection.hold_requests()

    def verified(verification: Verification) -> None:
        context.long_requests.resume(
            request, _append_all(context, request, body, ErrorCode.NONE, verification)
        )
        request.connection.release_requests()

    is_added = request.api_version >= FIRST_VERSION_THAT_ADDS
    context.verifier.verify(transactional_id, producer, list(replicas.values()), verified, is_added=is_added)
    return True


def _append_all(
    context: Context,
    request: Request,
    body: ProduceRequest,
    refusal: ErrorCode,
    verification: Verification | None,
) -> Steps:
    response = ProduceResponse(responses=[])
    pending = PendingProduce(context, request, response, body.timeout_ms)
    leaders: set[int] = set()
    is_first = True
    for topic in body.topic_data:
        answers: list[PartitionProduceResponse] = []
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
        for data in topic.partition_data:
            if is_first:
                is_first = False
            else:
                _copy_records(request, body)
                yield
            answer = PartitionProduceResponse(index=data.index, error_code=refusal, base_offset=-1)
            answers.append(answer)
            if refusal == ErrorCode.NONE:
                yield from _produce(context, request, pending, answer, body, verification, topic, data)
                if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and request.api_version >= 10:
                    name = context.view.topic_name(topic.name, topic.topic_id)
                    _name_leader(context, name, answer, leaders)
    for leader in sorted(leaders):
        host, port = context.view.endpoint_of(leader, request.listener)
        response.node_endpoints.append(NodeEndpoint(node_id=leader, host=host, port=port))
    if context.quotas.limits_produce:
        request.throttle(context.quotas.charge_produce(request.client_id, request.size_bytes))
        response.throttle_time_ms = request.throttle_ms
    if body.acks == 0:
        _answer_acks_0(request, response)
        return
    pending.wait_or_reply()


def _find_replica(context: Context, version: int, topic: TopicProduceData, partition: int) -> Replica | None:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return context.replicas.by_key.get(GroupKey(topic.topic_id, partition))
    return context.replicas.by_name.get((topic.name, partition))


def _serving_replica(context: Context, version: int, topic: TopicProduceData, partition: int) -> Replica:
    """Raises KafkaError if this node does not lead the partition, or no client may write to it."""
    replica = _find_replica(context, version, topic, partition)
    if replica is None:
        if version < FIRST_VERSION_WITH_TOPIC_IDS:
            raise KafkaError(context.view.why_no_replica(topic.name, partition))
        context.view.replica_of_id(topic.topic_id, partition)
        raise AssertionError("there is none")
    if replica.topic in INTERNAL_TOPICS or replica.is_metadata:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{replica.topic} is an internal topic")
    if not replica.is_serving:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return replica


def _produce(
    context: Context,
    request: Request,
    pending: PendingProduce,
    answer: PartitionProduceResponse,
    body: ProduceRequest,
    verification: Verification | None,
    topic: TopicProduceData,
    data: PartitionProduceData,
) -> Steps:
    """Append the batch of one partition and have the answer wait, or fill in the error."""
    acks = body.acks
    try:
        replica = _serving_replica(context, request.api_version, topic, data.index)
        header = validate_produce(
            data.records,
            api_version=request.api_version,
            max_message_bytes=replica.config.max_message_bytes,
        )
        assert data.records is not None, "validated"
        replica.gaps.arrived(header)
        context.replicas.check_space()
        now_ms, rules = context.clock.now_ms(), replica.record_rules
        max_timestamp_ms = header.max_timestamp
        if context.config.produce_validate_records or rules.ask_for_each(header, now_ms):
            if fits_one_step(header):
                max_timestamp_ms = check_records(data.records, header, rules, now_ms)
            else:
                _copy_records(request, body)
                max_timestamp_ms = yield from check_records_in_steps(data.records, header, rules, now_ms)
                if not replica.is_open:
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # closed meanwhile
        if acks == -1:
            replica.check_in_sync()
        batch = data.records if request.owned else bytearray(data.records)
        if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
            # Taken after the records were checked: other requests may have appended meanwhile.
            answer.log_append_time_ms = context.clock.now_ms()
            header = set_log_append_time(batch, answer.log_append_time_ms)
        elif max_timestamp_ms != header.max_timestamp:
            header = set_max_timestamp(batch, max_timestamp_ms)
        try:
            base_offset, end_offset = _append(replica, answer, header, batch, verification)
        except KafkaError as error:
            if error.code not in _SAID_BY_CONFIRMED_LEADERS or acks == 0:
                raise
            _append_when_confirmed(context, pending, answer, replica, acks, header, batch, verification)
            return
    except KafkaError as error:
        _fill_error(answer, error, request.api_version)
        return
    answer.base_offset = base_offset
    answer.log_start_offset = replica.log_start_offset
    if acks == 0:
        return
    _wait(replica, acks, end_offset, pending, pending.add(answer))


def _append(
    replica: Replica,
    answer: PartitionProduceResponse,
    header: BatchHeader,
    batch: bytearray | memoryview,
    verification: Verification | None,
) -> tuple[int, int]:
    """(base offset, end offset). Raises KafkaError. The answer has the log start if that is UNKNOWN_PRODUCER_ID."""
    if header.is_transactional:
        producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
        if replica.producers.begins_transaction(*producer):
            if verification is None:  # this was not so when the request came: the client sends it again
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            verification.check(replica, producer)
    try:
        return replica.append(header, batch)
    except KafkaError as error:
        if error.code == ErrorCode.UNKNOWN_PRODUCER_ID:
            answer.log_start_offset = replica.log_start_offset
        raise


def _copy_records(request: Request, body: ProduceRequest) -> None:
    """Copy the records out of the receive buffer, which all connections share, before other requests are served. (Each
    batch that is appended is copied from there anyway.)"""
    if not request.owned:
        for topic in body.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    data.records = memoryview(bytearray(data.records))
        request.owned = True


def _wait(replica: Replica, acks: int, end_offset: int, pending: PendingProduce, slot: int) -> None:
    if acks == 1:
        replica.waits.add_flush(end_offset, pending, slot)
    else:
        replica.waits.add_in_sync(end_offset, pending, slot)


def _append_when_confirmed(
    context: Context,
    pending: PendingProduce,
    answer: PartitionProduceResponse,
    replica: Replica,
    acks: int,
    header: BatchHeader,
    batch: bytearray | memoryview,
    verification: Verification | None,
) -> None:
    """Confirm the leadership (ReadIndex), and append again.

    A stale leader lacks the batches and markers of its successor, and must not end a producer because of that: it
    answers "not leader". A confirmed leader tries again: it may have been elected anew, or what is missing may have
    come meanwhile.
    """
    slot = pending.add(answer)

    def confirmed(keys: set[GroupKey]) -> None:
        if answer.error_code != PENDING:
            return  # timed out: the client sends the batch again
        try:
            if replica.key not in keys:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if acks == -1:
                replica.check_in_sync()
            answer.base_offset, end_offset = _append(replica, answer, header, batch, verification)
        except KafkaError as error:
            answer.error_message = error.message or None
            pending.partition_done(slot, error.code)
            return
        answer.log_start_offset = replica.log_start_offset
        _wait(replica, acks, end_offset, pending, slot)

    context.reads.confirm([replica], confirmed)


def _fill_error(answer: PartitionProduceResponse, error: KafkaError, version: int) -> None:
    answer.error_code = _in_version(error.code, version)
    answer.error_message = error.message or None
    if isinstance(error, InvalidRecordError):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]


def _in_version(error: ErrorCode, version: int) -> ErrorCode:
    """What a coordinator says of a transaction, as producers of this version know it."""
    if error == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error == ErrorCode.TRANSACTION_ABORTABLE and version < 11:
        return ErrorCode.INVALID_TXN_STATE
    if error == ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_THAT_ADDS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error


def _name_leader(context: Context, topic: str, answer: PartitionProduceResponse, leaders: set[int]) -> None:
    """Name the current leader in the answer, if it is known, so that the client needs no Metadata request (KIP-951)."""
    leader, epoch = context.view.leader_of(topic, answer.index)
    if leader >= 0:
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        leaders.add(leader)


def _answer_acks_0(request: Request, response: ProduceResponse) -> None:
    """Send no answer. The connection is closed if a partition has an error, because the client learns of it no other
    way."""
    request.reply_nothing()
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NONE:
                request.connection.close()
                return


API = Api(ApiKey.PRODUCE, 3, 13, ProduceRequest, handle, advertised_min_version=0, carries_records=True)
