"""Answers that client libraries hide, asked for one by one. client-behaviour.md has what Apache Kafka 4.3 answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.records.batch import Compression, iter_batches, parse_header, renew_crc
from protocol.records.builder import NewRecord, build_batch
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.wire import Wire, produce_request, records_of


def batch(count: int = 1, value: bytes = b"value", **settings: object) -> bytearray:
    now_ms = int(time.time() * 1000)
    return build_batch([NewRecord(b"k", value, now_ms)] * count, **settings)  # type: ignore[arg-type]


@pytest.fixture
def leader(cluster: BrokerCluster, topic: str) -> Iterator[Wire]:
    with cluster.wire_to_leader(topic) as wire:
        yield wire


# -- produce ---------------------------------------------------------------------------------------------


def corrupted(at: int) -> bytes:
    bad = batch(3)
    bad[at] ^= 0xFF
    return bytes(bad)


def with_header(**changes: int) -> bytes:
    """A batch whose header says something else, with a CRC that fits."""
    from protocol.records.batch import HEADER_BYTES, pack_header

    whole = batch(3)
    lied = bytearray(pack_header(parse_header(whole)._replace(**changes)) + whole[HEADER_BYTES:])
    renew_crc(lied)
    return bytes(lied)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (corrupted(-1), ErrorCode.CORRUPT_MESSAGE),
        (corrupted(17), ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.INVALID_RECORD),
        (None, ErrorCode.INVALID_RECORD),
        (bytes(batch()) + bytes(batch()), ErrorCode.INVALID_RECORD),
        (with_header(base_offset=1), ErrorCode.INVALID_RECORD),
        (with_header(magic=1), ErrorCode.INVALID_RECORD),
        (with_header(count=2), ErrorCode.INVALID_RECORD),
        (with_header(count=-1, last_offset_delta=-2), ErrorCode.INVALID_RECORD),
        (bytes(batch(is_control=True)), ErrorCode.INVALID_RECORD),
        (bytes(batch(1, b"x" * 1_100_000)), ErrorCode.MESSAGE_TOO_LARGE),
        (bytes(batch(producer_id=7, producer_epoch=0, base_sequence=-1)), ErrorCode.INVALID_RECORD),
    ],
    ids="last-byte crc empty null two-batches base-offset magic count negative-count control size sequence".split(),
)
def test_a_bad_batch_is_refused_and_nothing_of_it_kept(
    leader: Wire, topic: str, records: bytes | None, code: ErrorCode
) -> None:
    request = produce_request(topic, records)
    answer = leader.call(request, 9).responses[0].partition_responses[0]
    assert ErrorCode(answer.error_code) == code
    assert answer.base_offset == -1
    assert leader.produce(topic, batch()).base_offset == 0, "the connection goes on, the log is empty"


def test_timestamps_too_far_ahead_are_refused_by_index(leader: Wire, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    records = [NewRecord(None, b"x", now_ms), NewRecord(None, b"x", now_ms + 2 * 3_600_000)]
    answer = leader.produce(topic, build_batch(records))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert answer.error_message


def test_a_compacted_topic_wants_keys(cluster: BrokerCluster) -> None:
    with cluster.wire() as wire:
        wire.create("compacted", cleanup_policy="compact")
    with cluster.wire_to_leader("compacted") as wire:
        now_ms = int(time.time() * 1000)
        mixed = build_batch(
            [NewRecord(b"k", b"x", now_ms), NewRecord(None, b"x", now_ms), NewRecord(None, b"", now_ms)]
        )
        answer = wire.produce("compacted", mixed)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [1, 2]
        tombstone = build_batch([NewRecord(b"k", None, now_ms)])
        assert wire.produce("compacted", tombstone).error_code == ErrorCode.NONE


def test_acks_is_0_1_or_all(leader: Wire, topic: str) -> None:
    assert leader.produce(topic, batch(), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_an_old_request_cannot_carry_zstd(leader: Wire, topic: str) -> None:
    zstd = batch(compression=Compression.ZSTD)
    assert leader.produce(topic, zstd, version=5).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert leader.produce(topic, zstd, version=7).error_code == ErrorCode.NONE


def test_acks_0_is_silent_and_an_error_closes(leader: Wire, topic: str) -> None:
    leader.send(produce_request(topic, batch(), acks=0), 9)
    assert leader.produce(topic, batch()).base_offset == 1, "answers to what follows only"
    leader.send(produce_request("no-such-topic", batch(), acks=0), 9)
    assert leader.is_closed_by_broker()


def test_who_does_not_lead_says_who_does(cluster: BrokerCluster, topic: str) -> None:
    leading = cluster.leader_of(topic)
    for node_id in set(cluster.brokers) - {leading}:
        with cluster.wire(node_id) as wire:
            response = wire.call(produce_request(topic, batch()), 10)
            answer = response.responses[0].partition_responses[0]
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.current_leader is not None
            assert answer.current_leader.leader_id == leading
            assert [(x.node_id, x.port) for x in response.node_endpoints] == [
                (leading, cluster[leading].port)
            ]
            assert wire.fetch(topic, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert wire.list_offset(topic, -1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_unknown_topics_and_partitions(leader: Wire, topic: str) -> None:
    assert leader.produce("no-such-topic", batch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert leader.produce(topic, batch(), partition=7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert leader.fetch("no-such-topic", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert leader.fetch(topic, 0, partition=-1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert leader.list_offset("no-such-topic", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_transactional_batch_needs_a_transaction(leader: Wire, topic: str) -> None:
    transactional = batch(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    answer = leader.produce(topic, transactional)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert leader.list_offset(topic, -1).offset == 0


# -- idempotent producers --------------------------------------------------------------------------------


def test_sequences(leader: Wire, topic: str) -> None:
    """client-behaviour.md, idempotence: what Kafka answered to the same steps."""

    def send(sequence: int, count: int = 1, epoch: int = 1) -> tuple[ErrorCode, int]:
        sent = batch(count, producer_id=4000, producer_epoch=epoch, base_sequence=sequence)
        answer = leader.produce(topic, sent)
        return ErrorCode(answer.error_code), answer.base_offset

    assert send(0, 3) == (ErrorCode.NONE, 0)
    assert send(0, 3) == (ErrorCode.NONE, 0), "a retry gets the first answer"
    assert send(4) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1), (
        "a gap: the batch before may be under way (not Kafka's answer)"
    )
    assert send(4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), "a gap that stays"
    assert send(2, 2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), "half old, half new"
    for sequence in range(3, 9):
        assert send(sequence) == (ErrorCode.NONE, sequence)
    assert send(4) == (ErrorCode.NONE, 4), "one of the last five"
    assert send(0, 3) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), "older than the last five"
    assert send(0, epoch=0)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(5, epoch=2)[0] == ErrorCode.NOT_ENOUGH_REPLICAS, (
        "a new epoch begins at 0, which may be under way"
    )
    assert send(5, epoch=2)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch begins at 0"
    assert send(0, epoch=2) == (ErrorCode.NONE, 9)
    other = batch(producer_id=4001, producer_epoch=0, base_sequence=77)
    assert leader.produce(topic, other).error_code == ErrorCode.NOT_ENOUGH_REPLICAS, (
        "what is before may be under way"
    )
    assert leader.produce(topic, other).error_code == ErrorCode.NONE, "an unknown producer may begin anywhere"


def test_pipelined_requests_are_appended_and_answered_in_order(leader: Wire, topic: str) -> None:
    requests = [
        produce_request(topic, batch(producer_id=4100, producer_epoch=0, base_sequence=number))
        for number in range(5)
    ]
    first_id = leader._correlation_id + 1
    for request in requests:
        leader.send(request, 9)
    for number, request in enumerate(requests):
        leader._correlation_id = first_id + number
        answer = leader.answer(request, 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)


def test_producer_ids_differ(cluster: BrokerCluster) -> None:
    ids = []
    for node_id in [*cluster.brokers, *cluster.brokers]:
        with cluster.wire(node_id) as wire:
            answer = wire.call(InitProducerIdRequest(transaction_timeout_ms=0), 4)
            assert (answer.error_code, answer.producer_epoch) == (0, 0)
            ids.append(answer.producer_id)
    assert len(set(ids)) == len(ids)


# -- fetch -----------------------------------------------------------------------------------------------


def test_an_offset_inside_a_batch_gets_the_whole_batch(leader: Wire, topic: str) -> None:
    leader.produce(topic, batch(10, compression=Compression.LZ4))
    leader.produce(topic, batch(10))
    assert [record.offset for record in records_of(leader.fetch(topic, 5))] == list(range(20))
    assert [record.offset for record in records_of(leader.fetch(topic, 13))] == list(range(10, 20))


def test_at_least_one_batch_however_small_the_limit(leader: Wire, topic: str) -> None:
    for _ in range(3):
        leader.produce(topic, batch(1, b"x" * 1000))
    assert len(records_of(leader.fetch(topic, 0, max_bytes=1))) == 1
    assert len(records_of(leader.fetch(topic, 0, partition_max_bytes=1))) == 1
    assert len(records_of(leader.fetch(topic, 0, partition_max_bytes=2500))) == 2
    assert len(records_of(leader.fetch(topic, 0))) == 3


def test_only_the_first_partition_may_exceed_the_limit(cluster: BrokerCluster) -> None:
    with cluster.wire() as wire:
        wire.create("two-partitions", 2, 1)
    leaders = [cluster.leader_of("two-partitions", partition) for partition in (0, 1)]
    for partition, node_id in enumerate(leaders):
        with cluster.wire(node_id) as wire:
            wire.produce("two-partitions", batch(1, b"x" * 1000), partition=partition)
    if leaders[0] != leaders[1]:
        pytest.skip("the two partitions have two leaders this time")
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in (1, 0)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=500,
        topics=[FetchTopic(topic="two-partitions", partitions=wanted)],
    )
    with cluster.wire(leaders[0]) as wire:
        first, second = wire.call(request, 12).responses[0].partitions
    assert (first.partition_index, len(records_of(first))) == (1, 1)
    assert (second.partition_index, len(records_of(second))) == (0, 0)


def test_offsets_out_of_range(leader: Wire, topic: str) -> None:
    leader.produce(topic, batch(5))
    for offset in (-1, 6, 1 << 40):
        answer = leader.fetch(topic, offset)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert answer.high_watermark == -1
    at_end = leader.fetch(topic, 5)
    assert (at_end.error_code, at_end.high_watermark, records_of(at_end)) == (ErrorCode.NONE, 5, [])


def test_a_fetch_waits_for_its_time_or_for_data(cluster: BrokerCluster, leader: Wire, topic: str) -> None:
    begun = time.monotonic()
    assert records_of(leader.fetch(topic, 0, max_wait_ms=500)) == []
    assert 0.45 < time.monotonic() - begun < 2

    got: list[float] = []

    def wait() -> None:
        with cluster.wire_to_leader(topic) as other:
            assert len(records_of(other.fetch(topic, 0, max_wait_ms=15_000))) == 1
        got.append(time.monotonic())

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.3)
    assert not got
    leader.produce(topic, batch())
    waiting.join(10)
    assert got


def test_min_bytes_counts(leader: Wire, topic: str) -> None:
    leader.produce(topic, batch(1, b"x" * 500))
    begun = time.monotonic()
    assert len(records_of(leader.fetch(topic, 0, max_wait_ms=400, min_bytes=10_000_000))) == 1
    assert time.monotonic() - begun > 0.35
    begun = time.monotonic()
    assert len(records_of(leader.fetch(topic, 0, max_wait_ms=10_000, min_bytes=400))) == 1
    assert time.monotonic() - begun < 5


def test_an_error_does_not_wait(leader: Wire, topic: str) -> None:
    begun = time.monotonic()
    assert leader.fetch(topic, 99, max_wait_ms=10_000).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert time.monotonic() - begun < 5


def test_isolation_levels(leader: Wire, topic: str) -> None:
    leader.produce(topic, batch(3))
    uncommitted, committed = leader.fetch(topic, 0), leader.fetch(topic, 0, read_committed=True)
    assert uncommitted.aborted_transactions is None
    assert committed.aborted_transactions == []
    assert committed.last_stable_offset == committed.high_watermark == 3
    assert records_of(committed) == records_of(uncommitted)
    assert leader.list_offset(topic, -1, read_committed=True).offset == 3


def test_leader_epochs_are_checked(cluster: BrokerCluster, leader: Wire, topic: str) -> None:
    leader.produce(topic, batch(2))
    epoch = cluster.topic_as_seen_by(1, topic).partitions[0].leader_epoch
    assert leader.fetch(topic, 0, current_leader_epoch=epoch).error_code == ErrorCode.NONE
    # The first epoch is 0, so none is below it: -1 asks for no check. Later ones: tests/broker/test_leader_epochs.py.
    fenced = ErrorCode.FENCED_LEADER_EPOCH if epoch else ErrorCode.NONE
    assert leader.fetch(topic, 0, current_leader_epoch=epoch - 1).error_code == fenced
    assert leader.fetch(topic, 0, current_leader_epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    data = leader.fetch(topic, 0)
    assert isinstance(data.records, memoryview)
    assert {header.leader_epoch for _, header in iter_batches(data.records)} == {epoch}

    def end_of(asked: int, current: int = -1) -> tuple[int, int, int]:
        wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=asked)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        )
        answer = leader.call(request, 4).topics[0].partitions[0]
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert end_of(epoch) == (0, epoch, 2)
    assert end_of(epoch + 5) == end_of(-1) == (0, -1, -1)
    assert end_of(epoch, current=epoch + 1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


# -- list offsets ----------------------------------------------------------------------------------------


def test_special_timestamps_by_version(leader: Wire, topic: str) -> None:
    leader.produce(topic, batch(4))
    assert leader.list_offset(topic, -1).offset == 4
    assert leader.list_offset(topic, -2).offset == 0
    assert leader.list_offset(topic, -3, version=7).offset == 0, "the first of equal timestamps"
    assert leader.list_offset(topic, -3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert leader.list_offset(topic, -4, version=8).offset == 0
    assert leader.list_offset(topic, -4, version=7).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert leader.list_offset(topic, -5, version=9).offset == -1
    nothing = leader.list_offset(topic, int(time.time() * 1000) + 1_000_000)
    assert (nothing.error_code, nothing.offset, nothing.timestamp, nothing.leader_epoch) == (0, -1, -1, -1)


def test_a_time_is_looked_up_record_by_record(leader: Wire, topic: str) -> None:
    base = int(time.time() * 1000) - 1000
    stamps = [base + 5, base + 1, base + 9, base + 3]
    leader.produce(
        topic, build_batch([NewRecord(None, b"x", at) for at in stamps], compression=Compression.ZSTD)
    )
    found = leader.list_offset(topic, base + 6)
    assert (found.offset, found.timestamp) == (2, base + 9)
    assert leader.list_offset(topic, -3).offset == 2


def test_a_partition_asked_for_twice(leader: Wire, topic: str) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
    answer = leader.call(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=twice)]), 7)
    assert {x.error_code for x in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}


# -- topics ----------------------------------------------------------------------------------------------


def test_all_nodes_tell_the_same(cluster: BrokerCluster, topic: str) -> None:
    def look() -> bool:
        seen = [cluster.topic_as_seen_by(node_id, topic) for node_id in cluster.brokers]
        return all(
            (x.topic_id, [(p.leader_id, p.leader_epoch, p.replica_nodes) for p in x.partitions])
            == (
                seen[0].topic_id,
                [(p.leader_id, p.leader_epoch, p.replica_nodes) for p in seen[0].partitions],
            )
            for x in seen
        )

    eventually(look, "one view of the topic")


def test_metadata_by_id_and_of_nothing(cluster: BrokerCluster, topic: str) -> None:
    topic_id = cluster.topic_as_seen_by(1, topic).topic_id
    with cluster.wire() as wire:
        by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
        assert [x.name for x in wire.call(by_id, 12).topics] == [topic]
        assert wire.call(MetadataRequest(topics=[]), 12).topics == []
        assert topic in {x.name for x in wire.call(MetadataRequest(topics=None), 1).topics}
        assert topic in {x.name for x in wire.call(MetadataRequest(topics=[]), 0).topics}
        bad = MetadataRequest(topics=[MetadataRequestTopic(name="no good")])
        assert wire.call(bad, 12).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_create_and_delete_by_id(cluster: BrokerCluster) -> None:
    with cluster.wire(2) as wire:
        defaults = CreateTopicsRequest(
            topics=[CreatableTopic(name="by-id", num_partitions=-1, replication_factor=-1)], timeout_ms=10_000
        )
        created = wire.call(defaults, 7).topics[0]
        assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 1, 3)
        assert created.configs
        assert all(1 <= config.config_source <= 8 for config in created.configs)
        twice = CreateTopicsRequest(
            topics=[CreatableTopic(name="dup", num_partitions=1, replication_factor=1)] * 2, timeout_ms=10_000
        )
        assert {x.error_code for x in wire.call(twice, 7).topics} == {ErrorCode.INVALID_REQUEST}
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=created.topic_id)], timeout_ms=10_000)
        assert wire.call(delete, 6).responses[0].error_code == ErrorCode.NONE
        assert wire.call(delete, 6).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_versions_that_old_librdkafka_looks_for(cluster: BrokerCluster) -> None:
    with cluster.wire() as wire:
        ranges = {
            x.api_key: (x.min_version, x.max_version) for x in wire.call(ApiVersionsRequest(), 0).api_keys
        }
    assert ranges[0][0] == 0, "or it drops compression"
    assert ranges[1][0] <= 4
    assert ranges[1][1] >= 10
    assert ranges[2][0] <= 1
    assert {71, 72} & set(ranges) == set(), "telemetry would be used by whoever sees it"


# -- retention -------------------------------------------------------------------------------------------


def test_retention_moves_the_start_for_good(cluster: BrokerCluster) -> None:
    name = "retention"
    with cluster.wire() as wire:
        created = wire.create(name, segment_bytes=str(1 << 20), retention_bytes=str(2 << 20))
        assert created.error_code == 0
    with cluster.wire_to_leader(name) as wire:
        for _ in range(60):
            assert wire.produce(name, batch(1, b"x" * 100_000)).error_code == 0
        start = eventually(lambda: wire.list_offset(name, -2).offset, "old segments to go")
        assert wire.fetch(name, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        answer = wire.fetch(name, start)
        assert answer.log_start_offset == start
        assert records_of(answer)[0].offset == start
        assert wire.list_offset(name, -1).offset == 60

    def gone_everywhere() -> bool:
        return all(_size_bytes(cluster.segments(node_id, name)) < 4 << 20 for node_id in cluster.brokers)

    eventually(gone_everywhere, "followers to delete, too")


def _size_bytes(segments: list[Path]) -> int:
    return sum(path.stat().st_size for path in segments)
