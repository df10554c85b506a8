"""Quotas: a client above its quota is answered at once, gets a throttle time, and is not read for so long."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from broker.metadata.records import Entity
from broker.scheduling.ticks import Ticks
from broker.serving.quotas import ClientQuotas, Meter
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntry,
    OpData,
)
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from tests.broker.asking import ask, connect
from tests.broker.world import World, running
from tests.simulator.client import Connection
from tests.simulator.loop import new_loop

T = TypeVar("T")
PRODUCE, FETCH, REQUESTS, CONNECTIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "connection_creation_rate",
)
#: The client id of `tests.simulator.client.Connection`.
SIM: Entity = (("client-id", "sim"),)
ANY_CLIENT: Entity = (("client-id", None),)


# -- the measure ------------------------------------------------------------------------------------------


def test_savings_may_be_used_at_once_and_more_is_throttled() -> None:
    """A client saves up to ten seconds, and is throttled for what it uses above that."""
    meter = Meter()
    assert meter.use(1000, limit=100, saved_s=10, now=100.0) == 0
    assert meter.use(150, limit=100, saved_s=10, now=100.0) == pytest.approx(1.5)
    assert meter.use(0, limit=100, saved_s=10, now=101.5) == 0
    assert meter.use(100, limit=100, saved_s=10, now=102.5) == 0
    assert meter.use(100, limit=100, saved_s=10, now=102.5) == pytest.approx(1)
    assert not meter.is_idle(113.4)
    assert meter.is_idle(113.6)


def test_a_negative_charge_takes_the_last_one_back() -> None:
    meter = Meter()
    assert meter.use(10, limit=1, saved_s=10, now=1.0) == 0
    assert meter.use(7, limit=1, saved_s=10, now=1.0) == 7
    assert meter.use(-7, limit=1, saved_s=10, now=1.0) == 0


def quotas(*limits: tuple[Entity, dict[str, float]]) -> ClientQuotas:
    """Quotas with a clock that stands still. One second can be saved."""
    made = ClientQuotas(2, 1.0, lambda: 100.0, Ticks(new_loop()))
    for entity, values in limits:
        made.set_limits(entity, values)
    return made


def entity(**names: str | None) -> Entity:
    return tuple(sorted((kind.replace("_", "-"), name) for kind, name in names.items()))


def test_the_closest_quota_counts() -> None:
    """Each limit has another value, so the throttle time shows which limit was applied. They are ordered by
    precedence."""
    order = [
        entity(user="ANONYMOUS", client_id="sim"),
        entity(user="ANONYMOUS", client_id=None),
        entity(user="ANONYMOUS"),
        entity(user=None, client_id="sim"),
        entity(user=None, client_id=None),
        entity(user=None),
        entity(client_id="sim"),
        entity(client_id=None),
    ]
    limits = [(each, {PRODUCE: float(10 * number)}) for number, each in enumerate(order, start=1)]
    while limits:
        closest = limits[0][1][PRODUCE]
        assert quotas(*reversed(limits)).charge_produce("sim", 1000) == round((1000 / closest - 1) * 1000)
        del limits[0]


def test_each_kind_has_the_closest_quota_that_limits_it() -> None:
    made = quotas((entity(user="ANONYMOUS"), {FETCH: 100.0}), (SIM, {PRODUCE: 200.0}))
    assert made.charge_produce("sim", 400) == 1000
    assert made.charge_fetch("sim", 50) == 0
    assert made.charge_fetch("sim", 250) == 2000
    assert made.charge_produce("other", 10**9) == 0


def test_clients_share_only_limits_of_their_user() -> None:
    of_user = quotas((entity(user="ANONYMOUS"), {PRODUCE: 100.0}))
    assert of_user.charge_produce("a", 100) == 0
    assert of_user.charge_produce("b", 100) == 1000
    of_each = quotas((ANY_CLIENT, {PRODUCE: 100.0}))
    assert of_each.charge_produce("a", 100) == 0
    assert of_each.charge_produce("b", 100) == 0
    assert of_each.charge_produce("a", 100) == 1000


def test_a_batch_larger_than_the_maximum_savings_is_sent_and_throttles_afterwards() -> None:
    """Otherwise the batch could never be fetched."""
    moment = [100.0]
    made = ClientQuotas(2, 1.0, lambda: moment[0], Ticks(new_loop()))
    made.set_limits(SIM, {FETCH: 100.0})
    assert made.charge_fetch("sim", 500) == 0
    assert made.charge_fetch("sim", 10) == 4100
    moment[0] = 104.1
    assert made.charge_fetch("sim", 500) == pytest.approx(4900, abs=2), "the deficit is not saved again yet"
    moment[0] = 105.0
    assert made.charge_fetch("sim", 500) == 0


def test_without_a_quota_nothing_is_measured() -> None:
    made = quotas((SIM, {PRODUCE: 1.0}))
    assert made.limits_produce and not made.limits_fetch
    made.set_limits(SIM, {FETCH: 2.0})
    assert made.limits_fetch and not made.limits_produce
    made.set_limits(SIM, {})
    assert not (made.limits_fetch or made.limits_produce or made.limits_requests or made.limits_connections)


def test_meters_of_idle_clients_are_dropped() -> None:
    moment = [100.0]
    made = ClientQuotas(2, 1.0, lambda: moment[0], Ticks(new_loop()))
    made.set_limits(ANY_CLIENT, {PRODUCE: 1000.0})
    for number in range(50):
        made.charge_produce(f"client {number}", 1)
    assert len(made._meters) == 50
    moment[0] = 102.0
    made.drop_idle_meters(moment[0])
    assert not made._meters


def test_inventing_client_ids_costs_little_and_helps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above so many clients, further ones share a meter. Long client ids are not kept."""
    monkeypatch.setattr("broker.serving.quotas._MAX_METERS", 100)
    made = ClientQuotas(11, 1.0, lambda: 100.0, Ticks(new_loop()))
    made.set_limits(ANY_CLIENT, {PRODUCE: 1000.0, FETCH: 1000.0})
    for number in range(100):
        assert made.charge_produce(f"{number}" + "x" * 30_000, 1) == 0
    assert made.charge_produce("99" + "x" * 30_000, 10_000) > 0, "a long client id has a meter of its own"
    throttled = [made.charge_produce(f"invented {number}", 1000) > 0 for number in range(30)]
    assert throttled == [False] * 10 + [True] * 20
    assert made.charge_fetch("invented 5", 20_000) == 0 and made.charge_fetch("invented 6", 1) > 0
    assert len(made._meters) == 102
    assert sum(len(name) for _, sharers in made._meters for name in sharers) < 20_000
    assert sum(len(client_id) for _, client_id in made._limit_cache) < 1_000


# -- on a node --------------------------------------------------------------------------------------------


def alter(world: World, of: Entity, **limits: float | None) -> None:
    """The quota is in force on every node when this returns."""
    entry = AlterEntry(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in of],
        ops=[OpData(key=key, value=limit or 0.0, remove=limit is None) for key, limit in limits.items()],
    )
    body = AlterClientQuotasRequest(entries=[entry])
    answer = ask(world, 1, ApiKey.ALTER_CLIENT_QUOTAS, 1, body, AlterClientQuotasResponse)
    assert [x.error_code for x in answer.entries] == [ErrorCode.NONE], answer
    wanted = {key: limit for key, limit in limits.items() if limit is not None}
    world.wait(lambda: all(x.metadata.image.quotas.get(of, {}) == wanted for x in world.nodes.values()))


def described(world: World, node_id: int) -> list[tuple[Entity, dict[str, float]]]:
    body = DescribeClientQuotasRequest(components=[])
    answer = ask(world, node_id, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, body, DescribeClientQuotasResponse)
    assert answer.entries is not None
    return [
        (
            tuple((x.entity_type, x.entity_name) for x in entry.entity),
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


def run(world: World, work: Coroutine[Any, Any, T]) -> T:
    task = world.loop.create_task(work)
    world.wait(task.done)
    return task.result()


def produce_request(size_bytes: int, acks: int = -1) -> ProduceRequest:
    batch = build_batch([NewRecord(None, b"x" * size_bytes, 1_735_689_600_000)])
    partition = PartitionProduceData(index=0, records=memoryview(batch))
    topic = TopicProduceData(name="foo", partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def fetch_request(offset: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="foo", partitions=[partition])
    return FetchRequest(
        replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[topic]
    )


async def timed(answer: Coroutine[Any, Any, T]) -> tuple[float, T]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    value = await answer
    return loop.time() - began, value


def test_a_producer_above_its_quota_is_answered_at_once_and_then_not_read() -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        world.leader("foo")
        alter(world, SIM, producer_byte_rate=1000.0)

        async def work() -> None:
            connection, other = await connect(world), await connect(world)
            took, first = await timed(
                connection.request(ApiKey.PRODUCE, 11, produce_request(9000), ProduceResponse)
            )
            assert took < 0.1 and first.throttle_time_ms == 0
            took, second = await timed(
                connection.request(ApiKey.PRODUCE, 11, produce_request(2500), ProduceResponse)
            )
            assert second.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert took < 0.1 and 500 < second.throttle_time_ms < 2000
            took, _ = await timed(
                other.request(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse)
            )
            assert took < 0.1, "another connection is not muted"
            took, _ = await timed(
                connection.request(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse)
            )
            assert took == pytest.approx(second.throttle_time_ms / 1000, abs=0.1)
            took, _ = await timed(
                connection.request(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse)
            )
            assert took < 0.1, "once"

        run(world, work())


def test_pipelined_requests_wait_for_the_throttle_time_too() -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        world.leader("foo")
        alter(world, ANY_CLIENT, producer_byte_rate=1000.0)

        async def work() -> None:
            connection = await connect(world)
            connection.tell(ApiKey.PRODUCE, 11, produce_request(11_000, acks=0))
            took, _ = await timed(
                connection.request(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse)
            )
            assert 0.1 < took < 1.5, "the connection is muted also with acks=0"

        run(world, work())


def test_a_consumer_above_its_quota_gets_no_records_for_the_throttle_time() -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        for _ in range(3):
            world.produce("foo", b"x" * 19_000)
        alter(world, SIM, consumer_byte_rate=5000.0)

        async def work() -> None:
            connection = await connect(world)
            began_s = world.loop.time()
            throttled = []
            offset = 0
            while offset < 3:
                answer = await connection.request(ApiKey.FETCH, 12, fetch_request(offset), FetchResponse)
                if answer.responses:
                    assert answer.throttle_time_ms == 0
                    records = answer.responses[0].partitions[0].records
                    assert isinstance(records, memoryview)
                    offset += sum(1 for _ in iter_batches(records))
                else:
                    throttled.append(answer.throttle_time_ms)
            assert len(throttled) == 1
            assert world.loop.time() - began_s == pytest.approx(1.4, abs=0.2), "57 kB at 5 kB/s, 50 saved"

        run(world, work())


def test_a_throttled_fetch_keeps_its_session_and_creates_no_new_one() -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        for _ in range(3):
            world.produce("foo", b"x" * 9000)
        alter(world, SIM, consumer_byte_rate=5000.0)

        async def work() -> None:
            connection = await connect(world)

            async def fetch(offset: int, session_id: int, epoch: int) -> FetchResponse:
                body = fetch_request(offset)
                body.session_id, body.session_epoch = session_id, epoch
                return await connection.request(ApiKey.FETCH, 12, body, FetchResponse)

            first = await fetch(0, 0, 0)
            assert first.session_id and first.responses
            throttled = await fetch(0, first.session_id, 1)
            assert throttled.throttle_time_ms and not throttled.responses
            assert (throttled.session_id, throttled.error_code) == (first.session_id, ErrorCode.NONE)
            again = await fetch(0, first.session_id, 2)
            assert again.responses and not again.throttle_time_ms
            refused = await fetch(0, 0, 0)
            assert refused.throttle_time_ms and refused.session_id == 0

        run(world, work())
        assert len(world.nodes[1].context.fetch_sessions) == 1


def test_a_request_quota_charges_time_and_every_answer_has_the_throttle_time() -> None:
    """A request costs a millisecond in the simulation (SimulatedClock.worked_s). Ten requests are 1 % of a second."""
    with running(size=1) as world:
        alter(world, SIM, request_percentage=0.1)

        async def work() -> None:
            connection = await connect(world)
            waits = []
            for _ in range(20):
                answer = await connection.request(
                    ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse
                )
                waits.append(answer.throttle_time_ms)
            assert waits[0] == 0 and 0 < max(waits) <= 1000

        run(world, work())


def test_new_connections_of_an_address_are_limited() -> None:
    with running(size=1, settings={"quota.window.num": "2"}) as world:
        alter(world, (("ip", None),), connection_creation_rate=5.0)
        world.loop.run_for(2.5)

        async def works(connection: Connection) -> bool:
            if connection.is_lost:
                return False
            try:
                await connection.request(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse)
            except ConnectionError:
                return False
            return True

        async def work() -> None:
            connections = [await connect(world) for _ in range(20)]
            taken = [await works(connection) for connection in connections]
            assert 5 <= sum(taken) < 12 and taken[0] and not taken[-1]

        run(world, work())


def test_quotas_are_described_by_every_broker_and_outlive_restarts() -> None:
    with running() as world:
        of_user = entity(user="u", client_id=None)
        alter(world, SIM, producer_byte_rate=5e9, request_percentage=50.5)
        alter(world, of_user, consumer_byte_rate=7.0)
        expected = [(SIM, {PRODUCE: 5e9, REQUESTS: 50.5}), (of_user, {FETCH: 7.0})]
        for node_id in world.nodes:
            assert described(world, node_id) == expected
        for node_id in (1, 2, 3):
            world.kill(node_id)
        world.start_all()
        world.wait(lambda: described_by_image(world, 2) == 2)
        assert described(world, 2) == expected
        assert world.nodes[2].quotas.limits_produce
        alter(world, SIM, producer_byte_rate=None, request_percentage=None)
        assert described(world, 3) == expected[1:]
        assert not world.nodes[3].quotas.limits_produce


def described_by_image(world: World, node_id: int) -> int:
    return len(world.nodes[node_id].metadata.image.quotas)
