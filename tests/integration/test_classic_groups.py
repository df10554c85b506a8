"""Groups of the classic protocol with real clients: they join, share, leave, are killed, and outlive a coordinator."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.integration.harness import BrokerCluster
from tests.integration.test_kcat import KCAT

PARTITIONS = 6
QUIET = {"log_level": 2, "topic.metadata.refresh.interval.ms": 1000}
#: Below what brokers allow by default, so that a killed member is missed soon (settings of the shared cluster).
SESSION_MS = 2000


class Member:
    """A consumer that subscribes, and what happened to it."""

    def __init__(self, cluster: BrokerCluster, topic: str, **settings: object) -> None:
        self.assignments = 0
        self.revoked: list[set[int]] = []
        self.records: list[tuple[int, int]] = []
        # Where the broker assigns, these two are its own settings.
        is_classic = settings.get("group.protocol", "classic") == "classic"
        session = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 200} if is_classic else {}
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": f"{topic}-group",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **session,
                **QUIET,
                **settings,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked.append({each.partition for each in partitions})

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is not None:
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            self.records.append((partition, offset))


def poll_until(members: Iterable[Member], done: Callable[[], bool], what: str, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for: {what}"
        for member in members:
            member.poll()


def share_all(members: list[Member]) -> Callable[[], bool]:
    """Whether every partition has one owner, and everybody has some."""

    def look() -> bool:
        owned = [member.partitions for member in members]
        return all(owned) and sorted(each for some in owned for each in some) == list(range(PARTITIONS))

    return look


def create(cluster: BrokerCluster, topic: str) -> None:
    with cluster.wire() as wire:
        assert wire.create(topic, partitions=PARTITIONS).error_code == 0
    for partition in range(PARTITIONS):
        cluster.leader_of(topic, partition)


def produce(cluster: BrokerCluster, topic: str, count: int) -> set[tuple[int, int]]:
    """So many records into each partition; where they are."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    places: set[tuple[int, int]] = set()

    def reported(error: Any, message: Any) -> None:
        assert error is None, error
        places.add((message.partition(), message.offset()))

    for number in range(count):
        for partition in range(PARTITIONS):
            producer.produce(topic, value=b"%d" % number, partition=partition, on_delivery=reported)
    assert producer.flush(30) == 0
    return places


def committed(cluster: BrokerCluster, topic: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    asked = ConsumerGroupTopicPartitions(f"{topic}-group")
    (future,) = admin.list_consumer_group_offsets([asked]).values()
    return {each.partition: each.offset for each in future.result(timeout=20).topic_partitions}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_partitions(cluster: BrokerCluster, strategy: str) -> None:
    topic = f"share-{strategy}"
    create(cluster, topic)
    settings: dict[str, Any] = {"partition.assignment.strategy": strategy}
    members = [Member(cluster, topic, **settings) for _ in range(3)]
    poll_until(members, share_all(members), "three members share")
    written = produce(cluster, topic, 20)
    poll_until(members, lambda: sum(len(x.records) for x in members) >= len(written), "all records")
    assert sorted(record for member in members for record in member.records) == sorted(written)
    for member in members:
        member.consumer.commit(asynchronous=False)
    left = members.pop()
    left.consumer.close()
    poll_until(members, share_all(members), "two members share")
    for member in members:
        member.records.clear()
    written = produce(cluster, topic, 20)
    poll_until(
        members, lambda: sum(len(x.records) for x in members) >= len(written), "the records after that"
    )
    assert sorted(record for member in members for record in member.records) == sorted(written)
    for member in members:
        member.consumer.commit(asynchronous=False)
        member.consumer.close()
    assert committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), 40)


KILLED = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "session.timeout.ms": int(sys.argv[3]),
    "heartbeat.interval.ms": 200, "log_level": 2})
consumer.subscribe([sys.argv[2].removesuffix("-group")], on_assign=lambda *_: print("assigned", flush=True))
while True:
    consumer.poll(0.1)
"""


def test_the_partitions_of_a_killed_member_are_taken_over(cluster: BrokerCluster) -> None:
    topic = "killed"
    create(cluster, topic)
    member = Member(cluster, topic)
    poll_until([member], share_all([member]), "one member has all")
    arguments = [sys.executable, "-c", KILLED, cluster.bootstrap, f"{topic}-group", str(SESSION_MS)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        poll_until([member], lambda: len(member.partitions) == PARTITIONS // 2, "two members share")
        assert process.stdout is not None and process.stdout.readline() == "assigned\n"
        process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    poll_until([member], share_all([member]), "the one that is left has all")
    assert time.monotonic() - killed < SESSION_MS / 1000 + 2
    member.consumer.close()


def test_a_static_member_comes_back_without_a_rebalance(cluster: BrokerCluster) -> None:
    topic = "static"
    create(cluster, topic)
    long: dict[str, Any] = {"session.timeout.ms": 10_000}
    members = [Member(cluster, topic, **{"group.instance.id": f"i{number}"}, **long) for number in range(2)]
    poll_until(members, share_all(members), "two members share")
    stays, leaves = members
    before, partitions = stays.assignments, leaves.partitions
    leaves.consumer.close()
    back = Member(cluster, topic, **{"group.instance.id": "i1"}, **long)
    poll_until([stays, back], lambda: back.partitions == partitions, "its partitions are its again")
    assert stays.assignments == before
    for member in (stays, back):
        member.consumer.close()
    # They did not say that they left; an administrator does.
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    described = admin.describe_consumer_groups([f"{topic}-group"])[f"{topic}-group"].result(timeout=20)
    assert {member.group_instance_id for member in described.members} == {"i0", "i1"}


def test_a_group_outlives_its_coordinator(make_cluster: Callable[..., BrokerCluster]) -> None:
    own = make_cluster(group__initial__rebalance__delay__ms="0", group__min__session__timeout__ms="1000")
    topic = "outlives"
    create(own, topic)
    # The client itself gives its session up without an answer for that long, and an election on a loaded machine takes
    # more than SESSION_MS.
    members = [Member(own, topic, **{"session.timeout.ms": 30_000}) for _ in range(2)]
    poll_until(members, share_all(members), "two members share")
    written = produce(own, topic, 10)
    poll_until(members, lambda: sum(len(x.records) for x in members) >= len(written), "the first records")
    for member in members:
        member.consumer.commit(asynchronous=False)
    rebalances = [member.assignments for member in members]
    with own.wire() as wire:
        found = wire.call(FindCoordinatorRequest(key=f"{topic}-group"), 2)
    own.kill(found.node_id)
    written |= produce(own, topic, 10)
    poll_until(members, lambda: sum(len(x.records) for x in members) >= len(written), "the other records")
    assert sorted(record for member in members for record in member.records) == sorted(written)
    for member in members:
        member.consumer.commit(asynchronous=False)
    assert [member.assignments for member in members] == rebalances, "nobody had to join again"
    for member in members:
        member.consumer.close()
    assert committed(own, topic) == dict.fromkeys(range(PARTITIONS), 20)


async def test_aiokafka(cluster: BrokerCluster) -> None:
    topic = "aio-group"
    create(cluster, topic)
    written = produce(cluster, topic, 10)
    consumers = [
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap,
            group_id="aio",
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=200,
        )
        for _ in range(2)
    ]
    try:
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        found: list[tuple[int, int]] = []

        async def take(consumer: AIOKafkaConsumer) -> None:
            async for record in consumer:
                found.append((record.partition, record.offset))
                if set(found) == written:
                    return

        done, pending = await asyncio.wait(
            [asyncio.create_task(take(consumer)) for consumer in consumers],
            return_when=asyncio.FIRST_COMPLETED,
            timeout=20,
        )
        for task in pending:
            task.cancel()
        assert done, f"{len(set(found))} of {len(written)}"
        owned = [{each.partition for each in consumer.assignment()} for consumer in consumers]
        assert sorted(map(len, owned)) == [PARTITIONS // 2] * 2
    finally:
        for consumer in consumers:
            await consumer.stop()


@pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt-get install kcat)")
def test_kcat(cluster: BrokerCluster) -> None:
    topic = "kcat-group"
    create(cluster, topic)
    written = produce(cluster, topic, 10)
    assert KCAT is not None
    command = [KCAT, "-b", cluster.bootstrap, "-G", "kcat", "-o", "beginning", "-e", "-q", "-f", "%p %o\n"]
    done = subprocess.run(
        [*command, "-X", "auto.offset.reset=earliest", topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert sorted(found) == sorted(written)
