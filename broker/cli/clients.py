"""Shared by the commands that use a Kafka client: the client's configuration, and errors as one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.cli.bootstrap import find_broker, nobody_answers
from broker.cli.root import CommandError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient


def client_config(bootstrap_server: str, **more: object) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap_server,
        "client.id": "varve-cli",
        "broker.address.family": "any",
        "reconnect.backoff.max.ms": 500,
        # librdkafka prints a line about every failed connection attempt. We print one line at the end.
        "log_level": 0,
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def admin_client(bootstrap_server: str) -> AdminClient:
    """Raises CommandError if no broker answers."""
    find_broker(bootstrap_server)
    from confluent_kafka.admin import AdminClient

    return AdminClient(client_config(bootstrap_server))


def refusal(error: KafkaError, bootstrap_server: str) -> CommandError:
    """The error of the cluster or the client library as one line for the terminal."""
    from confluent_kafka import KafkaError

    unreachable = (
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT_QUEUE,
    )
    if error.code() in unreachable:
        return nobody_answers(bootstrap_server)
    return CommandError(f"{error.str()} ({error.name()})")
