"""Fetch: long polls end with their clients, and an answer shows the log as it is when the answer is sent."""

from __future__ import annotations

import pytest

from broker.handlers import fetch
from broker.metadata.ids import METADATA_TOPIC_ID
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.records.batch import iter_batches
from tests.broker.asking import ask
from tests.broker.world import World, running
from tests.simulator.client import Connection

FOR_EVER_MS = 2**31 - 1


def _request(name: str, offset: int = 0, max_wait_ms: int = 0, max_bytes: int = 1 << 20) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topic = FetchTopic(topic=name, partitions=[partition])
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def _parked(world: World, node_id: int) -> int:
    return world.replica(node_id, "foo").waits.fetch_count


def test_a_long_poll_ends_soon_after_its_client_disconnected() -> None:
    """Otherwise a client that reconnects again and again fills the memory: a poll may wait for up to 24 days."""
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        world.leader("foo")

        async def poll() -> None:
            connection = Connection()
            await world.network.of("client").connect("n1", 9092, lambda: connection)
            body = _request("foo", max_wait_ms=FOR_EVER_MS)
            await connection.request(ApiKey.FETCH, 11, body, FetchResponse)

        tasks = [world.loop.create_task(poll()) for _ in range(3)]
        world.wait(lambda: _parked(world, 1) == 3)
        world.wait(lambda: all(task.done() for task in tasks))  # each client has closed its connection
        assert all(isinstance(task.exception(), TimeoutError) for task in tasks)
        world.loop.run_for(fetch.CHECK_CLIENT_S + 1)
        assert _parked(world, 1) == 0


@pytest.mark.parametrize(
    ("min_bytes", "max_bytes", "partition_max_bytes", "is_waited_for"),
    [
        (2_000_000, 1_000_000, 10_000_000, False),
        (1 << 20, 50 << 20, 1 << 20, False),
        (1 << 20, 1 << 20, 10 << 20, False),
        (3_000_000, 50 << 20, 50 << 20, False),
        (3_100_000, 50 << 20, 50 << 20, True),
        (2_000_000, 50 << 20, 1 << 20, True),
    ],
)
def test_a_fetch_waits_for_min_bytes_unless_its_other_limits_are_reached(
    min_bytes: int, max_bytes: int, partition_max_bytes: int, is_waited_for: bool
) -> None:
    """Whole batches hardly ever fill a limit exactly. Without this rule such a fetch would wait for its whole
    max_wait."""
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        for _ in range(30):
            world.produce("foo", b"x" * 100_000)
        body = _request("foo", max_wait_ms=1000, max_bytes=partition_max_bytes)
        body.min_bytes, body.max_bytes = min_bytes, max_bytes
        begun_s = world.loop.time()
        answer = ask(world, 1, ApiKey.FETCH, 11, body, FetchResponse)
        assert (world.loop.time() - begun_s >= 1) == is_waited_for
        records = answer.responses[0].partitions[0].records
        assert records is not None and len(records) > 900_000


def test_a_long_poll_whose_client_stays_connected_waits_for_max_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "CHECK_CLIENT_S", 0.2)
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        world.leader("foo")
        begun_s = world.loop.time()
        answer = ask(world, 1, ApiKey.FETCH, 11, _request("foo", max_wait_ms=700), FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        assert 0.7 <= world.loop.time() - begun_s < 0.8


def test_out_of_range_is_decided_again_when_the_leader_is_confirmed() -> None:
    """The leader may change, even twice, before a majority has answered, and may have the records then."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        node, replica = world.nodes[leader], world.replica(leader, "foo")
        codes: list[int] = []

        async def fetch_ahead() -> None:
            connection = Connection()
            await world.network.of("client").connect(f"n{leader}", 9092, lambda: connection)
            body = _request("foo", offset=1)
            answer = await connection.request(ApiKey.FETCH, 11, body, FetchResponse)
            codes.append(answer.responses[0].partitions[0].error_code)

        world.loop.create_task(fetch_ahead())
        world.wait(lambda: bool(node.reads._waiting))
        assert replica.log.end_offset == 0 and not codes
        world.produce("foo", b"a", b"b")
        world.wait(lambda: bool(codes))
        assert codes == [ErrorCode.NONE]


def test_a_storage_error_is_not_leader_in_versions_that_do_not_know_it() -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        world.produce("foo", b"a" * 500)
        world.disks[1].flip_bits("/n1/foo-0/00000000000000000000.log", 8, 4, count=8)
        world.loop.run_for(2)
        world.kill(1)
        world.start(1)
        world.wait_ready()
        assert ("foo", 0) not in world.nodes[1].replicas.by_name
        codes = [
            ask(world, 1, ApiKey.FETCH, version, _request("foo"), FetchResponse)
            .responses[0]
            .partitions[0]
            .error_code
            for version in (5, 6)
        ]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_log_that_a_fetch_finds_corrupt_is_quarantined_and_the_node_goes_on() -> None:
    with running() as world:
        world.create_topic("foo")
        for _ in range(3):
            world.produce("foo", b"a" * 500)
        world.wait_equal("foo")
        leader = world.leader("foo")
        directory_id = world.nodes[leader].me.directory_id.bytes
        world.disks[leader].flip_bits(f"/n{leader}/foo-0/00000000000000000000.log", 8, 4, count=8)
        # The first batch's length. With one byte of room the log reads the header of the batch before the offset.
        answer = ask(world, leader, ApiKey.FETCH, 11, _request("foo", 1, max_bytes=1), FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        world.wait(lambda: (leader, directory_id, 1) in world.voters("foo"))
        world.wait_equal("foo")


def test_clients_do_not_read_the_metadata_log() -> None:
    with running(size=1) as world:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])
        body = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])
        answer = ask(world, 1, ApiKey.FETCH, 13, body, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_last_entry_of_a_partition_that_is_named_twice_counts() -> None:
    """As in Kafka. Otherwise a long poll would scan a partition once for each entry, and 8 MiB can have half a million
    entries of one partition."""
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        world.produce("foo", b"a")
        world.produce("foo", b"b")
        body = _request("foo", offset=0)
        body.topics[0].partitions += _request("foo", offset=1).topics[0].partitions
        answer = ask(world, 1, ApiKey.FETCH, 11, body, FetchResponse)
        [data] = answer.responses[0].partitions
        assert isinstance(data.records, memoryview)
        assert [header.base_offset for _, header in iter_batches(data.records)] == [1]
