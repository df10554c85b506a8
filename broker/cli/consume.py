"""`varve consume TOPIC...`: print records. Without `--group` it reads all partitions and commits nothing. With
`--group` it is a member of that consumer group, and commits the offsets of printed records."""

from __future__ import annotations

import re
import select
import sys
import time
from threading import Thread
from typing import TYPE_CHECKING

import click

from broker.cli import interrupts
from broker.cli.bootstrap import bootstrap_option, find_broker
from broker.cli.clients import client_config, refusal
from broker.cli.completion import complete_group, complete_topic
from broker.cli.record_format import Escaped, Format, Render, renderer
from broker.cli.start_offsets import StartOffset, select_topics, start_positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer, Message, TopicPartition

#: Topic and partition, as the client's messages have them.
_Place = tuple[str | None, int | None]

#: Records that are taken from the client at once. They are written together.
_BATCH_RECORDS = 2000
#: How long a record may wait for others to be written together with it.
_BATCH_TIMEOUT_S = 0.1
#: How long the client may take to leave its group and to commit, after Ctrl-C.
_CLOSE_TIMEOUT_S = 2.0


def _check_patterns(names: Sequence[str]) -> None:
    for name in names:
        try:
            re.compile(name)
        except re.error as error:
            raise click.BadParameter(f"{name!r} is not a regular expression: {error}") from None


@click.command()
@click.argument("names", nargs=-1, metavar="TOPIC...", shell_complete=complete_topic)
@click.option("--topic", "more_names", multiple=True, shell_complete=complete_topic, help="As an argument.")
@click.option(
    "--regex", "-r", is_flag=True, help="Each TOPIC is a regular expression: read what matches one."
)
@click.option(
    "--from-beginning", is_flag=True, help="Begin with the first record.  [default: only new records]"
)
@click.option(
    "--offset",
    "-o",
    type=StartOffset(),
    metavar="OFFSET",
    help="Begin at start, end, N, +N (after the start), -N (before the end), or @TIME: milliseconds since 1970, or a "
    "time such as 2026-11-27T10:00 (UTC).",
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
    shell_complete=complete_group,
    help="Consume as a member of this group, from its committed offsets. --from-beginning is for partitions that "
    "have none.",
)
@click.option("--max-messages", "-n", type=click.IntRange(1), help="Stop after this many records.")
@click.option("--exit-on-end", "-e", is_flag=True, help="Stop at the end of every partition.")
@click.option("--timeout-ms", type=click.IntRange(1), help="Stop if no record has come for this long.")
@click.option(
    "--key-separator",
    "-K",
    type=Escaped(),
    help="Print the key and this separator before each value. \\t is a tab.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether records of open and aborted transactions are read.",
)
@click.option(
    "--format",
    "-f",
    "shape",
    type=Format(),
    default="text",
    show_default=True,
    help="text: each value as a line. json: each record as a line. Else a format such as '%t %p %o %k %v\\n': %t topic,"
    " %p partition, %o offset, %k key, %v value, %h headers, %T timestamp, %K and %V lengths.",
)
@bootstrap_option
def consume(
    names: tuple[str, ...],
    more_names: tuple[str, ...],
    regex: bool,
    from_beginning: bool,
    offset: str | None,
    partitions: tuple[int, ...],
    group: str | None,
    max_messages: int | None,
    exit_on_end: bool,
    timeout_ms: int | None,
    key_separator: bytes | None,
    isolation_level: str,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Print the records of topics: each value as a line, each record as a JSON object, or as a format says."""
    names += more_names
    if not names:
        raise click.UsageError("name a topic")
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and --offset exclude each other")
    if group is not None and (partitions or offset is not None):
        raise click.UsageError(
            "--partition and --offset cannot be used with --group: a group has its own partitions and offsets"
        )
    if regex:
        _check_patterns(names)
    render = renderer(shape, key_separator)
    find_broker(bootstrap_server)
    from confluent_kafka import Consumer, KafkaError, KafkaException

    def tell(event: KafkaError) -> None:
        if event.code() == KafkaError._ALL_BROKERS_DOWN:
            click.echo(f"varve: no broker answers at {bootstrap_server}; still trying", err=True)

    consumer = Consumer(
        client_config(
            bootstrap_server,
            # The library needs a name. Without --group no group is joined and nothing is committed.
            group_id=group or "varve-cli",
            enable_auto_commit=group is not None,
            enable_auto_offset_store=False,
            enable_partition_eof=exit_on_end,
            auto_offset_reset="error" if group is None else "earliest" if from_beginning else "latest",
            isolation_level=isolation_level,
        ),
        error_cb=tell,
    )
    reader = _Reader(consumer, render, commits=group is not None)
    try:
        chosen = select_topics(consumer, names, are_patterns=regex)
        if group is None:
            start = "start" if from_beginning else offset or "end"
            reader.assign_partitions(start_positions(consumer, chosen, partitions, start))
        else:
            # A pattern stays one, so that topics that come later are read, too.
            patterns = [name if name.startswith("^") else f"^.*({name})" for name in names]
            reader.join_group(patterns if regex else list(chosen.topics))
        with interrupts.raised():
            reader.print_records(max_messages, timeout_ms, exit_on_end=exit_on_end)
    except KafkaException as failure:
        raise refusal(failure.args[0], bootstrap_server) from None
    except KeyboardInterrupt:
        click.echo("", err=True)  # The prompt of the shell begins on a line of its own.
    finally:
        _close(consumer)


def _is_reader_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


def _close(consumer: Consumer) -> None:
    """With a broker there it takes milliseconds. Without one it would wait for that."""
    closing = Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(_CLOSE_TIMEOUT_S)


class _Reader:
    """Prints the records of its partitions. `commits`: offsets of printed records are committed, at the latest when the
    consumer is closed."""

    def __init__(self, consumer: Consumer, render: Render, *, commits: bool) -> None:
        self._consumer = consumer
        self._render = render
        self._commits = commits
        #: None: no partition is assigned yet.
        self._assigned: set[_Place] | None = None
        #: Partitions that were read to their end, and from which nothing has come since.
        self._ended: set[_Place] = set()

    def assign_partitions(self, positions: list[TopicPartition]) -> None:
        self._consumer.assign(positions)
        self._set_assigned(positions)

    def join_group(self, topics: list[str]) -> None:
        def assigned(_: Consumer, positions: list[TopicPartition]) -> None:
            self._set_assigned(positions)

        self._consumer.subscribe(topics, on_assign=assigned)

    def _set_assigned(self, positions: list[TopicPartition]) -> None:
        self._assigned = {(position.topic, position.partition) for position in positions}
        self._ended.clear()

    def print_records(self, max_messages: int | None, timeout_ms: int | None, *, exit_on_end: bool) -> None:
        """Print until a limit is reached. Raises KafkaException for an error of the cluster."""
        left = max_messages
        last_s = time.monotonic()
        while left is None or left > 0:
            wanted = _BATCH_RECORDS if left is None else min(left, _BATCH_RECORDS)
            messages = self._consumer.consume(wanted, _BATCH_TIMEOUT_S)
            records = [message for message in messages if message.error() is None]
            if records:
                self._print(records)
                left = None if left is None else left - len(records)
                last_s = time.monotonic()
            elif timeout_ms is not None and (time.monotonic() - last_s) * 1000 > timeout_ms:
                return
            elif _is_reader_gone():
                return  # As in `varve consume t | head -1`: no write would tell if no record comes.
            if self._ended or len(records) < len(messages):
                self._handle_events(messages)
            if exit_on_end and self._assigned is not None and self._assigned <= self._ended:
                return

    def _print(self, records: list[Message]) -> None:
        sys.stdout.buffer.write(self._render(records))
        sys.stdout.buffer.flush()
        if self._commits:
            for record in {(x.topic(), x.partition()): x for x in records}.values():
                self._consumer.store_offsets(record)

    def _handle_events(self, messages: list[Message]) -> None:
        """A partition from which records come after its end has not ended, so the order of `messages` counts."""
        from confluent_kafka import KafkaError, KafkaException

        for message in messages:
            place, error = (message.topic(), message.partition()), message.error()
            if error is None:
                self._ended.discard(place)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(place)
            elif error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)  # After that one the client connects again by itself.
