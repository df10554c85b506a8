"""`varve txn list|describe|producers|find-hanging|abort`, with the columns of Kafka's kafka-transactions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.output import as_objects, format_option, print_list
from broker.cli.root import CommandError
from broker.cli.tables import print_aligned

if TYPE_CHECKING:
    from broker.cli.txn_admin import OpenTransaction, TransactionAdmin

#: The largest transaction.max.timeout.ms by default, in minutes. A transaction that is open for longer is odd.
_MAX_TIMEOUT_MINUTES = 15
_MINUTE_MS = 60_000
_HANGING_COLUMNS = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)


@click.group()
def txn() -> None:
    """List, describe and abort transactions."""


@txn.command(name="list")
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only those in this state. Repeatable."
)
@click.option("--producer-id", "producer_ids", multiple=True, type=int, help="Only those of it. Repeatable.")
@click.option(
    "--duration-filter", type=click.IntRange(0), metavar="MS", help="Only those that are open for longer."
)
@click.option(
    "--transactional-id-pattern", metavar="REGEX", help="Only ids that match all of it, in RE2's syntax."
)
@bootstrap_option
@format_option
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_filter: int | None,
    transactional_id_pattern: str | None,
    bootstrap_server: str,
    shape: str,
) -> None:
    """List the transactional ids, with their coordinators and states."""
    duration_ms = -1 if duration_filter is None else duration_filter
    found = _admin(bootstrap_server).list_transactions(
        list(states), list(producer_ids), duration_ms, transactional_id_pattern
    )
    if shape == "json":
        print_list("transactions", found)
        return
    columns = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
    _print_table(columns, [list(each.values()) for each in found])


@txn.command()
@click.argument("transactional_id")
@bootstrap_option
@format_option
def describe(transactional_id: str, bootstrap_server: str, shape: str) -> None:
    """Show the state of a transactional id, and the partitions of its open transaction."""
    found = _admin(bootstrap_server).describe(transactional_id)
    if shape == "json":
        print_list("transactions", [found])
        return
    columns = (
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    )
    start_ms = found["start_time_ms"]
    row = (
        found["coordinator"],
        found["transactional_id"],
        found["producer_id"],
        found["producer_epoch"],
        found["state"],
        found["timeout_ms"],
        start_ms,
        None if start_ms is None else max(0, _now_ms() - start_ms),
        ",".join(f"{each['topic']}-{each['partition']}" for each in found["partitions"]) or None,
    )
    _print_table(columns, [row])


@txn.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@bootstrap_option
@format_option
def producers(topic: str, partition: int, bootstrap_server: str, shape: str) -> None:
    """Show the producers of a partition, and where their open transactions begin."""
    rows = [
        (
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp,
            None if each.current_txn_start_offset < 0 else each.current_txn_start_offset,
        )
        for each in _admin(bootstrap_server).producers(topic, partition)
    ]
    columns = (
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    )
    _show("producers", columns, rows, shape)


@txn.command(name="find-hanging")
@click.option("--broker-id", type=int, help="In the partitions that this broker leads.  [default: in all]")
@click.option("--topic", help="In the partitions of this topic.")
@click.option("--partition", type=click.IntRange(0), help="In this partition of the topic.")
@click.option(
    "--max-transaction-timeout",
    type=click.IntRange(0),
    default=_MAX_TIMEOUT_MINUTES,
    show_default=True,
    metavar="MINUTES",
    help="Transactions that were written to within so long are not looked at.",
)
@bootstrap_option
@format_option
def find_hanging(
    broker_id: int | None,
    topic: str | None,
    partition: int | None,
    max_transaction_timeout: int,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Find transactions that are open in a partition, and that no coordinator is going to end.

    Readers of committed data wait for them. `varve txn abort` ends one.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    admin, now_ms = _admin(bootstrap_server), _now_ms()
    candidates = [
        each
        for each in admin.open_transactions(broker_id, topic, partition)
        if now_ms - each.last_timestamp_ms >= max_transaction_timeout * _MINUTE_MS
    ]
    rows = [
        (
            each.topic,
            each.partition,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.start_offset,
            each.last_timestamp_ms,
            (now_ms - each.last_timestamp_ms) // _MINUTE_MS,
        )
        for each in admin.hanging(candidates)
    ]
    _show("transactions", _HANGING_COLUMNS, rows, shape)


@txn.command()
@click.option("--topic", required=True)
@click.option("--partition", type=click.IntRange(0), required=True)
@click.option(
    "--start-offset", type=click.IntRange(0), required=True, help="Where the transaction begins there."
)
@click.option("--force", is_flag=True, help="Also one that its coordinator knows, and will end by itself.")
@bootstrap_option
def abort(topic: str, partition: int, start_offset: int, force: bool, bootstrap_server: str) -> None:
    """Abort a hanging transaction in one partition."""
    admin = _admin(bootstrap_server)
    found = _at(admin.open_transactions(None, topic, partition), start_offset)
    if found is None:
        raise CommandError(f"no open transaction of {topic}-{partition} begins at offset {start_offset}")
    if not force and not admin.hanging([found]):
        raise CommandError("its coordinator knows the transaction, and will end it; --force aborts it here")
    admin.abort(found)
    click.echo(f"Aborted the transaction of producer {found.producer_id} in {topic}-{partition}.")


def _at(found: Iterable[OpenTransaction], start_offset: int) -> OpenTransaction | None:
    return next((each for each in found if each.start_offset == start_offset), None)


def _admin(bootstrap_server: str) -> TransactionAdmin:
    from broker.cli.txn_admin import TransactionAdmin

    return TransactionAdmin(bootstrap_server)


def _now_ms() -> int:
    return round(time.time() * 1000)


def _show(name: str, columns: Sequence[str], rows: Sequence[Sequence[object]], shape: str) -> None:
    """`name`: of the list in JSON."""
    if shape == "json":
        print_list(name, as_objects(columns, rows))
    else:
        _print_table(columns, rows)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A value that is None is printed as `None`, as in Kafka's tool."""
    print_aligned([columns, *([str(value) for value in row] for row in rows)])
