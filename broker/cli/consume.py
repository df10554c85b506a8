"""`varve consume TOPIC`: print records. Without `--group` it reads all partitions and commits nothing. With `--group`
it is a member of that consumer group, and commits the offsets of printed records."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from broker.cli.clients import bootstrap_option, client_config, format_option, refusal
from broker.cli.root import TIMEOUT_S, CommandError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

_OFFSET = re.compile(r"start|end|[+-]?\d+")


def _check_offset(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _OFFSET.fullmatch(value):
        raise click.BadParameter("expected start, end, N, +N (after the start) or -N (before the end)")
    return value


@click.command()
@click.argument("topic")
@click.option(
    "--from-beginning", is_flag=True, help="Begin with the first record.  [default: only new records]"
)
@click.option(
    "--offset",
    "-o",
    callback=_check_offset,
    help="Begin at start, end, N, +N (after the start) or -N (before the end).",
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Read only this partition. Repeatable.  [default: all]",
)
@click.option(
    "--group",
    "-g",
    help="Consume as a member of this group, from its committed offsets. --from-beginning is for partitions that "
    "have none.",
)
@click.option("--max-messages", "-n", type=click.IntRange(1), help="Stop after this many records.")
@click.option("--exit-on-end", "-e", is_flag=True, help="Stop at the end of every partition.")
@click.option("--timeout-ms", type=click.IntRange(1), help="Stop if no record has come for this long.")
@click.option("--key-separator", "-K", help="Print the key and this separator before each value.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether records of open and aborted transactions are read.",
)
@bootstrap_option
@format_option
def consume(
    topic: str,
    from_beginning: bool,
    offset: str | None,
    partitions: tuple[int, ...],
    group: str | None,
    max_messages: int | None,
    exit_on_end: bool,
    timeout_ms: int | None,
    key_separator: str | None,
    isolation_level: str,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Print the records of a topic: each value as a line, or each record as a JSON object."""
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset exclude each other")
    if group is not None and (partitions or offset is not None):
        raise click.UsageError(
            "--partition and --offset cannot be used with --group: a group has its own partitions and offsets"
        )
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        client_config(
            bootstrap_server,
            # The library needs a name. Without --group no group is joined and nothing is committed.
            group_id=group or "varve-cli",
            enable_auto_commit=group is not None,
            enable_auto_offset_store=False,
            enable_partition_eof=True,
            auto_offset_reset="error" if group is None else "earliest" if from_beginning else "latest",
            isolation_level=isolation_level,
        )
    )
    printer = _Printer(as_json=shape == "json", key_separator=key_separator)
    reader = _Reader(consumer, printer, commits=group is not None)
    try:
        if group is None:
            start = "start" if from_beginning else offset or "end"
            reader.assign_partitions(_start_positions(consumer, topic, partitions, start))
        else:
            reader.join_group(topic)
        reader.print_records(max_messages, timeout_ms, exit_on_end=exit_on_end)
    except KafkaException as failure:
        raise refusal(failure.args[0], bootstrap_server) from None
    except KeyboardInterrupt:
        click.echo("", err=True)  # The prompt of the shell begins on a line of its own.
    finally:
        consumer.close()


class _Printer:
    def __init__(self, *, as_json: bool, key_separator: str | None) -> None:
        self.as_json = as_json
        self.key_separator = None if key_separator is None else key_separator.encode()

    def print_record(self, message: Message) -> None:
        if self.as_json:
            line = json.dumps(_as_json(message), ensure_ascii=False).encode()
        elif self.key_separator is None:
            line = _bytes(message.value())
        else:
            line = _bytes(message.key()) + self.key_separator + _bytes(message.value())
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def _bytes(data: Any) -> bytes:
    """None is printed as null, as by Kafka's console consumer."""
    return b"null" if data is None else bytes(data)


def _as_json(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "headers": [[header[0], _text(header[1])] for header in message.headers() or []],
        "key": _text(message.key()),
        "value": _text(message.value()),
    }


def _text(data: Any) -> str | None:
    """Bytes that are not UTF-8 are shown as \\xNN."""
    return None if data is None else bytes(data).decode("utf-8", "backslashreplace")


def _start_positions(
    consumer: Consumer, topic: str, partitions: tuple[int, ...], offset: str
) -> list[TopicPartition]:
    """The absolute offset at which each partition begins to be read."""
    from confluent_kafka import TopicPartition

    # All topics are asked for, because a request that names a topic could create it.
    found = consumer.list_topics(timeout=TIMEOUT_S).topics.get(topic)
    if found is None:
        raise CommandError(f"Topic '{topic}' does not exist")
    wanted = sorted(set(partitions)) or sorted(found.partitions)
    missing = [number for number in wanted if number not in found.partitions]
    if missing:
        raise CommandError(f"Topic '{topic}' has no partition {missing[0]}; it has {len(found.partitions)}")
    positions = []
    for number in wanted:
        start, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=TIMEOUT_S)
        if offset in ("start", "end"):
            at = start if offset == "start" else end
        elif offset[0] in "+-":
            at = start + int(offset) if offset[0] == "+" else end + int(offset)
        else:
            at = int(offset)
        positions.append(TopicPartition(topic, number, min(max(at, start), end)))
    return positions


class _Reader:
    """Prints the records of its partitions. `commits`: offsets of printed records are committed, at the latest when the
    consumer is closed."""

    def __init__(self, consumer: Consumer, printer: _Printer, *, commits: bool) -> None:
        self._consumer = consumer
        self._printer = printer
        self._commits = commits
        #: Partitions that were not read to their end. None: no partition is assigned yet.
        self._open: set[int | None] | None = None

    def assign_partitions(self, positions: list[TopicPartition]) -> None:
        self._consumer.assign(positions)
        self._open = {position.partition for position in positions}

    def join_group(self, topic: str) -> None:
        """Raises CommandError if there is no such topic."""
        if topic not in self._consumer.list_topics(timeout=TIMEOUT_S).topics:
            raise CommandError(f"Topic '{topic}' does not exist")

        def assigned(_: Consumer, positions: list[TopicPartition]) -> None:
            self._open = {position.partition for position in positions}

        self._consumer.subscribe([topic], on_assign=assigned)

    def print_records(self, max_messages: int | None, timeout_ms: int | None, *, exit_on_end: bool) -> None:
        """Print until a limit is reached. Raises KafkaException for an error of the cluster."""
        from confluent_kafka import KafkaError, KafkaException

        printed = 0
        last_s = time.monotonic()
        while max_messages is None or printed < max_messages:
            message = self._consumer.poll(0.2)
            if message is None:
                if timeout_ms is not None and (time.monotonic() - last_s) * 1000 > timeout_ms:
                    return
            elif (error := message.error()) is None:
                self._set_at_end(message.partition(), is_at_end=False)
                self._printer.print_record(message)
                if self._commits:
                    self._consumer.store_offsets(message)
                printed += 1
                last_s = time.monotonic()
            elif error.code() == KafkaError._PARTITION_EOF:
                self._set_at_end(message.partition(), is_at_end=True)
            elif error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                raise KafkaException(error)  # After the other two the client connects again by itself.
            if exit_on_end and self._open is not None and not self._open:
                return

    def _set_at_end(self, partition: int | None, *, is_at_end: bool) -> None:
        if self._open is not None:
            (self._open.discard if is_at_end else self._open.add)(partition)
