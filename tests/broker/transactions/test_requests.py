"""Transactions as clients of both versions speak of them, and the errors that they meet (client-behaviour.md B.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.coordinator.internal_topic import partition_of
from broker.transactions.markers import EndedTransaction
from broker.transactions.metadata import ProducerIdAndEpoch
from broker.transactions.requests import EndTransaction
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.asking import ask
from tests.broker.groups.world import committed, coordinator, pass_time
from tests.broker.transactions.client import FEW, Client, Producer
from tests.broker.world import World, running

NONE = ErrorCode.NONE


@pytest.fixture
def world() -> Iterator[World]:
    with running(settings=FEW) as started:
        started.create_topic("foo", partitions=2)
        yield started


@pytest.fixture(params=[1, 2])
def client(world: World, request: pytest.FixtureRequest) -> Client:
    return Client(world, version=request.param)


def begin(client: Client, producer: Producer, *partitions: int) -> None:
    """Write to these partitions in a transaction."""
    if not client.is_second_version:
        assert client.add(producer, "foo", *partitions) == [NONE] * len(partitions)
    for partition in partitions:
        assert client.produce(producer, "foo", partition) == NONE


def fetched(world: World, *, isolation: int, partition: int = 0, offset: int = 0) -> PartitionData:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    body = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_epoch=-1,
        topics=[FetchTopic(topic="foo", partitions=[wanted])],
    )
    leader = world.leader("foo", partition)
    return ask(world, leader, ApiKey.FETCH, 12, body, FetchResponse).responses[0].partitions[0]


def latest(world: World, isolation: int) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    body = ListOffsetsRequest(
        isolation_level=isolation, topics=[ListOffsetsTopic(name="foo", partitions=[wanted])]
    )
    answer = ask(world, world.leader("foo"), ApiKey.LIST_OFFSETS, 7, body, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


def test_the_last_stable_offset_is_not_below_the_log_start(world: World, client: Client) -> None:
    """Otherwise readers of committed data who begin at the end would be told an offset that is out of range."""
    producer = client.new_producer()
    begin(client, producer, 0)
    assert client.produce(producer, "foo", 0) == NONE
    wanted = DeleteRecordsTopic(name="foo", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    body = DeleteRecordsRequest(topics=[wanted], timeout_ms=5000)
    answer = ask(world, world.leader("foo"), ApiKey.DELETE_RECORDS, 2, body, DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].low_watermark == 1
    assert latest(world, isolation=1) == 1
    data = fetched(world, isolation=1, offset=1)
    assert (data.error_code, data.log_start_offset, data.last_stable_offset) == (NONE, 1, 1)
    assert not data.records
    client.end(producer)
    assert latest(world, isolation=1) == 3


# -- the way of a transaction ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_is_seen_when_it_is_committed_and_never_if_it_is_aborted(
    world: World, client: Client, is_commit: bool
) -> None:
    producer = client.new_producer()
    begin(client, producer, 0, 1)
    for partition in (0, 1):
        open_now = fetched(world, isolation=1, partition=partition)
        assert (open_now.high_watermark, open_now.last_stable_offset, open_now.records) == (1, 0, b"")
        assert fetched(world, isolation=0, partition=partition).records
    assert (latest(world, 0), latest(world, 1)) == (1, 0)
    answer = client.end(producer, is_commit=is_commit)
    assert answer.error_code == NONE
    for partition in (0, 1):
        ended = fetched(world, isolation=1, partition=partition)
        assert (ended.high_watermark, ended.last_stable_offset) == (2, 2)
        assert ended.records
        aborted = [(each.producer_id, each.first_offset) for each in ended.aborted_transactions or ()]
        assert aborted == ([] if is_commit else [(producer[0], 0)])
        assert fetched(world, isolation=0, partition=partition).aborted_transactions is None
    assert latest(world, 1) == 2


def test_the_second_version_raises_the_epoch_and_the_first_does_not(client: Client) -> None:
    producer = client.new_producer()
    begin(client, producer, 0)
    answer = client.end(producer)
    expected = (producer[0], producer[1] + 1) if client.is_second_version else (-1, -1)
    assert (answer.producer_id, answer.producer_epoch) == expected
    following = (answer.producer_id, answer.producer_epoch) if client.is_second_version else producer
    begin(client, following, 0, 1)
    assert client.end(following).error_code == NONE
    assert client.state == "CompleteCommit"


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_count_when_the_transaction_is_committed(
    world: World, client: Client, is_commit: bool
) -> None:
    node_id = coordinator(world, "g")
    producer = client.new_producer()
    if not client.is_second_version:
        assert client.add_offsets(producer, "g") == NONE
    assert client.commit_offset(producer, "g", "foo", 7) == NONE
    assert committed(world, node_id, "g") == {}

    def stable() -> int:
        group = OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopic(name="foo", partition_indexes=[0])]
        )
        body = OffsetFetchRequest(groups=[group], require_stable=True)
        answer = ask(world, node_id, ApiKey.OFFSET_FETCH, 8, body, OffsetFetchResponse)
        return answer.groups[0].topics[0].partitions[0].error_code

    assert stable() == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert client.end(producer, is_commit=is_commit).error_code == NONE
    assert committed(world, node_id, "g") == ({("foo", 0): 7} if is_commit else {})
    assert stable() == NONE


def test_a_transaction_without_memory_for_a_partition_can_be_aborted() -> None:
    """POLICY_VIOLATION would end a Java producer that adds offsets."""
    with running(size=1, settings={**FEW, "varve.max.transaction.bytes": "1000"}) as world:
        world.create_topic("foo", partitions=2, replication_factor=1)
        client = Client(world, version=2)
        producer = client.new_producer()
        assert client.produce(producer, "foo") == NONE
        assert client.add_offsets(producer, "g", version=4) == ErrorCode.TRANSACTION_ABORTABLE
        assert client.commit_offset(producer, "g", "foo", 7) == ErrorCode.TRANSACTION_ABORTABLE
        assert client.add_offsets(producer, "g") == ErrorCode.POLICY_VIOLATION
        assert client.end(producer, is_commit=False).error_code == NONE


def test_a_member_of_another_generation_commits_no_offsets(world: World, client: Client) -> None:
    """Who has lost its partitions must not commit what it has processed (KIP-447)."""
    coordinator(world, "g")
    producer = client.new_producer()
    if not client.is_second_version:
        assert client.add_offsets(producer, "g") == NONE
    code = client.commit_offset(producer, "g", "foo", 7, generation_id=3, member_id="m")
    assert code == ErrorCode.ILLEGAL_GENERATION


def test_a_transaction_is_aborted_at_its_timeout_and_what_its_producer_sent_is_fenced(
    world: World, client: Client
) -> None:
    producer = client.new_producer(timeout_ms=5_000)
    begin(client, producer, 0)
    pass_time(world, 4)
    assert client.state == "Ongoing"
    pass_time(world, 2)
    assert client.state == "CompleteAbort"
    assert fetched(world, isolation=1).last_stable_offset == 2
    assert client.produce(producer, "foo") == ErrorCode.INVALID_PRODUCER_EPOCH
    commit, abort = client.end(producer), client.end(producer, is_commit=False)
    if client.is_second_version:
        assert (commit.error_code, abort.error_code) == (ErrorCode.INVALID_TXN_STATE, NONE)
        following = (abort.producer_id, abort.producer_epoch)
        assert following == (producer[0], producer[1] + 1)
        begin(client, following, 0)
        assert client.end(following).error_code == NONE
    else:
        assert commit.error_code == abort.error_code == ErrorCode.PRODUCER_FENCED


def test_a_new_producer_aborts_what_is_open_and_fences_the_one_before(world: World, client: Client) -> None:
    old = client.new_producer()
    begin(client, old, 0)
    new = client.new_producer()
    assert new[0] == old[0] and new[1] > old[1]
    assert fetched(world, isolation=1).last_stable_offset == 2
    assert client.add(old, "foo", 0) == [ErrorCode.PRODUCER_FENCED]
    assert client.add(old, "foo", 0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert client.end(old).error_code == ErrorCode.PRODUCER_FENCED
    assert client.produce(old, "foo") == ErrorCode.INVALID_PRODUCER_EPOCH


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60_000 + 1])
def test_a_timeout_has_bounds(client: Client, timeout_ms: int) -> None:
    assert client.init(timeout_ms=timeout_ms).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_init_of_a_producer_that_has_the_id_no_more(client: Client) -> None:
    producer = client.new_producer()
    bumped = client.new_producer(producer)
    assert bumped == (producer[0], producer[1] + 1)
    client.new_producer()
    assert client.init(producer).error_code == ErrorCode.PRODUCER_FENCED
    assert client.init(producer, version=3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_partitions_that_cannot_be_added(world: World) -> None:
    client = Client(world)
    producer = client.new_producer()
    assert client.add(producer, "foo", 0, 9) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert client.add(producer, "__transaction_state", 0) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert client.add((producer[0] + 1, 0), "foo", 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    for epoch in (producer[1] - 1, producer[1] + 1):
        assert client.add((producer[0], epoch), "foo", 0) == [ErrorCode.PRODUCER_FENCED]
    assert client.state == "Empty"


def test_an_end_of_nothing(client: Client) -> None:
    producer = client.new_producer()
    assert client.end((producer[0] + 1, 0)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert client.end(producer).error_code == ErrorCode.INVALID_TXN_STATE
    aborted = client.end(producer, is_commit=False)
    assert aborted.error_code == (NONE if client.is_second_version else ErrorCode.INVALID_TXN_STATE)


def test_an_end_that_comes_again(world: World, client: Client) -> None:
    producer = client.new_producer()
    begin(client, producer, 0)
    first = client.end(producer)
    again = client.end(producer)
    assert (again.error_code, again.producer_epoch) == (NONE, first.producer_epoch)
    assert client.end(producer, is_commit=False).error_code == ErrorCode.INVALID_TXN_STATE
    assert fetched(world, isolation=1).high_watermark == 2, "there is one marker"


def test_a_late_end_by_an_older_connection_does_not_end_the_next_transaction(world: World) -> None:
    """KAFKA-17754. From the second version on, the epoch tells the two transactions apart."""
    old, new = Client(world), Client(world)
    producer = old.new_producer()
    begin(old, producer, 0)
    assert old.end(producer).error_code == NONE
    begin(new, producer, 1)
    assert old.end(producer).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert new.state == "Ongoing"
    assert new.end(producer).error_code == NONE


def test_who_was_fenced_is_told_so_whatever_its_connection(world: World) -> None:
    old, new = Client(world), Client(world)
    zombie = old.new_producer()
    begin(old, zombie, 0)
    begin(new, new.new_producer(), 0)
    assert old.end(zombie).error_code == ErrorCode.PRODUCER_FENCED


def test_batches_of_no_transaction(world: World) -> None:
    client = Client(world)
    producer = client.new_producer()
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert client.produce(producer, "foo", transactional_id=None) == refused
    assert client.produce(producer, "foo", version=10) == ErrorCode.INVALID_TXN_STATE
    assert client.produce(producer, "foo", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    unknown = Client(world, "unknown")
    unknown.coordinator()
    assert unknown.produce(producer, "foo") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert fetched(world, isolation=0).high_watermark == 0, "nothing was written"
    begin(client, producer, 0)
    plain = client.produce(producer, "foo", is_transactional=False)
    assert plain == ErrorCode.INVALID_TXN_STATE


def test_a_coordinator_that_is_not_reached(world: World) -> None:
    world.create_topic("bar", partitions=3)
    client = Client(world)
    producer = client.new_producer()
    node_id = client.coordinator()
    partition = next(each for each in range(3) if world.leader("bar", each) != node_id)
    assert client.add(producer, "bar", partition) == [NONE]
    world.kill(node_id)
    assert client.produce(producer, "bar", partition) == ErrorCode.NOT_ENOUGH_REPLICAS
    client.coordinator()
    assert client.produce(producer, "bar", partition) == NONE


def test_the_next_coordinator_ends_what_is_open(world: World, client: Client) -> None:
    producer = client.new_producer()
    begin(client, producer, 0)
    before = client.coordinator()
    world.kill(before)
    answer = client.end(producer)
    assert answer.error_code == NONE
    assert fetched(world, isolation=1).last_stable_offset == 2
    assert client.coordinator() != before


# -- administrators -------------------------------------------------------------------------------------------------


def test_transactions_are_listed(world: World) -> None:
    producers = {}
    for name in ("a", "b"):
        client = Client(world, name)
        producers[name] = client.new_producer()
        if name == "b":
            begin(client, producers[name], 0)

    def listed(**filters: Any) -> set[tuple[str, str]]:
        found = set()
        for node_id in world.nodes:
            body = ListTransactionsRequest(**filters)
            answer = ask(world, node_id, ApiKey.LIST_TRANSACTIONS, 2, body, ListTransactionsResponse)
            assert answer.error_code == NONE
            assert answer.unknown_state_filters == [x for x in filters.get("state_filters", ()) if x == "Odd"]
            found |= {(each.transactional_id, each.transaction_state) for each in answer.transaction_states}
        return found

    assert listed() == {("a", "Empty"), ("b", "Ongoing")}
    assert listed(state_filters=["Ongoing", "Odd"]) == {("b", "Ongoing")}
    assert listed(producer_id_filters=[producers["a"][0]]) == {("a", "Empty")}
    assert listed(duration_filter=0) in ({("b", "Ongoing")}, set())
    assert listed(duration_filter=1 << 40) == set()
    assert listed(transactional_id_pattern="[b-z]") == {("b", "Ongoing")}
    for pattern in ("(", "(a|b){500}"):
        odd = ListTransactionsRequest(transactional_id_pattern=pattern)
        refused = ask(world, 1, ApiKey.LIST_TRANSACTIONS, 2, odd, ListTransactionsResponse)
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_administrator_aborts_but_does_not_commit(world: World) -> None:
    client = Client(world)
    producer = client.new_producer()
    begin(client, producer, 0)

    def write(*, is_commit: bool, epoch: int = 0, coordinator_epoch: int = 100) -> int:
        marker = WritableTxnMarker(
            producer_id=producer[0],
            producer_epoch=epoch,
            transaction_result=is_commit,
            coordinator_epoch=coordinator_epoch,
            topics=[WritableTxnMarkerTopic(name="foo", partition_indexes=[0])],
        )
        body = WriteTxnMarkersRequest(markers=[marker])
        answer = ask(world, world.leader("foo"), ApiKey.WRITE_TXN_MARKERS, 1, body, WriteTxnMarkersResponse)
        return answer.markers[0].topics[0].partitions[0].error_code

    assert write(is_commit=True) == ErrorCode.INVALID_REQUEST
    assert write(is_commit=False, epoch=-1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetched(world, isolation=1).last_stable_offset == 0
    assert write(is_commit=False) == NONE
    found = fetched(world, isolation=1)
    assert found.last_stable_offset == found.high_watermark == 2
    assert len(found.aborted_transactions or ()) == 1
    assert write(is_commit=False) == NONE
    assert fetched(world, isolation=1).high_watermark == 2, "nothing was open any more"
    assert client.end(producer, is_commit=False).error_code == NONE, "its own markers come later"
    assert write(is_commit=False, coordinator_epoch=-1) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_follower_forgets_transactions_that_have_ended(world: World, client: Client) -> None:
    """Nobody asks it for its last stable offset."""
    producer = client.new_producer()
    for _ in range(3):
        begin(client, producer, 0)
        assert client.produce(producer, "foo", 0) == ErrorCode.NONE
        ended = client.end(producer)
        assert ended.error_code == ErrorCode.NONE
        if client.is_second_version:
            producer = ended.producer_id, ended.producer_epoch
        pass_time(world, 1)
    leader = world.leader("foo")
    for follower in set(world.ids) - {leader}:
        states = world.replica(follower, "foo").producers
        assert states.entries and not states._ending


def test_a_shard_that_is_loaded_anew_sends_no_markers_before_the_end_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a write that was refused. If the leadership ends before, the next coordinator may abort."""
    with running(settings=FEW) as world:
        world.create_topic("foo", partitions=2)
        client = Client(world, version=1)
        producer = client.new_producer()
        begin(client, producer, 0)
        node_id = client.coordinator()
        coordinator = world.nodes[node_id].coordinators.transactions
        replica = world.replica(node_id, "__transaction_state", partition_of("t", 3))
        ended: list[EndedTransaction] = []
        monkeypatch.setattr(coordinator._markers, "send", ended.append)
        monkeypatch.setattr(coordinator._controller, "catch_up", lambda done: done(True))
        heal = world.network.partition(
            [f"n{node_id}"], [f"n{other}" for other in world.ids if other != node_id]
        )
        end = EndTransaction("t", ProducerIdAndEpoch(*producer), True, 0, connection=10**9)
        world.processes[node_id].call(coordinator.ask, end, lambda answer: None)
        pass_time(world, 0.01)
        led = coordinator._runtime._led[replica.partition]
        world.processes[node_id].call(coordinator._runtime.reload_shard, led)
        pass_time(world, 0.1)
        assert replica.is_serving and replica.high_watermark < replica.next_offset
        assert not ended
        heal()
        world.wait(lambda: bool(ended))
        assert replica.high_watermark == replica.next_offset
