"""`varve explain`: why a topic is not compacted, what becomes of a key's records, why an offset is not visible."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.compaction_state import PartitionState, partition_states
from broker.cli.completion import complete_topic
from broker.cli.config import BROKER, TOPIC, describe_resource
from broker.cli.explain_log import Cause, Known, log_causes
from broker.cli.explain_records import Found, offset_causes, records_of_key, tell_fates
from broker.cli.log_reading import read_batches
from broker.cli.output import format_option, print_list
from broker.cli.root import CommandError
from broker.cli.tables import print_table
from broker.cli.times import iso
from broker.cli.txn_admin import TransactionAdmin
from broker.cli.wire_client import WireClient


@click.command()
@click.argument("topic", metavar="TOPIC", shell_complete=complete_topic)
@click.option("--partition", "-p", type=click.IntRange(0), help="Only this one.  [default: all]")
@click.option(
    "--key", "-k", help="Show all records of this key that are still there, and what becomes of each."
)
@click.option(
    "--offset",
    "-o",
    type=click.IntRange(0),
    help="Say what is at this offset of --partition, and who sees it.",
)
@bootstrap_option
@format_option
def explain(
    topic: str,
    partition: int | None,
    key: str | None,
    offset: int | None,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Explain why a topic is not compacted or does not shrink.

    For each partition the causes are listed, the most important one first, each with the setting or the broker that
    decides it and a command that would change it.

    With --key: each record of the key that is still on disk, and when it goes. The partitions are read as a whole for
    that. With --offset: why readers with isolation.level=read_committed do not see it.
    """
    if key is not None and offset is not None:
        raise click.UsageError("--key and --offset exclude each other")
    if offset is not None and partition is None:
        raise click.UsageError("--offset belongs to one --partition")
    client = WireClient(bootstrap_server)
    states = partition_states(client, [topic], None if partition is None else [partition])
    everything = list(_known(client, bootstrap_server, topic, states))
    if key is not None:
        _explain_key(client, everything, key, shape)
        return
    explained = [
        (known, log_causes(known) if offset is None else _offset_causes(client, known, offset))
        for known in everything
    ]
    if shape == "json":
        print_list("partitions", [_as_dict(known, causes) for known, causes in explained])
        return
    for known, causes in explained:
        click.echo(_sizes(known) if offset is None else f"{topic}-{known.state.partition} at offset {offset}")
        _print(causes)


def _known(
    client: WireClient, bootstrap_server: str, topic: str, states: Sequence[PartitionState]
) -> Iterator[Known]:
    settings = _settings(
        client, topic, next((state.leader for state in states if state.leader is not None), None)
    )
    found = sorted(
        TransactionAdmin(bootstrap_server).open_transactions(None, topic, None),
        key=lambda transaction: transaction.start_offset,
    )
    for state in states:
        of_partition = [each for each in found if each.partition == state.partition]
        yield Known(state, settings, of_partition, round(time.time() * 1000))


def _settings(client: WireClient, topic: str, broker: int | None) -> dict[str, str]:
    """Those of the topic, over those of a broker."""
    rows = [] if broker is None else describe_resource(client, BROKER, str(broker))
    rows += describe_resource(client, TOPIC, topic)
    return {row.name: row.value for row in rows if row.value is not None}


def _batches(client: WireClient, known: Known, start_offset: int) -> Iterator[memoryview]:
    """Up to the high watermark. Raises CommandError."""
    state, own = known.state, known.state.main.own
    if own is None or state.leader is None:
        raise CommandError(f"{state.topic}-{state.partition} has no leader that answers")
    address = client.address_of(state.leader)
    return read_batches(address, state.topic, state.partition, start_offset, own.high_watermark)


def _offset_causes(client: WireClient, known: Known, offset: int) -> list[Cause]:
    own = known.state.main.own
    is_there = own is not None and own.log_start_offset <= offset < own.high_watermark
    return offset_causes(known, offset, _batches(client, known, offset) if is_there else ())


def _explain_key(client: WireClient, everything: Sequence[Known], key: str, shape: str) -> None:
    found: list[Found] = []
    for known in everything:
        own = known.state.main.own
        batches = _batches(client, known, 0 if own is None else own.log_start_offset)
        of_partition = records_of_key(known.state.partition, batches, key.encode())
        tell_fates(of_partition, known)
        found += of_partition
    if shape == "json":
        print_list("records", [_found_dict(each) for each in found])
    elif not found:
        click.echo(f"No record of the key is there: {key}")
    else:
        rows = [
            [each.partition, each.offset, iso(each.timestamp_ms), _kind(each), each.outcome.value, each.fate]
            for each in found
        ]
        print_table(("PARTITION", "OFFSET", "TIME", "VALUE", "TRANSACTION", "FATE"), rows)


def _kind(found: Found) -> str:
    return "deletion" if found.is_tombstone else f"{found.value_bytes} B"


def _found_dict(found: Found) -> dict[str, Any]:
    return {
        "partition": found.partition,
        "offset": found.offset,
        "time": iso(found.timestamp_ms),
        "is_tombstone": found.is_tombstone,
        "value_bytes": found.value_bytes,
        "transaction": found.outcome.value,
        "delete_horizon": iso(found.horizon_ms),
        "fate": found.fate,
    }


def _as_dict(known: Known, causes: list[Cause]) -> dict[str, Any]:
    state = known.state
    return {"topic": state.topic, "partition": state.partition, "causes": [asdict(cause) for cause in causes]}


def _sizes(known: Known) -> str:
    state, own = known.state, known.state.main.own
    place = f"{state.topic}-{state.partition}"
    if own is None:
        return place
    rest = own.size_bytes - own.clean_bytes - own.dirty_bytes
    return (
        f"{place}: {own.size_bytes:,} bytes; {own.clean_bytes:,} compacted, {own.dirty_bytes:,} dirty,"
        f" {rest:,} not to be compacted yet"
    )


def _print(causes: list[Cause]) -> None:
    for number, cause in enumerate(causes, 1):
        click.echo(f"  {number}. {cause.text}")
        if cause.setting is not None:
            click.echo(f"     setting: {cause.setting}")
        if cause.command is not None:
            click.echo(f"     to change it: {cause.command}")
    if not causes:
        click.echo("  Everything is compacted, and nothing waits.")
