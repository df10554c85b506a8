"""A real client above its quota: it is told, it waits, it loses nothing, and the others do not notice."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterEntry, OpData
from protocol.messages.describe_client_quotas import EntityData
from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually

RATE = 100_000
#: With two windows a client saves one second.
SETTINGS = {"quota__window__num": "2"}
RECORDS = 300
VALUE = b"x" * 1000


def limit(cluster: BrokerCluster, client_id: str, key: str) -> None:
    entity = EntityData(entity_type="client-id", entity_name=client_id)
    entry = AlterEntry(entity=[entity], ops=[OpData(key=key, value=float(RATE), remove=False)])
    with cluster.wire() as wire:
        answer = wire.call(AlterClientQuotasRequest(entries=[entry]), 1)
    assert [x.error_code for x in answer.entries] == [ErrorCode.NONE]


def produce(cluster: BrokerCluster, client_id: str) -> tuple[float, list[float]]:
    """Seconds until all are acknowledged, and the throttle times (seconds) that the client was told."""
    told: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": client_id,
            "enable.idempotence": True,
            "batch.size": 50_000,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    began_s = time.monotonic()
    for number in range(RECORDS):
        producer.produce("t", VALUE, key=b"%d" % number)
    assert producer.flush(60) == 0
    return time.monotonic() - began_s, told


def consume(cluster: BrokerCluster, client_id: str, count: int) -> tuple[float, list[float]]:
    told: list[float] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": client_id,
        "group.id": "unused",
        "enable.auto.commit": False,
        "throttle_cb": lambda event: told.append(event.throttle_time),
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("t", 0, 0)])
    began_s = time.monotonic()
    offsets: list[int] = []
    while len(offsets) < count:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        offset = message.offset()
        assert offset is not None
        offsets.append(offset)
    took_s = time.monotonic() - began_s
    consumer.close()
    assert offsets == list(range(count))
    return took_s, told


def test_librdkafka_is_slowed_down_to_its_quota(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(1, **SETTINGS)
    with cluster.wire() as wire:
        assert wire.create("t", replicas=1).error_code == ErrorCode.NONE
    limit(cluster, "slow", "producer_byte_rate")
    limit(cluster, "slow", "consumer_byte_rate")
    least_s = RECORDS * len(VALUE) / RATE - 1  # all but the second that was saved

    took_s, told = produce(cluster, "slow")
    assert max(told) > 0.3
    # The last of it is acknowledged at once; what it costs would be waited for afterwards.
    assert took_s > least_s - 60_000 / RATE
    took_s, told = produce(cluster, "quick")
    assert took_s < least_s and not any(told)

    took_s, told = consume(cluster, "quick", 2 * RECORDS)
    assert took_s < least_s
    took_s, told = consume(cluster, "slow", RECORDS)
    assert took_s > least_s - 60_000 / RATE
    assert eventually(lambda: told, "the client was told")
