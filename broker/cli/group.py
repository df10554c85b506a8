"""`varve group list|describe|reset-offsets|delete`, with the output of Kafka's kafka-consumer-groups."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.clients import admin_client
from broker.cli.completion import complete_group, complete_topic
from broker.cli.confirm import confirm, named, yes_option
from broker.cli.group_offsets import Scope, parse_target, seek_target
from broker.cli.output import as_objects, format_option, print_list
from broker.cli.root import CommandError
from broker.cli.start_offsets import Time
from broker.cli.tables import print_table

if TYPE_CHECKING:
    from broker.cli.group_admin import Group, GroupAdmin

#: The least widths of columns, as in Kafka's tool.
_WIDTHS = {"PARTITION": 10, "COORDINATOR (ID)": 25, "ASSIGNMENT-STRATEGY": 20, "STATE": 20}
_LEAST_WIDTH = 15
_OFFSET_COLUMNS = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID".split()
_INACTIVE = ("Empty", "Dead")


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command(name="list")
@click.option(
    "--state",
    "states",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="Show the state of each group. If states are named, show only groups in these states.",
)
@click.option(
    "--type",
    "types",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,...]",
    help="Show the type of each group. If types are named, show only groups of these types.",
)
@bootstrap_option
@format_option
def list_groups(states: str | None, types: str | None, bootstrap_server: str, shape: str) -> None:
    """List the groups, one name on each line."""
    found = _admin(bootstrap_server).list_groups(_names(states), _names(types))
    if shape == "json":
        print_list("groups", found)
    elif states is None and types is None:
        for row in found:
            click.echo(row["group"])
    else:
        columns = {"GROUP": "group"}
        columns |= {"TYPE": "type"} if types is not None else {}
        columns |= {"STATE": "state"} if states is not None else {}
        _print_table(list(columns), [[row[key] for key in columns.values()] for row in found])


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


@group.command()
@click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=complete_group)
@click.option("--all-groups", is_flag=True, help="All groups of the cluster.")
@click.option("--members", is_flag=True, help="Show members instead of offsets.")
@click.option("--state", is_flag=True, help="Show coordinator and state instead of offsets.")
@click.option("--verbose", is_flag=True, help="Show assignments, too (with --members), or leader epochs.")
@bootstrap_option
@format_option
def describe(
    names: tuple[str, ...],
    all_groups: bool,
    members: bool,
    state: bool,
    verbose: bool,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Show the offsets, the lag and the members of groups.

    JSON has everything, whatever the other options.
    """
    if members and state:
        raise click.UsageError("--members and --state exclude each other")
    _check_named(names, all_groups)
    admin = _admin(bootstrap_server)
    groups = admin.describe(_chosen(admin, names))
    if shape == "json":
        shown = [{**found, "offsets": admin.describe_offsets(found)} for found in groups]
        print_list("groups", shown)
        return
    for found in groups:
        if not found["members"]:
            click.echo(f"Consumer group '{found['group']}' has no active members.", err=True)
        if members:
            _print_members(found, verbose=verbose)
        elif state:
            _print_state(found)
        else:
            _print_offsets(admin.describe_offsets(found), verbose=verbose)


@group.command(name="reset-offsets")
@click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=complete_group)
@click.option("--all-groups", is_flag=True, help="All groups of the cluster.")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1,...]", help="Reset these partitions. Repeatable."
)
@click.option("--all-topics", is_flag=True, help="Reset all partitions that the group has offsets for.")
@click.option("--to-earliest", is_flag=True, help="To the first record of each partition.")
@click.option("--to-latest", is_flag=True, help="To the next record, behind the last one.")
@click.option(
    "--to-current", is_flag=True, help="To the present offset of the group, or else to the next record."
)
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="To this offset.")
@click.option(
    "--shift-by", type=int, metavar="N", help="By N records forwards, or backwards if N is negative."
)
@click.option(
    "--by-duration", metavar="PnDTnHnMnS", help="To the first record that is not older than this, as in PT1H."
)
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDTHH:mm:SS.sss",
    help="To the first record at or after this time, in UTC.",
)
@click.option("--dry-run", is_flag=True, help="Only show the new offsets.  [default]")
@click.option("--execute", is_flag=True, help="Reset the offsets.")
@bootstrap_option
@format_option
def reset_offsets(
    names: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    dry_run: bool,
    execute: bool,
    bootstrap_server: str,
    shape: str,
    **options: Any,
) -> None:
    """Set the committed offsets of groups. The groups must not have members meanwhile."""
    if dry_run and execute:
        raise click.UsageError("--dry-run and --execute exclude each other")
    _check_named(names, all_groups)
    scope = Scope.of(topics, all_topics)
    wanted = parse_target(round(time.time() * 1000), **options)
    admin = _admin(bootstrap_server)
    groups = admin.describe(_chosen(admin, names), may_be_missing=True)
    _check_inactive(groups)
    rows = []
    for found in groups:
        offsets = admin.resolve_offsets(found["group"], scope, wanted)
        if execute:
            admin.commit_offsets(found["group"], offsets)
        rows += [(found["group"], *partition, offset) for partition, offset in sorted(offsets.items())]
    columns = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    _show_partitions(columns, rows, shape)
    if shape == "text" and not execute:
        click.echo("Nothing was changed. Use --execute to reset the offsets.", err=True)


class SeekTarget(click.ParamType[int | str]):
    """start, end, or a time."""

    name = "target"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        return value if value in ("start", "end") else Time().convert(value, param, ctx)


@group.command()
@click.argument("name", metavar="GROUP", shell_complete=complete_group)
@click.option(
    "--to",
    type=SeekTarget(),
    required=True,
    metavar="TARGET",
    help="start, end, milliseconds since 1970, or a time such as 2026-11-27T10:00 (UTC).",
)
@click.option(
    "--topics",
    multiple=True,
    metavar="TOPIC[:0,1,...]",
    shell_complete=complete_topic,
    help="Only in these partitions. Repeatable.  [default: all that the group has offsets for]",
)
@bootstrap_option
@format_option
def seek(name: str, to: int | str, topics: tuple[str, ...], bootstrap_server: str, shape: str) -> None:
    """Set the committed offsets of a group at once. The group must not have members meanwhile.

    reset-offsets can do more, and shows first what it would do.
    """
    admin = _admin(bootstrap_server)
    _check_inactive(admin.describe([name], may_be_missing=True))
    before = admin.committed_offsets(name)
    offsets = admin.resolve_offsets(name, Scope.of(topics, not topics), seek_target(to))
    admin.commit_offsets(name, offsets)
    rows = [(*place, before.get(place), offset) for place, offset in sorted(offsets.items())]
    columns = ("TOPIC", "PARTITION", "PRIOR-OFFSET", "CURRENT-OFFSET")
    _show_partitions(columns, rows, shape)


@group.command()
@click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=complete_group)
@click.option("--all-groups", is_flag=True, help="All groups of the cluster.")
@yes_option
@bootstrap_option
@format_option
def delete(
    names: tuple[str, ...], all_groups: bool, is_sure: bool, bootstrap_server: str, shape: str
) -> None:
    """Delete groups and their offsets. The groups must not have members."""
    _check_named(names, all_groups)
    admin = _admin(bootstrap_server)
    chosen = _chosen(admin, names)
    if chosen:
        confirm(f"Delete {named([f'group {name}' for name in chosen])} with all offsets", is_sure=is_sure)
    refused = admin.delete(chosen)
    deleted = [name for name in chosen if name not in refused]
    if shape == "json":
        print_list(
            "groups",
            [{"group": name, "deleted": name not in refused, "error": refused.get(name)} for name in chosen],
        )
    elif deleted:
        quoted = ", ".join(f"'{name}'" for name in deleted)
        click.echo(f"Deletion of requested consumer groups ({quoted}) was successful.")
    if refused:
        raise CommandError(
            "; ".join(f"group '{name}' is not deleted: {why}" for name, why in refused.items())
        )


def _admin(bootstrap_server: str) -> GroupAdmin:
    from broker.cli.group_admin import GroupAdmin  # Imports the client library, which help does not need.

    return GroupAdmin(admin_client(bootstrap_server), bootstrap_server)


def _check_named(names: tuple[str, ...], all_groups: bool) -> None:
    if bool(names) == all_groups:
        raise click.UsageError("name groups, or use --all-groups, but not both")


def _chosen(admin: GroupAdmin, names: tuple[str, ...]) -> list[str]:
    """Those that are named, or all."""
    return list(dict.fromkeys(names)) if names else [row["group"] for row in admin.list_groups()]


def _show_partitions(columns: Sequence[str], rows: Sequence[Sequence[object]], shape: str) -> None:
    if shape == "json":
        print_list("partitions", as_objects(columns, rows))
    else:
        _print_table(columns, rows)


def _check_inactive(groups: Iterable[Group]) -> None:
    """Raises CommandError if one of them has members."""
    for found in groups:
        if found["state"] not in _INACTIVE:
            raise CommandError(
                f"offsets of group '{found['group']}' cannot be reset while it has members: its state is "
                f"{found['state']}"
            )


def _print_offsets(rows: list[dict[str, Any]], *, verbose: bool) -> None:
    columns = list(_OFFSET_COLUMNS)
    if verbose:
        columns.insert(3, "LEADER-EPOCH")
    _print_table(columns, [[row[column.lower().replace("-", "_")] for column in columns] for row in rows])


def _print_members(found: Group, *, verbose: bool) -> None:
    columns = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows = []
    for member in found["members"]:
        assigned = member["assignment"]
        row = [found["group"], member["consumer_id"], member["host"], member["client_id"]]
        row.append(sum(len(numbers) for numbers in assigned.values()))
        if verbose:
            row.append(
                " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in assigned.items())
            )
        rows.append(row)
    _print_table([*columns, "CURRENT-ASSIGNMENT"] if verbose else columns, rows)


def _print_state(found: Group) -> None:
    coordinator = found["coordinator"]
    where = f"{coordinator['host']}:{coordinator['port']}  ({coordinator['id']})"
    columns = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]
    row = [found["group"], where, found["assignment_strategy"] or None, found["state"], len(found["members"])]
    _print_table(columns, [row])


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    print_table(columns, rows, least_width=_LEAST_WIDTH, least_widths=_WIDTHS)
