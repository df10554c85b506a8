"""The jobs about topics: create, delete, who leads, and how long a cluster takes to its first acknowledgement."""

from __future__ import annotations

import argparse
import time

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.python_driver.client import JobError, client, emit, monotonic_us, new_producer
from benchmarks.python_driver.produce import Reports, produce_one

RETRY_PAUSE_S = 0.02


def admin(options: argparse.Namespace) -> AdminClient:
    """Refused connections are what a starting cluster looks like: ask again at once."""
    settings = client(options, reconnect_backoff_ms=10, reconnect_backoff_max_ms=20, retry_backoff_ms=10)
    return AdminClient(settings | {"log_level": 0})


def create_once(client_of: AdminClient, options: argparse.Namespace, timeout_s: float) -> None:
    topic = NewTopic(
        options.topic, options.partitions, options.replication_factor, config={"file.delete.delay.ms": "500"}
    )
    client_of.create_topics([topic], request_timeout=timeout_s)[options.topic].result()


def wait_for_leader(client_of: AdminClient, options: argparse.Namespace) -> tuple[int, str]:
    deadline = time.monotonic() + options.timeout_ms / 1e3
    while time.monotonic() < deadline:
        metadata = client_of.list_topics(options.topic, timeout=5)
        partition = metadata.topics[options.topic].partitions.get(0)
        if partition is not None and partition.error is None and partition.leader in metadata.brokers:
            broker = metadata.brokers[partition.leader]
            return partition.leader, f"{broker.host}:{broker.port}"
        time.sleep(RETRY_PAUSE_S)
    raise JobError(f"topic {options.topic} has no leader after {options.timeout_ms} ms")


def run_create(options: argparse.Namespace) -> None:
    client_of, began = admin(options), time.monotonic()
    create_once(client_of, options, options.timeout_ms / 1e3)
    leader, address = wait_for_leader(client_of, options)
    emit("result", seconds=time.monotonic() - began, leader=leader, address=address)


def run_delete(options: argparse.Namespace) -> None:
    client_of = admin(options)  # a name of its own: the request dies with the client
    client_of.delete_topics([options.topic], request_timeout=options.timeout_ms / 1e3)[options.topic].result()
    emit("result")


def run_leader(options: argparse.Namespace) -> None:
    leader, address = wait_for_leader(admin(options), options)
    emit("result", leader=leader, address=address)


def run_first_ack(options: argparse.Namespace) -> None:
    client_of, deadline = admin(options), time.monotonic() + options.timeout_ms / 1e3
    emit("begin")
    while True:
        try:
            create_once(client_of, options, 1.0)
            break
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                break
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_PAUSE_S)
    created_us, reports = monotonic_us(), Reports()
    producer = new_producer(options, 1, 0)
    produce_one(producer, options, bytes(options.record_bytes), reports)
    producer.flush(max(deadline - time.monotonic(), 1.0))
    if not reports.acknowledged:
        raise JobError(f"no acknowledgement: {reports.first_error or 'timed out'}")
    emit("result", acknowledged_us=monotonic_us(), created_us=created_us)
