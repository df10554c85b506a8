"""Offsets that clients commit and fetch without being members: after assign(), and from admin tools."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually
from tests.storage.test_kafka_reads_our_files import TOOL
from tests.storage.test_kafka_reads_our_files import pytestmark as needs_kafka

OFFSETS = "__consumer_offsets"
#: What a client says while it looks for the next coordinator.
STILL_LOOKING = (
    KafkaError._WAIT_COORD,
    KafkaError._TRANSPORT,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT,
)


def consumer(cluster: BrokerCluster, group: str) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "socket.timeout.ms": 5000,
    }
    return Consumer(settings)


def place(topic: str, partition: int, offset: int = -1001, metadata: str | None = None) -> TopicPartition:
    if metadata is None:
        return TopicPartition(topic, partition, offset)
    return TopicPartition(topic, partition, offset, metadata)


def test_offsets_are_committed_and_found_again(cluster: BrokerCluster) -> None:
    topic = "committed-and-found-again"
    with cluster.wire() as wire:
        assert wire.create(topic, 3).error_code == 0
    first = consumer(cluster, topic)
    first.assign([place(topic, 0, 0)])
    first.commit(offsets=[place(topic, 0, 7, "how far"), place(topic, 2, 9)], asynchronous=False)
    first.close()
    second = consumer(cluster, topic)
    found = second.committed([place(topic, partition) for partition in range(3)], timeout=10)
    assert [(each.offset, each.error) for each in found] == [(7, None), (-1001, None), (9, None)]
    assert (found[0].metadata or "").rstrip("\0") == "how far"
    second.close()


def test_admin_tools_see_change_and_delete_a_groups_offsets(cluster: BrokerCluster) -> None:
    topic = "changed-by-admin-tools"
    with cluster.wire() as wire:
        assert wire.create(topic, 2).error_code == 0
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = ConsumerGroupTopicPartitions(topic, [place(topic, 0, 4), place(topic, 1, 5)])
    admin.alter_consumer_group_offsets([wanted])[topic].result(10)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)])[topic].result(10)
    assert sorted((each.partition, each.offset) for each in found.topic_partitions) == [(0, 4), (1, 5)]
    listed = admin.list_consumer_groups().result(10)
    assert topic in [each.group_id for each in listed.valid] and not listed.errors
    assert admin.delete_consumer_groups([topic])[topic].result(10) is None
    listed = admin.list_consumer_groups().result(10)
    assert topic not in [each.group_id for each in listed.valid]


def test_no_commit_is_lost_with_its_coordinator(own_cluster: BrokerCluster) -> None:
    cluster = own_cluster
    with cluster.wire() as wire:
        assert wire.create("foo").error_code == 0
    client = consumer(cluster, "g")
    client.assign([place("foo", 0, 0)])
    for offset in range(1, 20):
        client.commit(offsets=[place("foo", 0, offset)], asynchronous=False)
    cluster.kill(coordinator_of(cluster, "g"))

    def commit_on() -> bool:
        try:
            client.commit(offsets=[place("foo", 0, 20)], asynchronous=False)
        except KafkaException as error:
            assert error.args[0].code() in STILL_LOOKING, error
            return False
        return True

    (found,) = client.committed([place("foo", 0)], timeout=20)
    assert found.offset == 19
    assert eventually(commit_on, "the next coordinator takes commits")
    (found,) = client.committed([place("foo", 0)], timeout=20)
    assert found.offset == 20
    client.close()


def coordinator_of(cluster: BrokerCluster, group: str) -> int:
    with cluster.wire() as wire:
        answer = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    return int(answer.coordinators[0].node_id)


@pytest.mark.slow
@needs_kafka[1]
def test_kafka_reads_what_was_committed(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(offsets__topic__num__partitions="1")
    with cluster.wire() as wire:
        assert wire.create("foo").error_code == 0
    client = consumer(cluster, "g")
    client.assign([place("foo", 0, 0)])
    client.commit(offsets=[place("foo", 0, 7)], asynchronous=False)
    client.close()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert admin.delete_consumer_groups(["g"])["g"].result(10) is None
    cluster.terminate()
    (segment,) = cluster.segments(1, OFFSETS)
    command = [TOOL, "tool", "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files"]
    run = subprocess.run([*command, str(segment)], capture_output=True, text=True, check=True, timeout=120)
    key = '"type":"1","data":{"group":"g","topic":"foo","partition":0}'
    assert run.stdout.count(key) == 2
    assert re.search(
        r'payload: \{"version":"4","data":\{"offset":7,"leaderEpoch":-1,"metadata":"",', run.stdout
    )
    assert "payload: <DELETE>" in run.stdout
    assert "isvalid: false" not in run.stdout
