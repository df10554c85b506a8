"""`varve produce TOPIC`: write each line of standard input as a record."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from broker.cli.clients import bootstrap_option, client_config, format_option, refusal
from broker.cli.root import CommandError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer


@click.command()
@click.argument("topic")
@click.option("--key", "-k", help="The key of every record.")
@click.option("--key-separator", "-K", help="The part of a line before this separator is the key.")
@click.option(
    "--header",
    "-H",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="A header of every record. Repeatable.",
)
@click.option("--partition", "-p", type=click.IntRange(0), help="Write to this partition only.")
@click.option("--tombstone", "-Z", is_flag=True, help="Write an empty value as a tombstone (null).")
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compression of the record batches.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "-1", "1", "0"]),
    default="all",
    show_default=True,
    help="Which replicas have to acknowledge a record.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=float,
    default=30.0,
    show_default=True,
    help="How many seconds a record may take.",
)
@bootstrap_option
@format_option
def produce(
    topic: str,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    tombstone: bool,
    compression: str,
    acks: str,
    timeout_s: float,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Write the lines of standard input to a topic, one record each.

    With --format text, one line on standard error says how many records were acknowledged. With --format json, there
    is one line on standard output for each of them. Exit code 1 if a record was not acknowledged.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other")
    from confluent_kafka import Producer

    producer = Producer(
        client_config(
            bootstrap_server,
            compression_type=compression,
            acks=acks,
            # An idempotent producer never writes a record twice. It needs acks=all.
            enable_idempotence=acks in ("all", "-1"),
            message_timeout_ms=round(timeout_s * 1000),
            linger_ms=5,
        )
    )
    reports = _Reports(as_json=shape == "json")
    more: dict[str, Any] = {} if partition is None else {"partition": partition}
    if headers:
        more["headers"] = [_header(text) for text in headers]
    for line in sys.stdin.buffer:
        value: bytes | None = line.rstrip(b"\r\n")
        record_key = None if key is None else key.encode()
        if key_separator is not None:
            record_key, value = _split(line.rstrip(b"\r\n"), key_separator)
        if tombstone and not value:
            value = None
        _send(producer, topic, value=value, key=record_key, on_delivery=reports.add_report, **more)
    producer.flush()
    if reports.first_error is not None:
        error = refusal(reports.first_error, bootstrap_server)
        raise CommandError(f"{reports.failed} records were not acknowledged: {error.message}")
    if shape == "text":
        click.echo(f"{reports.acknowledged} records acknowledged", err=True)


class _Reports:
    """Counts acknowledged and failed records."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.acknowledged = 0
        self.failed = 0
        self.first_error: KafkaError | None = None

    def add_report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error
            return
        self.acknowledged += 1
        if self.as_json:
            row = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
            click.echo(json.dumps(row))


def _send(producer: Producer, topic: str, **record: Any) -> None:
    """Hand a record to the client. Wait while its queue is full."""
    while True:
        try:
            producer.produce(topic, **record)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _split(line: bytes, separator: str) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator.encode())
    if not found:
        raise CommandError(f"there is no {separator!r} in the line {line.decode(errors='replace')!r}")
    return key, value


def _header(text: str) -> tuple[str, bytes]:
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise click.BadParameter(f"expected NAME:VALUE, not {text!r}", param_hint="--header")
    return name, value.encode()
