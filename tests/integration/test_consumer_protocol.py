"""Groups of the consumer protocol (KIP-848) with librdkafka: the broker assigns, and only what moves stops."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.integration.harness import BrokerCluster
from tests.integration.test_classic_groups import (
    PARTITIONS,
    QUIET,
    SESSION_MS,
    Member,
    committed,
    create,
    poll_until,
    produce,
    share_all,
)

SETTINGS = {"group.protocol": "consumer"}


def join(cluster: BrokerCluster, topic: str, **settings: object) -> Member:
    return Member(cluster, topic, **SETTINGS, **settings)


def share_evenly(members: list[Member]) -> Callable[[], bool]:
    share = share_all(members)
    return lambda: share() and {len(each.partitions) for each in members} == {PARTITIONS // len(members)}


def read_all(members: list[Member], written: set[tuple[int, int]], what: str) -> None:
    poll_until(members, lambda: sum(len(each.records) for each in members) >= len(written), what)
    assert sorted(record for each in members for record in each.records) == sorted(written)


def test_members_share_partitions_and_keep_what_they_may(cluster: BrokerCluster) -> None:
    topic = "consumer-share"
    create(cluster, topic)
    members = [join(cluster, topic)]
    poll_until(members, share_all(members), "one member has all")
    for count in (2, 3):
        before = [each.partitions for each in members]
        members.append(join(cluster, topic))
        poll_until(members, share_evenly(members), f"{count} members share")
        for member, had in zip(members, before, strict=False):
            assert member.partitions < had
            assert member.revoked[-1] == had - member.partitions, "what it keeps was never taken away"
    written = produce(cluster, topic, 20)
    read_all(members, written, "all records")
    for member in members:
        member.consumer.commit(asynchronous=False)
    revoked = [len(each.revoked) for each in members[:-1]]
    members.pop().consumer.close()
    poll_until(members, share_evenly(members), "two members share")
    assert [len(each.revoked) for each in members] == revoked, "they only got more"
    for member in members:
        member.records.clear()
    read_all(members, produce(cluster, topic, 20), "the records after that")
    for member in members:
        member.consumer.commit(asynchronous=False)
        member.consumer.close()
    assert committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), 40)


KILLED = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer"})
consumer.subscribe([sys.argv[2].removesuffix("-group")], on_assign=lambda _, got: got and print("assigned", flush=True))
while True:
    consumer.poll(0.1)
"""


def test_the_partitions_of_a_killed_member_are_taken_over(cluster: BrokerCluster) -> None:
    topic = "consumer-killed"
    create(cluster, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    resource = ConfigResource(
        ConfigResource.Type.GROUP,
        f"{topic}-group",
        incremental_configs=[
            ConfigEntry(
                "consumer.session.timeout.ms",
                str(SESSION_MS),
                incremental_operation=AlterConfigOpType.SET,
            )
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(timeout=20)
    member = join(cluster, topic)
    poll_until([member], share_all([member]), "one member has all")
    arguments = [sys.executable, "-c", KILLED, cluster.bootstrap, f"{topic}-group"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        poll_until([member], lambda: len(member.partitions) == PARTITIONS // 2, "two members share")
        assert process.stdout is not None and process.stdout.readline() == "assigned\n"
        process.send_signal(signal.SIGKILL)
    poll_until([member], share_all([member]), "the one that is left has all")
    member.consumer.close()


def test_a_static_member_comes_back_to_its_partitions(cluster: BrokerCluster) -> None:
    topic = "consumer-static"
    create(cluster, topic)
    stays, leaves = (join(cluster, topic, **{"group.instance.id": f"i{number}"}) for number in range(2))
    poll_until([stays, leaves], share_evenly([stays, leaves]), "two members share")
    before, partitions = stays.assignments, leaves.partitions
    leaves.consumer.close()
    back = join(cluster, topic, **{"group.instance.id": "i1"})
    poll_until([stays, back], lambda: back.partitions == partitions, "its partitions are its again")
    assert stays.assignments == before
    for member in (stays, back):
        member.consumer.close()


def test_a_regular_expression_finds_topics_that_are_made_later(cluster: BrokerCluster) -> None:
    create(cluster, "expressed-1")
    member = Member(cluster, "^expressed-[0-9]", **SETTINGS, **{"group.id": "expressed"})
    found = {("expressed-1", partition) for partition in range(PARTITIONS)}

    def owned() -> set[tuple[str, int]]:
        return {(each.topic, each.partition) for each in member.consumer.assignment()}

    poll_until([member], lambda: owned() == found, "the topic that is there")
    create(cluster, "expressed-2")
    create(cluster, "not-expressed")
    found |= {("expressed-2", partition) for partition in range(PARTITIONS)}
    poll_until([member], lambda: owned() == found, "the topic that was made")
    member.consumer.close()


def test_a_group_outlives_its_coordinator(make_cluster: Callable[..., BrokerCluster]) -> None:
    own = make_cluster(
        group__consumer__heartbeat__interval__ms="200", group__consumer__assignment__interval__ms="0"
    )
    topic = "consumer-outlives"
    create(own, topic)
    members = [join(own, topic) for _ in range(2)]
    poll_until(members, share_evenly(members), "two members share")
    written = produce(own, topic, 10)
    read_all(members, written, "the first records")
    for member in members:
        member.consumer.commit(asynchronous=False)
    before = [(member.assignments, len(member.revoked)) for member in members]
    with own.wire() as wire:
        found = wire.call(FindCoordinatorRequest(key=f"{topic}-group"), 2)
    own.kill(found.node_id)
    written |= produce(own, topic, 10)
    read_all(members, written, "the other records")
    for member in members:
        member.consumer.commit(asynchronous=False)
    assert [(member.assignments, len(member.revoked)) for member in members] == before, "nothing moved"
    third = join(own, topic)
    poll_until([*members, third], share_all([*members, third]), "the successor rebalances, too")
    for member in (*members, third):
        member.consumer.close()
    assert committed(own, topic) == dict.fromkeys(range(PARTITIONS), 20)


def test_administrators_see_the_group(cluster: BrokerCluster) -> None:
    topic = "consumer-seen"
    create(cluster, topic)
    member = join(cluster, topic, **{"client.id": "seen"})
    poll_until([member], share_all([member]), "it has all")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    group = f"{topic}-group"
    described = admin.describe_consumer_groups([group])[group].result(timeout=20)
    assert (described.state.name, described.type.name, described.partition_assignor) == (
        "STABLE",
        "CONSUMER",
        "uniform",
    )
    (seen,) = described.members
    assert seen.client_id == "seen"
    assert seen.assignment is not None
    assert {each.partition for each in seen.assignment.topic_partitions} == set(range(PARTITIONS))
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(timeout=20).valid}
    assert (listed[group].state.name, listed[group].type.name) == ("STABLE", "CONSUMER")
    try:
        admin.delete_consumer_groups([group])[group].result(timeout=20)
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.NON_EMPTY_GROUP
    else:
        raise AssertionError("a group with members was deleted")
    member.consumer.close()
    admin.delete_consumer_groups([group])[group].result(timeout=20)


def test_a_group_without_members_may_change_its_protocol(cluster: BrokerCluster) -> None:
    topic = "consumer-changes"
    create(cluster, topic)
    for protocol in ("classic", "consumer", "classic"):
        written = produce(cluster, topic, 5)
        member = Member(cluster, topic, **{"group.protocol": protocol})
        read_all([member], written, f"what the one before had not read ({protocol})")
        member.consumer.commit(asynchronous=False)
        member.consumer.close()
    assert committed(cluster, topic) == dict.fromkeys(range(PARTITIONS), 15)
