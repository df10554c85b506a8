"""`varve produce TOPIC`: write each line of standard input as a record."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import click

from broker.cli import interrupts
from broker.cli.bootstrap import bootstrap_option, find_broker
from broker.cli.clients import client_config, refusal
from broker.cli.completion import complete_topic
from broker.cli.output import counted, format_option
from broker.cli.progress import Progress
from broker.cli.record_format import Escaped
from broker.cli.record_json import Headers, Record, from_json
from broker.cli.root import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import KafkaError, Message, Producer

#: The brokers decide how large a record may be (max.message.bytes of the topic), not the client.
_MAX_MESSAGE_BYTES = 1_000_000_000
#: After Ctrl-C: how long answers to what was sent are waited for.
_LAST_ANSWERS_S = 1.0
_POLL_S = 0.1
#: The client's queue is full: it has room again when some records are acknowledged.
_FULL_PAUSE_S = 0.005


@click.command()
@click.argument("name", required=False, metavar="TOPIC", shell_complete=complete_topic)
@click.option("--topic", "same_name", shell_complete=complete_topic, help="As the argument.")
@click.option("--key", "-k", help="The key of every record.")
@click.option(
    "--key-separator",
    "-K",
    type=Escaped(),
    help="The part of a line before this separator is the key. \\t is a tab.",
)
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
    "--input-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: each line is a record as `varve consume --format json` prints it. Its key, value, headers and "
    "timestamp are written.",
)
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
    type=click.FloatRange(0.001),
    default=30.0,
    show_default=True,
    help="How many seconds a record may take.",
)
@bootstrap_option
@format_option
def produce(
    name: str | None,
    same_name: str | None,
    key: str | None,
    key_separator: bytes | None,
    headers: tuple[str, ...],
    partition: int | None,
    tombstone: bool,
    input_format: str,
    compression: str,
    acks: str,
    timeout_s: float,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Write the lines of standard input to a topic, one record each.

    With --format text, one line on standard error says how many records were acknowledged. With --format json, there
    is one line on standard output for each of them, with its partition and offset. Exit code 1 if a record was not
    acknowledged.
    """
    if (name is None) == (same_name is None):
        raise click.UsageError("name one topic")
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other")
    if input_format == "json" and (key is not None or key_separator is not None or headers or tombstone):
        raise click.UsageError(
            "--key, --key-separator, --header and --tombstone are for lines of text; with --input-format json the "
            "line says it"
        )
    find_broker(bootstrap_server)
    from confluent_kafka import Producer

    producer = Producer(
        client_config(
            bootstrap_server,
            compression_type=compression,
            acks=acks,
            # An idempotent producer never writes a record twice. It needs acks=all.
            enable_idempotence=acks in ("all", "-1"),
            message_timeout_ms=round(timeout_s * 1000),
            message_max_bytes=_MAX_MESSAGE_BYTES,
            linger_ms=5,
        )
    )
    text = _TextLines(key, key_separator, [_header(each) for each in headers], tombstone)
    writer = _Writer(producer, name or same_name or "", partition, bootstrap_server, as_json=shape == "json")
    try:
        with interrupts.raised(), writer.progress:
            writer.write(sys.stdin.buffer, from_json if input_format == "json" else text.parse)
    except KeyboardInterrupt:
        lines = writer.give_up()
        acknowledged = counted(writer.acknowledged, "record")
        click.echo(
            f"\nvarve: interrupted: {acknowledged} acknowledged, of {counted(lines, 'line')}", err=True
        )
        sys.exit(interrupts.INTERRUPTED)
    if shape == "text":
        click.echo(f"{counted(writer.acknowledged, 'record')} acknowledged", err=True)


class _TextLines:
    def __init__(
        self,
        key: str | None,
        key_separator: bytes | None,
        headers: Headers,
        tombstone: bool,
    ) -> None:
        self._key = None if key is None else key.encode()
        self._key_separator = key_separator
        self._headers = headers
        self._tombstone = tombstone

    def parse(self, line: bytes) -> Record:
        """Raises ValueError."""
        key, value = self._key, line
        if self._key_separator is not None:
            key, found, value = line.partition(self._key_separator)
            if not found:
                raise ValueError(f"there is no {self._key_separator.decode(errors='replace')!r} in it")
        return Record(key, None if self._tombstone and not value else value, self._headers, None)


class _Writer:
    """Hands lines to the client, and counts its reports.

    A thread takes the reports, so that they are shown while the next line is waited for. The counts are its own until
    it has ended.
    """

    def __init__(
        self, producer: Producer, topic: str, partition: int | None, bootstrap_server: str, *, as_json: bool
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._fixed: dict[str, Any] = {} if partition is None else {"partition": partition}
        self._bootstrap_server = bootstrap_server
        self._as_json = as_json
        self.progress = Progress("records acknowledged")
        self.acknowledged = 0
        self._failed = 0
        #: How many were read.
        self._lines = 0
        #: The first record that was not acknowledged: the number of its line, and why.
        self._first_failure: tuple[int, KafkaError] | None = None
        #: Standard output cannot be written.
        self._output_error: OSError | None = None
        self._all_sent = Event()
        self._reports = Thread(target=self._take_reports, daemon=True)

    def write(self, lines: Iterable[bytes], parse: Any) -> None:
        """Until the lines end or one cannot be written. Raises CommandError, and tells what became of the others."""
        from confluent_kafka import KafkaException

        problem = None
        self._reports.start()
        for line in lines:
            self._lines += 1
            try:
                self._send(self._lines, parse(line.rstrip(b"\r\n")))
            except ValueError as error:
                problem = f"line {self._lines}: {error}"
                break
            except KafkaException as failure:  # The client refuses it by itself: there is no such partition.
                self._add_failure(self._lines, failure.args[0])
            if self._first_failure is not None or self._output_error is not None:
                break
        self._all_sent.set()
        self._reports.join()
        if self._output_error is not None:
            raise self._output_error
        self._check_failures()
        if problem is not None:
            before = counted(self.acknowledged, "record")
            raise CommandError(f"{problem}; {before} before it acknowledged, nothing after it sent")

    def give_up(self) -> int:
        """Wait a moment for the reports of what was sent. Returns how many lines were read."""
        self._all_sent.set()
        if self._reports.ident is not None:  # It has been started.
            self._reports.join(_LAST_ANSWERS_S)
        return self._lines

    def _take_reports(self) -> None:
        """Until everything that was sent has one."""
        try:
            while not self._all_sent.is_set() or len(self._producer):
                self._producer.poll(_POLL_S)
        except OSError as error:
            self._output_error = error

    def _send(self, number: int, record: Record) -> None:
        """Hand a record to the client. Wait while its queue is full."""
        more = dict(self._fixed)
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        report = partial(self._add_report, number)
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    headers=[*record.headers],
                    on_delivery=report,
                    **more,
                )
            except BufferError:
                if self._output_error is not None:
                    return
                time.sleep(_FULL_PAUSE_S)
            else:
                return

    def _add_report(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._add_failure(number, error)
            return
        self.acknowledged += 1
        self.progress.show(self.acknowledged, time.monotonic())
        if self._as_json:
            row = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
            click.echo(json.dumps(row))

    def _add_failure(self, number: int, error: KafkaError) -> None:
        self._failed += 1
        if self._first_failure is None or number < self._first_failure[0]:
            self._first_failure = number, error

    def _check_failures(self) -> None:
        if self._first_failure is None:
            return
        number, error = self._first_failure
        why = refusal(error, self._bootstrap_server).format_message()
        failed = (
            f"{counted(self._failed, 'record')} {'was' if self._failed == 1 else 'were'} not acknowledged"
        )
        raise CommandError(f"line {number}: {why}; {failed}, {self.acknowledged:,} were")


def _header(text: str) -> tuple[str, bytes | None]:
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise click.BadParameter(f"expected NAME:VALUE, not {text!r}", param_hint="--header")
    return name, value.encode()
