"""`varve topic create|list|describe|alter|add-partitions|delete`, with the output of Kafka's kafka-topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.clients import admin_client
from broker.cli.completion import complete_topic
from broker.cli.confirm import confirm, named, yes_option
from broker.cli.output import counted, format_option, print_list
from broker.cli.root import TIMEOUT_S, CommandError
from broker.cli.start import parse_pairs
from broker.cli.topic_compact import compact
from broker.cli.topic_compaction import add_compaction, print_compaction
from broker.cli.topic_description import (
    describe_topics,
    find_topics,
    headline,
    partition_line,
    topic_refusal,
)
from broker.cli.topic_offsets import add_offsets
from broker.cli.topic_records import offsets as offsets_command
from broker.cli.topic_records import purge

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient


@click.group()
def topic() -> None:
    """Create, list, describe, change and delete topics; show, delete and compact records."""


topic.add_command(offsets_command)
topic.add_command(purge)
topic.add_command(compact)


def _all_named(names: tuple[str, ...], more_names: tuple[str, ...]) -> list[str]:
    """Each once. Raises UsageError if there is none."""
    found = list(dict.fromkeys(names + more_names))
    if not found:
        raise click.UsageError("name a topic")
    return found


_also_named = click.option(
    "--topic", "more_names", multiple=True, shell_complete=complete_topic, help="As an argument. Repeatable."
)


@topic.command()
@click.argument("names", nargs=-1, metavar="TOPIC...")
@_also_named
@click.option(
    "--partitions", "-p", type=click.IntRange(1), help="Number of partitions.  [default: num.partitions]"
)
@click.option(
    "--replication-factor",
    "--replicas",
    "-r",
    type=click.IntRange(1, 32767),
    help="Number of replicas.  [default: default.replication.factor]",
)
@click.option(
    "--config",
    "--topic-config",
    "-c",
    multiple=True,
    metavar="KEY=VALUE",
    help="A topic setting. Repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@bootstrap_option
@format_option
def create(
    names: tuple[str, ...],
    more_names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    config: tuple[str, ...],
    if_not_exists: bool,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Create topics. What became of each is told, and the exit code is 1 if one was not created."""
    wanted = _all_named(names, more_names)
    settings = parse_pairs(config, "--config")
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import NewTopic

    requests = [
        NewTopic(
            name,
            num_partitions=partitions or -1,
            replication_factor=replication_factor or -1,
            config=settings,
        )
        for name in wanted
    ]
    admin = admin_client(bootstrap_server)  # Kept, because pending requests end with it.
    futures = admin.create_topics(requests, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
    ignored = KafkaError.TOPIC_ALREADY_EXISTS if if_not_exists else None
    _report("created", _outcomes(futures, ignored, bootstrap_server), shape)


_exclude_internal_option = click.option(
    "--exclude-internal", is_flag=True, help="Leave out internal topics, such as __consumer_offsets."
)


@topic.command(name="list")
@_exclude_internal_option
@bootstrap_option
@format_option
def list_topics(exclude_internal: bool, bootstrap_server: str, shape: str) -> None:
    """List the topics, one name on each line."""
    found = find_topics(admin_client(bootstrap_server), bootstrap_server, with_internal=not exclude_internal)
    if shape == "json":
        print_list("topics", found)
        return
    for row in found:
        click.echo(row["topic"])


@topic.command()
@click.argument("names", nargs=-1, metavar="[TOPIC]...", shell_complete=complete_topic)
@_also_named
@click.option(
    "--under-replicated-partitions", is_flag=True, help="Show only partitions with an out-of-sync replica."
)
@click.option(
    "--offsets",
    is_flag=True,
    help="""Show the offsets of each partition, too: its start, its end, and its last stable offset, at which
    readers of committed data stop; and for which open transactions they wait there.""",
)
@click.option(
    "--compaction",
    is_flag=True,
    help="""Show how each partition stands with compaction: what of it is dirty, when it was compacted, up to which
    offsets, and which replica keeps tombstones and transaction markers from going, why, and since when.""",
)
@click.option(
    "--replicas", is_flag=True, help="With --compaction: a line for each replica; the leader has a *."
)
@_exclude_internal_option
@bootstrap_option
@format_option
def describe(
    names: tuple[str, ...],
    more_names: tuple[str, ...],
    under_replicated_partitions: bool,
    offsets: bool,
    compaction: bool,
    replicas: bool,
    exclude_internal: bool,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Show partitions, leaders and replicas of topics. All topics are shown if none is named."""
    if replicas and not compaction:
        raise click.UsageError("--replicas belongs to --compaction")
    admin = admin_client(bootstrap_server)
    wanted = list(dict.fromkeys(names + more_names))
    if not wanted:
        found = find_topics(admin, bootstrap_server, with_internal=not exclude_internal)
        wanted = [row["topic"] for row in found]
    descriptions = describe_topics(admin, wanted, bootstrap_server)
    if under_replicated_partitions:
        for description in descriptions:
            description["partitions"] = [
                p for p in description["partitions"] if len(p["isr"]) < len(p["replicas"])
            ]
    if offsets:
        add_offsets(admin, descriptions, bootstrap_server)
    states = add_compaction(descriptions, bootstrap_server) if compaction else []
    if shape == "json":
        print_list("topics", descriptions)
        return
    for description in descriptions:
        if not under_replicated_partitions:
            click.echo(headline(description))
        if offsets or not compaction:
            for partition in description["partitions"]:
                click.echo(partition_line(description["topic"], partition))
        if compaction:
            of_topic = [state for state in states if state.topic == description["topic"]]
            print_compaction(of_topic, with_replicas=replicas)


@topic.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@click.option(
    "--partitions", type=click.IntRange(1), help="The new number of partitions. It cannot be reduced."
)
@click.option("--config", multiple=True, metavar="KEY=VALUE", help="A topic setting. Repeatable.")
@click.option(
    "--delete-config", multiple=True, metavar="KEY", help="Go back to the default value. Repeatable."
)
@bootstrap_option
def alter(
    name: str,
    partitions: int | None,
    config: tuple[str, ...],
    delete_config: tuple[str, ...],
    bootstrap_server: str,
) -> None:
    """Change settings of a topic, or add partitions."""
    from broker.cli.config import alter_topic
    from broker.cli.wire_client import WireClient

    settings = parse_pairs(config, "--config")
    if not (settings or delete_config or partitions):
        raise click.UsageError("nothing to change: use --partitions, --config or --delete-config")
    if settings or delete_config:
        alter_topic(WireClient(bootstrap_server), name, settings, delete_config)
    if partitions:
        _create_partitions(admin_client(bootstrap_server), {name: partitions}, bootstrap_server)
    click.echo(f"Altered topic {name}.")


@topic.command(name="add-partitions")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topic)
@click.option(
    "--num", type=click.IntRange(1), required=True, help="How many partitions to add to each topic."
)
@bootstrap_option
def add_partitions(names: tuple[str, ...], num: int, bootstrap_server: str) -> None:
    """Add partitions to topics. Keys may belong to other partitions afterwards."""
    admin = admin_client(bootstrap_server)
    present = {
        d["topic"]: d["partition_count"] for d in describe_topics(admin, list(names), bootstrap_server)
    }
    _create_partitions(admin, {name: count + num for name, count in present.items()}, bootstrap_server)
    for name, count in present.items():
        click.echo(f"Topic {name} has {counted(count + num, 'partition')}.")


def _create_partitions(admin: AdminClient, counts: dict[str, int], bootstrap_server: str) -> None:
    from confluent_kafka.admin import NewPartitions

    requests = [NewPartitions(name, count) for name, count in counts.items()]
    futures = admin.create_partitions(requests, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
    outcomes = _outcomes(futures, None, bootstrap_server).values()
    failed = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if failed:
        raise CommandError("\n".join(failed))


@topic.command()
@click.argument("names", nargs=-1, metavar="TOPIC...", shell_complete=complete_topic)
@_also_named
@click.option("--if-exists", is_flag=True, help="Do nothing if the topic does not exist.")
@yes_option
@bootstrap_option
@format_option
def delete(
    names: tuple[str, ...],
    more_names: tuple[str, ...],
    if_exists: bool,
    is_sure: bool,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Delete topics with all their records. The exit code is 1 if one was not deleted."""
    from confluent_kafka import KafkaError

    wanted = _all_named(names, more_names)
    confirm(f"Delete {named([f'topic {name}' for name in wanted])} with all records", is_sure=is_sure)
    admin = admin_client(bootstrap_server)  # Kept, because pending requests end with it.
    futures = admin.delete_topics(wanted, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S)
    ignored = KafkaError.UNKNOWN_TOPIC_OR_PART if if_exists else None
    _report("deleted", _outcomes(futures, ignored, bootstrap_server), shape)


def _outcomes(
    futures: dict[str, Future[Any]], ignored: int | None, bootstrap_server: str
) -> dict[str, bool | str]:
    """For each topic, whether something was done, or why not. False: its error is the `ignored` one."""
    from confluent_kafka import KafkaException

    outcomes: dict[str, bool | str] = {}
    for name, future in futures.items():
        try:
            future.result()
            outcomes[name] = True
        except KafkaException as failure:
            if failure.args[0].code() == ignored:
                outcomes[name] = False
            else:
                outcomes[name] = topic_refusal(name, failure, bootstrap_server).format_message()
    return outcomes


def _report(verb: str, outcomes: dict[str, bool | str], shape: str) -> None:
    """Raises CommandError if one was refused."""
    errors = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, str)}
    if shape == "json":
        print_list(
            "topics",
            [
                {"topic": name, verb: outcome is True, "error": errors.get(name)}
                for name, outcome in outcomes.items()
            ],
        )
    else:
        for name, outcome in outcomes.items():
            if outcome is True:
                click.echo(f"{verb.capitalize()} topic {name}.")
    if errors:
        raise CommandError("\n".join(errors.values()))
