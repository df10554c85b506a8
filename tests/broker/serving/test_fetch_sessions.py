"""Fetch sessions (KIP-227): incremental answers give a client the same data as full ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.serving.fetch_scan import FetchScan
from broker.serving.fetch_sessions import (
    EVICTABLE_S,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    FetchSessions,
    FetchTarget,
    next_epoch,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from protocol.schema import NIL_UUID
from tests.broker.asking import ask
from tests.broker.world import World, running
from tests.simulator.client import Connection

VERSION = 16
OK = ErrorCode.NONE


# -- the cache ---------------------------------------------------------------------------------------------


def topics(*partitions: int, name: str = "foo") -> list[FetchTopic]:
    wanted = [FetchPartition(partition=x, fetch_offset=0, partition_max_bytes=1 << 20) for x in partitions]
    return [FetchTopic(topic=name, partitions=wanted)]


class Cache:
    """Sessions by name, and a clock."""

    def __init__(self, slots: int, max_partitions: int = 1000) -> None:
        self.now = 0.0
        self.sessions = FetchSessions(slots, max_partitions, random.Random(1))
        self.named: dict[str, FetchSession] = {}

    def begin(self, name: str, size: int) -> bool:
        session = self.sessions.new_session(topics(*range(size)), self.now, by_id=False)
        if session is None:
            return False
        session.add_topics(topics(*range(size)), by_id=False)
        self.sessions.keep(session, self.now)
        self.named[name] = session
        return True

    def use(
        self,
        name: str,
        epoch: int | None = None,
        added: Sequence[FetchTopic] = (),
        forgotten: Sequence[ForgottenTopic] = (),
        *,
        by_id: bool = False,
    ) -> ErrorCode:
        """The code that the next request of a session gets."""
        known = self.named[name]
        try:
            session = self.sessions.find(
                known.session_id, known.epoch if epoch is None else epoch, added, by_id=by_id
            )
            session.add_topics(added, by_id=by_id)
            session.remove_topics(forgotten, by_id=by_id)
            if self.sessions.resume(session, self.now):
                session.start_request(0)
                session.complete_request()
        except KafkaError as error:
            return error.code
        return OK


def test_an_unused_session_is_evicted() -> None:
    cache = Cache(2)
    assert cache.begin("a", 3) and cache.begin("b", 3)
    cache.now = EVICTABLE_S - 1
    assert cache.use("a") == OK
    assert not cache.begin("c", 3), "no session is smaller or unused"
    cache.now = EVICTABLE_S + 1
    assert cache.begin("c", 1), "b is unused for long enough"
    assert (cache.use("a"), cache.use("b"), cache.use("c")) == (OK, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, OK)


def test_an_old_session_is_evicted_for_a_larger_one() -> None:
    cache = Cache(2)
    assert cache.begin("small", 2) and cache.begin("large", 5)
    for cache.now in (EVICTABLE_S - 1, EVICTABLE_S + 1):
        assert (cache.use("small"), cache.use("large")) == (OK, OK)
        assert not cache.begin("as small", 2)
        assert cache.begin("larger", 3) == (cache.now > EVICTABLE_S)
    assert cache.use("small") == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.use("large") == OK


def test_partitions_are_bounded_over_all_sessions() -> None:
    cache = Cache(100, max_partitions=10)
    assert cache.begin("a", 6)
    assert not cache.begin("b", 5)
    assert cache.begin("c", 4)
    assert cache.use("c", added=topics(7)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.begin("d", 4), "the session that grew beyond the bound is evicted"
    assert cache.use("a", forgotten=[ForgottenTopic(topic="foo", partitions=[0])]) == OK
    assert cache.begin("e", 0) is False
    assert cache.begin("f", 1), "removed partitions leave room"


def test_without_slots_there_are_no_sessions() -> None:
    assert not Cache(0).begin("a", 1)


def test_epochs_wrap_around_to_1() -> None:
    assert next_epoch(INITIAL_EPOCH) == 1
    assert next_epoch(2**31 - 1) == 1
    assert next_epoch(2**31 - 2) == 2**31 - 1


# -- in a node ---------------------------------------------------------------------------------------------


class Consumer:
    """A client with a session: what it fetches, and what it knows from the answers."""

    def __init__(self, world: World, topic: str) -> None:
        self.world = world
        self.record = world.create_topic(topic, 4, 1)
        for partition in range(4):
            world.leader(topic, partition)
        self.session_id = 0
        self.epoch = INITIAL_EPOCH

    def fetch(
        self,
        changed: dict[int, int] | None = None,
        forgotten: tuple[int, ...] = (),
        *,
        epoch: int | None = None,
        session_id: int | None = None,
        version: int = VERSION,
        max_bytes: int = 1 << 20,
        isolation_level: int = 0,
    ) -> FetchResponse:
        return ask(
            self.world,
            1,
            ApiKey.FETCH,
            version,
            self.request(
                changed or {},
                forgotten,
                session_id=self.session_id if session_id is None else session_id,
                epoch=self.epoch if epoch is None else epoch,
                version=version,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
            ),
            FetchResponse,
        )

    def request(
        self,
        changed: dict[int, int],
        forgotten: tuple[int, ...] = (),
        *,
        session_id: int,
        epoch: int,
        version: int = VERSION,
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 0,
        isolation_level: int = 0,
    ) -> FetchRequest:
        wanted = [
            FetchPartition(partition=x, fetch_offset=offset, partition_max_bytes=1 << 20)
            for x, offset in changed.items()
        ]
        by_id = version >= 13
        name = "" if by_id else self.record.name
        topic_id = self.record.topic_id if by_id else NIL_UUID
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(topic=name, topic_id=topic_id, partitions=list(forgotten))]
            if forgotten
            else [],
        )

    def begin(self, positions: dict[int, int]) -> FetchResponse:
        answer = self.fetch(positions, epoch=INITIAL_EPOCH)
        assert answer.error_code == OK and answer.session_id
        self.session_id, self.epoch = answer.session_id, 1
        return answer

    def next(self, changed: dict[int, int] | None = None, *forgotten: int) -> list[tuple[int, int, int]]:
        """The next request of the session: (partition, error, records' bytes) of what the answer names."""
        answer = self.fetch(changed, forgotten)
        assert (answer.error_code, answer.session_id) == (OK, self.session_id)
        self.epoch += 1
        return told(answer)


def told(answer: FetchResponse) -> list[tuple[int, int, int]]:
    return [(x.partition_index, x.error_code, len(x.records or b"")) for x in partitions(answer)]


def partitions(answer: FetchResponse) -> list[PartitionData]:
    return [data for topic in answer.responses for data in topic.partitions]


def test_an_answer_in_a_session_names_what_changed() -> None:
    """Apache Kafka 4.3.1 answered the same to the same steps."""
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        assert told(consumer.begin({0: 0, 1: 0, 9: 0})) == [(0, 0, 0), (1, 0, 0), (9, 3, 0)]
        assert consumer.next() == [(9, 3, 0)], "an error is repeated until it is over"
        assert consumer.next({}, 9) == []
        world.produce("foo", b"x", partition=1)
        size = len(world.content(1, "foo", 1))
        assert consumer.next() == [(1, 0, size)]
        assert consumer.next() == [(1, 0, size)], "the client has not advanced its offset"
        assert consumer.next({1: 1}) == []
        assert consumer.next({1: 77}) == [(1, ErrorCode.OFFSET_OUT_OF_RANGE, 0)]
        assert consumer.next({1: 1}) == [(1, 0, 0)], "after an error the watermarks are sent again"
        assert consumer.next() == []
        assert consumer.next({2: 0}) == [(2, 0, 0)]
        answer = consumer.fetch({}, (0, 1, 2))
        assert (answer.error_code, answer.session_id, answer.responses) == (OK, 0, []), (
            "the session has ended"
        )
        assert consumer.fetch(epoch=6).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_request_that_does_not_fit_the_session_changes_nothing() -> None:
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        consumer.begin({0: 0})
        for changes, code in [
            ({"epoch": 7}, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            ({"session_id": consumer.session_id ^ 1}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ({"session_id": 0}, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ({"epoch": -5}, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
            ({"version": 12}, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
        ]:
            answer = consumer.fetch({3: 0}, **changes)  # type: ignore[arg-type]
            assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])
        assert consumer.next() == []


def test_a_full_fetch_ends_the_session_that_it_names() -> None:
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        sessions = world.nodes[1].context.fetch_sessions
        consumer.begin({0: 0})
        first = consumer.session_id
        consumer.begin({0: 0})
        assert consumer.session_id != first and len(sessions) == 1
        answer = consumer.fetch({0: 0}, epoch=FINAL_EPOCH)
        assert (answer.session_id, told(answer)) == (0, [(0, 0, 0)]) and len(sessions) == 0
        assert world.replica(1, "foo").waits.fetch_count == 0, "no target waits for the replica"


def test_isolation_may_change_within_a_session() -> None:
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        world.produce("foo", b"x")
        consumer.begin({0: 0})
        for level, aborted in ((1, []), (0, None)):
            [data] = partitions(consumer.fetch(isolation_level=level))
            consumer.epoch += 1
            assert data.aborted_transactions == aborted


def test_partitions_share_the_byte_limit_in_turns() -> None:
    """Each answer has room for one batch. Partitions take turns."""
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        for partition in range(4):
            world.produce("foo", b"x" * 100, partition=partition)
        answer = consumer.fetch(dict.fromkeys(range(4), 0), epoch=INITIAL_EPOCH, max_bytes=1)
        consumer.session_id, consumer.epoch = answer.session_id, 1
        served = [[x.partition_index for x in partitions(answer) if x.records]]
        for _ in range(5):
            answer = consumer.fetch(max_bytes=1)
            consumer.epoch += 1
            served.append([x.partition_index for x in partitions(answer) if x.records])
        assert served == [[0], [1], [2], [3], [0], [1]]


class Poll:
    """A request of a session that waits, on a connection of its own."""

    def __init__(self, consumer: Consumer, max_wait_ms: int = 1000, isolation_level: int = 0) -> None:
        self.connection = Connection()
        world = consumer.world
        body = consumer.request(
            {},
            session_id=consumer.session_id,
            epoch=consumer.epoch,
            max_wait_ms=max_wait_ms,
            isolation_level=isolation_level,
        )

        async def poll() -> FetchResponse:
            await world.network.of("client").connect("n1", 9092, lambda: self.connection)
            return await self.connection.request(ApiKey.FETCH, VERSION, body, FetchResponse)

        self.task = world.loop.create_task(poll())
        consumer.epoch += 1
        session = world.nodes[1].context.fetch_sessions._sessions[consumer.session_id]
        world.wait(lambda: session.on_due is not None)


def test_a_long_poll_of_a_session_scans_only_changed_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        consumer.begin(dict.fromkeys(range(4), 0))
        looked: list[int] = []
        look_at = FetchScan._scan_target

        def noted(self: FetchScan, target: FetchTarget) -> None:
            looked.append(target.wanted.partition)
            look_at(self, target)

        monkeypatch.setattr(FetchScan, "_scan_target", noted)
        poll = Poll(consumer)
        world.produce("foo", b"x", partition=2)
        world.wait(poll.task.done)
        assert [x for x, _, size in told(poll.task.result()) if size] == [2]
        assert looked == [2]


def test_a_client_at_the_end_gets_a_new_log_start() -> None:
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        world.produce("foo", b"x")
        consumer.begin({0: 1})
        assert consumer.next() == []
        delete_records(world, "foo", 0)
        [data] = partitions(consumer.fetch())
        assert (data.error_code, data.log_start_offset) == (OK, 1)


def test_a_second_request_while_the_first_waits_is_out_of_order() -> None:
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        consumer.begin({0: 0})
        poll = Poll(consumer)
        assert consumer.fetch().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        world.wait(poll.task.done)
        assert poll.task.result().error_code == OK
        assert consumer.next() == []


def test_ending_a_session_ends_its_long_poll() -> None:
    """A consumer that closes sends the request on the connection on which its long poll waits."""
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        consumer.begin({0: 0})
        poll = Poll(consumer, max_wait_ms=60_000)
        assert consumer.fetch(epoch=FINAL_EPOCH).error_code == OK
        world.wait(poll.task.done)
        assert (poll.task.result().error_code, told(poll.task.result())) == (OK, [])


def test_changes_that_a_lost_connection_has_not_delivered_are_sent_again() -> None:
    """The connection ends while a poll waits for more bytes. Another connection goes on with the session."""
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        consumer.begin({0: 0})
        poll = Poll(consumer, max_wait_ms=60_000)
        poll.connection.abort()
        world.wait(poll.task.done)
        assert isinstance(poll.task.exception(), ConnectionError)
        world.produce("foo", b"x")
        size = len(world.content(1, "foo"))
        world.loop.run_for(1)
        assert consumer.next() == [(0, 0, size)]


def test_a_session_survives_a_change_of_leaders() -> None:
    with running() as world:
        consumer = Consumer(world, "foo")
        world.create_topic("bar", 1, 3)
        record = world.nodes[1].metadata.image.topic_named("bar")
        assert record is not None
        consumer.record = record
        consumer.fetch({0: 0}, epoch=FINAL_EPOCH)
        leader = world.leader("bar")
        answer = consumer.begin({0: 0})
        [(_, code, _)] = told(answer)
        assert code == (OK if leader == 1 else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        seen = {code}
        for successor in (1, 2, 1, 3):
            replica = world.replica(world.leader("bar"), "bar")
            if replica.group.self_id.node_id == successor:
                continue
            [to] = [voter for voter in replica.group.configuration.voters if voter.node_id == successor]
            world.processes[replica.group.self_id.node_id].call(replica.driver.transfer_leadership, to)
            world.wait(lambda replica=replica: not replica.is_leader)  # type: ignore[misc]
            assert (leader := world.leader("bar")) == successor
            codes = [code for _, code, _ in consumer.next()]
            assert codes == [OK if leader == 1 else ErrorCode.NOT_LEADER_OR_FOLLOWER]
            seen.update(codes)
            assert consumer.next() == ([] if leader == 1 else [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)])
        assert len(seen) == 2, "node 1 was a leader, and was deposed"


def test_a_topic_that_is_created_again_is_found_by_its_name() -> None:
    with running(size=1) as world:
        consumer = Consumer(world, "foo")
        world.produce("foo", b"x")
        answer = consumer.fetch({0: 1}, epoch=INITIAL_EPOCH, version=12)
        consumer.session_id, consumer.epoch = answer.session_id, 1
        world.delete_topic("foo")
        world.wait(lambda: ("foo", 0) not in world.nodes[1].replicas.by_name)
        session = world.nodes[1].context.fetch_sessions._sessions[consumer.session_id]
        assert [target.replica for target in session.due] == [None], "a closed replica is not kept in memory"
        assert told(consumer.fetch(version=12)) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]
        world.create_topic("foo", 4, 1)
        world.produce("foo", b"y")
        consumer.epoch += 1
        assert told(consumer.fetch(version=12)) == [(0, 0, 0)]
        world.produce("foo", b"z")
        consumer.epoch += 1
        [(_, _, size)] = told(consumer.fetch(version=12))
        assert size


def delete_records(world: World, topic: str, partition: int) -> None:
    """Delete all records of a partition."""
    wanted = DeleteRecordsPartition(partition_index=partition, offset=-1)
    body = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=1000)
    [answer] = ask(world, 1, ApiKey.DELETE_RECORDS, 2, body, DeleteRecordsResponse).topics
    assert answer.partitions[0].error_code == OK


# -- against full fetches ------------------------------------------------------------------------------------

#: Partition 4 does not exist.
STEPS = st.lists(
    st.tuples(st.just("produce"), st.integers(0, 3))
    | st.tuples(st.just("want"), st.tuples(st.integers(0, 4), st.integers(0, 3)))
    | st.tuples(st.just("forget"), st.integers(0, 4))
    | st.tuples(st.just("fetch"), st.integers(0, 1))
    | st.tuples(st.just("delete"), st.integers(0, 3))
    | st.tuples(st.just("poll"), st.integers(0, 3)),
    max_size=25,
)


class Model:
    """A client with a session, and a client that sends full fetches."""

    def __init__(self, world: World, topic: str) -> None:
        self.world = world
        self.consumer = Consumer(world, topic)
        self.wanted = {0: 0, 1: 0}
        self.changed: dict[int, int] = {}
        self.forgotten: list[int] = []
        self.known: dict[int, PartitionData] = {}
        self.level = 0
        self.learn(self.consumer.begin(self.wanted))

    def want(self, target: tuple[int, int]) -> None:
        partition, offset = target
        self.wanted[partition] = self.changed[partition] = offset
        self.forgotten = [x for x in self.forgotten if x != partition]

    def forget(self, partition: int) -> None:
        if len(self.wanted) > 1 and self.wanted.pop(partition, None) is not None:
            self.changed.pop(partition, None)
            self.forgotten.append(partition)
            self.known.pop(partition, None)

    def produce(self, partition: int) -> None:
        self.world.produce(self.consumer.record.name, b"x", partition=partition)

    def delete(self, partition: int) -> None:
        delete_records(self.world, self.consumer.record.name, partition)

    def fetch(self, level: int) -> None:
        self.level = level
        answer = self.consumer.fetch(self.changed, tuple(self.forgotten), isolation_level=level)
        self.consumer.epoch += 1
        self.changed, self.forgotten = {}, []
        self.learn(answer)

    def poll(self, partition: int) -> None:
        """Send a long poll, and produce a record if it waits."""
        self.fetch(self.level)
        if any(data.records or data.error_code for data in self.known.values()):
            return
        poll = Poll(self.consumer, max_wait_ms=100, isolation_level=self.level)
        self.produce(partition)
        self.world.wait(poll.task.done)
        self.learn(poll.task.result())

    def learn(self, answer: FetchResponse) -> None:
        assert (answer.error_code, answer.session_id) == (OK, self.consumer.session_id)
        for data in self.known.values():
            data.records = b""  # a partition that the answer leaves out has no new records
        self.known |= {data.partition_index: data for data in partitions(answer)}
        full = self.consumer.fetch(self.wanted, session_id=0, epoch=FINAL_EPOCH, isolation_level=self.level)
        expected = {data.partition_index: data for data in partitions(full)}
        for data in self.known.values():
            data.aborted_transactions = expected[data.partition_index].aborted_transactions
        assert self.known == expected


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    with running(size=1) as world:
        yield world


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_a_session_gives_the_same_data_as_full_fetches(
    shared_world: World, steps: list[tuple[str, Any]]
) -> None:
    """Whatever is produced, added to the session, named again and removed before."""
    name = f"t{len(shared_world.nodes[1].metadata.image.topics)}"
    model = Model(shared_world, name)
    for step, argument in steps:
        getattr(model, step)(argument)
    model.fetch(model.level)
