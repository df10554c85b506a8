"""Shared by the commands that use a Kafka client: common options, the client's configuration, errors as one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from broker.cli.local_cluster import DEFAULT_BASE_DIR, DEFAULT_PORTS, LocalCluster, LocalClusterError
from broker.cli.root import CommandError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

F = TypeVar("F", bound=Callable[..., Any])


def _default_bootstrap_server() -> str:
    """The cluster of this working directory, otherwise the default ports on this machine."""
    try:
        local = LocalCluster.load(DEFAULT_BASE_DIR)
    except LocalClusterError as error:
        raise CommandError(str(error)) from None
    return local.bootstrap_server if local else ",".join(f"localhost:{port}" for port in DEFAULT_PORTS[:3])


def bootstrap_option(command: F) -> F:
    return click.option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT,...",
        default=_default_bootstrap_server,
        help="Brokers to connect to.  [default: the cluster in ./.varve, else localhost:19092,29092,39092]",
    )(command)


def format_option(command: F) -> F:
    return click.option(
        "--format",
        "shape",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Output format.",
    )(command)


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
        return CommandError(f"no broker answers at {bootstrap_server}")
    return CommandError(f"{error.str()} ({error.name()})")
